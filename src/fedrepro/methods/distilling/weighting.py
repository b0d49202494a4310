"""Weights of teachers on each sample: the five weightings that FedGO's Figure 2 compares.

Each function returns weights [teachers, n] that sum to 1 over the teachers.
"""

import torch
from torch import Tensor


def _shares(scores: Tensor) -> Tensor:
    """Non-negative ``scores`` [teachers, n] over each sample's sum; equal where that is 0."""
    total = scores.sum(0)
    return torch.where(total > 0, scores / torch.where(total > 0, total, 1), 1 / len(scores))


def uniform(logits: Tensor) -> Tensor:
    """Equal weights (FedDF, Lin et al., NeurIPS 2020) for ``logits`` [teachers, n, classes]."""
    return torch.full_like(logits[..., 0], 1 / len(logits))


def variance(logits: Tensor) -> Tensor:
    """By the variance over classes of ``logits`` [teachers, n, classes] (Fed-ET, IJCAI 2022)."""
    return _shares(logits.var(-1, unbiased=False))


def entropy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """By exp(-H / temperature), H the entropy of softmax(``logits`` [teachers, n, classes]).

    As in FedHKT and FedDS; FedGO uses temperature 1.
    """
    probabilities = logits.softmax(-1)
    entropies = -(probabilities * logits.log_softmax(-1)).sum(-1)
    return (-entropies / temperature).softmax(0)


def domain_aware(judged: Tensor) -> Tensor:
    """By D (DaFKD, Wang et al., CVPR 2023), without numbers of samples (A11).

    Args:
        judged: logits of each teacher's discriminator for each sample [teachers, n]:
            D = sigmoid(judged).
    """
    return _shares(judged.sigmoid())


def odds(judged: Tensor, sizes: Tensor) -> Tensor:
    """By n_k D / (1 - D) (FedGO), for ``judged`` [teachers, n] as in :func:`domain_aware`.

    With optimal discriminators that is n_k p_k for any generator (Theorem 3.6). FedGO's
    discriminators output numbers from 0 to 1 (:mod:`fedrepro.models.adversaries`), so the odds
    range from 1 to e.

    Args:
        sizes: the teachers' numbers of training samples, or any weights [teachers].
    """
    # D / (1 - D) is exp(judged); the softmax cannot overflow.
    return (judged + sizes.to(judged).log()[:, None]).softmax(0)
