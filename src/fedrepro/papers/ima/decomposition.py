"""The expected loss of averaged models in five terms (IMA, Theorem 1).

K clients' models f_k, of weights n_k / n, are random: each repeat trains with another seed. On
the squared error against targets, the loss of their weighted ensemble (WENS) is exactly bias
squared plus variance plus covariance; the loss of the model with the averaged parameters (FMA)
differs from it by the locality term, which is O(Delta^2) in the largest distance Delta of a client
from the average (Lemma 1). The bias of a client counts as training bias on samples of its own data
and as heterogeneous bias on all others.

The text squares the sum of both biases. Here their product is split equally between them, so that
the five terms add up. The released code lacks its module for this (discrepancy B16): errors here
are means over samples and outputs, for classes between softmax and one-hot targets.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedrepro.analysis.landscape import average_of
from fedrepro.engine.method import Tree, tree


class Decomposition(NamedTuple):
    """The five terms, whose sum is the expected loss of the averaged model."""

    train_bias: float
    heterogeneous_bias: float
    variance: float
    covariance: float
    locality: float

    @property
    def total(self) -> float:
        return math.fsum(self)


def decompose(
    outputs: Tensor, averaged: Tensor, targets: Tensor, weights: Tensor, seen: Tensor
) -> Decomposition:
    """The expected squared error of the averaged model, in five terms.

    Args:
        outputs: of every client's model, [repeats, K, n, outputs]; repeats are equally likely
            outcomes of all randomness, and at least two, as one has no variance.
        averaged: of the model with averaged parameters, [repeats, n, outputs].
        targets: [n, outputs].
        weights: the clients' n_k / n, [K].
        seen: whether a sample belongs to the client's data, bool [K, n]; for test samples, whether
            the client has its class.
    """
    outputs, averaged, targets, weights = (
        each.double() for each in (outputs, averaged, targets, weights)
    )
    bias = weights[:, None, None] * (outputs.mean(0) - targets)  # [K, n, outputs]
    train = (bias * seen[:, :, None]).sum(0)
    heterogeneous = (bias * ~seen[:, :, None]).sum(0)
    shares = weights[:, None] * covariances(outputs) * weights
    ensemble = torch.einsum("k,rkno->rno", weights, outputs)
    return Decomposition(
        float((train * (train + heterogeneous)).mean()),
        float((heterogeneous * (train + heterogeneous)).mean()),
        float(shares.diagonal().sum()),
        float(shares.sum() - shares.diagonal().sum()),
        float((averaged - targets).square().mean() - (ensemble - targets).square().mean()),
    )


def covariances(outputs: Tensor) -> Tensor:
    """Covariances of the clients' models over repeats [K, K]; on the diagonal their variances.

    Means over samples and outputs; ``outputs`` are [repeats, K, n, outputs].
    """
    away = (outputs - outputs.mean(0)).double()
    repeats, _, samples, width = away.shape
    return torch.einsum("rkno,rlno->kl", away, away) / (repeats * samples * width)


def distances(models: Sequence[Tree], weights: Tensor) -> list[float]:
    """Every model's distance from their average; the largest is Delta of Lemma 1."""
    average = average_of(models, weights)
    away = [tree.square_norm(tree.subtract(model, average)) for model in models]
    return [math.sqrt(float(each)) for each in away]


def errors_by_number(
    predict: Callable[[Tree], Tensor], models: Sequence[Tree], weights: Tensor, labels: Tensor
) -> list[float]:
    """Test error of averages of 1, 2, ..., K models, in percent (IMA, Figure 4).

    For each number, the mean over the K groups of consecutive models in a circle (discrepancy B23).

    Args:
        predict: a model's logits on fixed samples, [n, classes].
        weights: the clients' n_k / n, [K].
        labels: of the samples, [n].
    """
    clients, means = len(models), []
    for number in range(1, clients + 1):
        errors = []
        for first in range(clients if number < clients else 1):
            group = [(first + step) % clients for step in range(number)]
            shares = weights[group] / weights[group].sum()
            average = average_of([models[member] for member in group], shares)
            errors.append(error_of(predict(average), labels))
        means.append(math.fsum(errors) / len(errors))
    return means


def error_of(logits: Tensor, labels: Tensor) -> float:
    """The share of wrong predictions, in percent."""
    return 100 * float((logits.argmax(-1) != labels).double().mean())


class Gap(NamedTuple):
    """The gap between averaged model and ensemble, as clients approach the average.

    Attributes:
        distances: Delta, the largest of the clients' distances from the average.
        gaps: root mean square of the difference of outputs.
        slope: of log(gap) over log(Delta), by least squares; 2 is Lemma 1's O(Delta^2). NaN if they
            are equal, as for a model that is linear in its parameters.
    """

    distances: list[float]
    gaps: list[float]
    slope: float


def ensemble_gap(
    predict: Callable[[Tree], Tensor],
    models: Sequence[Tree],
    weights: Tensor,
    scales: Sequence[float] = (1.0, 0.5, 0.25, 0.125),
) -> Gap:
    """The difference of WENS and FMA (Lemma 1), as clients are moved towards their average.

    Args:
        predict: a model's outputs on fixed samples.
        weights: the clients' n_k / n, [K].
        scales: of the clients' distances from the average.

    Raises:
        UserError: if the models' shapes differ.
    """
    average = average_of(models, weights)
    fma = predict(average)
    furthest = max(distances(models, weights))
    gaps = []
    for scale in scales:
        near = [predict(tree.mix(average, model, scale)) for model in models]
        ensemble = torch.tensordot(weights.to(fma.dtype), torch.stack(near), dims=1)
        gaps.append(math.sqrt(float((ensemble - fma).square().mean())))
    away = [scale * furthest for scale in scales]
    return Gap(away, gaps, _slope(away, gaps))


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of log y over log x, by least squares."""
    if not all(value > 0 for value in (*x, *y)):
        return math.nan
    logs = torch.tensor([x, y], dtype=torch.float64).log()
    across, up = logs - logs.mean(1, keepdim=True)
    return float((across * up).sum() / across.square().sum())
