"""Pseudo-labels of an ensemble, and losses of a student against them."""

import math

from torch import Tensor
from torch.nn import functional

from fedrepro.methods.generating.synthetic import mean_over


def ensemble(logits: Tensor, weights: Tensor) -> Tensor:
    """``logits`` [teachers, n, classes] averaged with ``weights`` [teachers, n]: [n, classes].

    Logits are averaged, not probabilities (FedGO, Algorithm 1).
    """
    return (logits * weights[..., None]).sum(0)


def pseudo_labels(logits: Tensor, weights: Tensor, temperature: float = 1.0) -> Tensor:
    """Probabilities [n, classes]: the softmax of :func:`ensemble` over ``temperature``."""
    return (ensemble(logits, weights) / temperature).softmax(-1)


def kl_divergence(labels: Tensor, logits: Tensor, temperature: float = 1.0) -> Tensor:
    """KL(labels || softmax(logits / temperature)), the mean over samples, a scalar tensor.

    As in FedDF's released code: not multiplied by the square of the temperature.

    Args:
        labels: probabilities [n, classes], already at that temperature.
        logits: the student's [n, classes].
    """
    guessed = (logits / temperature).log_softmax(-1)
    return functional.kl_div(guessed, labels, reduction="batchmean")


def towards_history(
    past: Tensor,
    logits: Tensor,
    gamma: float = 0.001,
    temperature: float = 3.0,
    real: Tensor | None = None,
) -> Tensor:
    """FedGKD's term of a client's loss (Yao et al., 2023): a scalar tensor.

    gamma / 2 * T^2 * KL(softmax(past / T) || softmax(logits / T)), the mean over samples.

    Args:
        past: logits [n, classes] of the mean of the server's last models; they get no gradient.
        logits: the client's [n, classes].
        real: [n], 1 for samples that count, 0 for padding; None: all count.
    """
    labels = (past.detach() / temperature).softmax(-1)
    guessed = (logits / temperature).log_softmax(-1)
    divergences = functional.kl_div(guessed, labels, reduction="none").sum(-1)
    return gamma / 2 * temperature**2 * mean_over(divergences, real)


def cosine(rate: float, round: int, rounds: int) -> float:
    """The server's learning rate in ``round`` (from 0): from ``rate`` along half a cosine to 0.

    It is constant within a round, where FedDF's code lowers it per mini-batch (A6).
    """
    return rate * (1 + math.cos(math.pi * round / rounds)) / 2
