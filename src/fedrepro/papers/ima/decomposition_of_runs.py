"""The terms of IMA's Theorem 1 after rounds of finished runs that differ in their seed.

K clients' models f_k, of weights n_k / n, are random: each repeat trains with another seed. On
the squared error against targets, the loss of their weighted ensemble (WENS) is exactly bias
squared plus variance plus covariance; the loss of the model with the averaged parameters (FMA)
differs from it by the locality term, which is O(Delta^2) in the largest distance Delta of a client
from the average (Lemma 1). The bias of a client counts as training bias on samples of its own data
and as heterogeneous bias on all others.

The text squares the sum of both biases. Here their product is split equally between them, so that
the five terms add up. The released code lacks its module for this (discrepancy B16): errors here
are means over samples and outputs, for classes between softmax and one-hot targets.

The theorem's models are random through their initialisation and the order of samples, so its
expectations are means over runs with different seeds but the same clients: the partition has its
own seed and, with partial participation, so do the cohorts.

Beside the terms stands how similar the clients' outputs are: linear CKA (Kornblith et al.,
ICML 2019).
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import combinations
from operator import add
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from fedrepro.analysis.kept_models import KeptModels, open_kept
from fedrepro.analysis.landscape import BATCH, average_of
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.data.partition.partition import Partition
from fedrepro.engine import tree
from fedrepro.engine.tree import Tree
from fedrepro.run.results import made_of
from fedrepro.support.errors import bad_value, refusal

Progress = Callable[[float], None]  # called with the finished share
# Shares of the clients' distances at which Lemma 1's slope is measured: it holds near the average,
# but closer still float32 hides the gap.
NEAR = (1 / 16, 1 / 32)


def decomposition_of(
    workbench: Workbench,
    setting: str,
    method: str,
    seeds: Sequence[int],
    samples: int,
    progress: Progress,
) -> dict[str, Any]:
    """The five terms after every round whose models all runs kept.

    Args:
        samples: at most so many of the runs' test samples.

    Returns:
        seeds; samples; clients (how many there are); estimates (in words, what the terms estimate);
        and rounds, each with round, clients (whose models are averaged), the five terms and total
        (their sum), loss and ensemble_loss (the mean squared errors of softmax outputs of the
        averaged model and the ensemble, discrepancy B16), error (of the averaged model, in percent,
        mean over seeds), errors_by_number (of averages of 1, 2, ... clients, of the first seed),
        distance (Delta: the largest of a client's distances from the average, mean over seeds), gap
        (the root mean square of the difference of the average's and the ensemble's outputs, of the
        first seed), slope (of log gap over log Delta for clients drawn to within a sixteenth of
        their distance: 2 is Lemma 1's O(Delta^2); None where there is no gap), cka (linear, of
        logits, mean over pairs and seeds).

    Raises:
        UserError: for fewer than two seeds, runs that are unfinished, kept no models, or have no
            common partition or round, fewer than two common clients, or no classes.
    """
    if len(set(seeds)) < 2:
        raise bad_value("decomposition", "seeds", list(seeds), "at least two different")
    runs = [open_kept(workbench, RunKey(setting, method, seed)) for seed in seeds]
    for run in runs:
        run.require_kept()
    first = runs[0]
    where, task = f"decomposition: {setting}", first.plan.federation.context.task
    if task.name != "classification":
        raise bad_value(where, "task", task.name, "'classification'")
    for other in runs[1:]:
        if not _same_clients(first.partition, other.partition):
            why = (
                f"seeds {first.run.seed} and {other.run.seed} have other clients: expected the "
                "same, by `partition: { ..., seed: 1 }` in the setting"
            )
            raise refusal(where, why, "partition.seed")
    rounds = sorted(set.intersection(*(set(run.clients) for run in runs)))
    if not rounds:
        raise refusal(where, "no round was kept by all of its runs", "save_models_at")
    x, y = first.samples(samples)
    after_rounds = []
    for place, number in enumerate(rounds, 1):
        after_rounds.append(_after(number, runs, x, y))
        progress(place / len(rounds))
    everyone = first.plan.federation.context.clients
    return {
        "of": made_of(run.record for run in runs),
        "seeds": list(seeds),
        "samples": len(y),
        "clients": everyone,
        "estimates": _estimates(after_rounds, everyone),
        "rounds": after_rounds,
    }


def _estimates(rounds: Sequence[dict[str, Any]], everyone: int) -> str:
    fewest = min(round["clients"] for round in rounds)
    if fewest == everyone:
        return f"the loss of the average of all {everyone} clients"
    return (
        f"the loss of the average of the {fewest} of {everyone} clients that took part in a round "
        "in all of the runs, given that they did: not of all clients, nor over the draw of cohorts"
    )


def _same_clients(one: Partition, other: Partition) -> bool:
    pairs = zip(one.train, other.train, strict=False)
    return len(one.train) == len(other.train) and all(
        len(a) == len(b) and bool((a == b).all()) for a, b in pairs
    )


def _after(number: int, runs: Sequence[KeptModels], x: Tensor, y: Tensor) -> dict[str, Any]:
    """One entry of the rounds."""
    first = runs[0]
    clients = sorted(set.intersection(*(set(run.clients[number]) for run in runs)))
    if len(clients) < 2:
        why = (
            f"{len(clients)} clients took part in all of the runs: expected at least two: full "
            "participation, or `cohorts: { stream: numpy_legacy, seed: 1 }` in the setting"
        )
        raise refusal(f"decomposition: round {number}", why, "cohorts", len(clients))
    weights = first.shares(clients)
    net = first.plan.federation.context.net

    @torch.no_grad()
    def logits(params: Tree) -> Tensor:
        bound = net.bind(params)
        return torch.cat([net.predict(bound, part) for part in x.split(BATCH)])

    outputs, averaged, away, alike = [], [], [], []
    errors: list[float] = []
    for run in runs:
        models = [run.client(number, client).params for client in clients]
        outputs.append(torch.stack([logits(model) for model in models]))
        averaged.append(logits(average_of(models, weights)))
        errors.append(error_of(averaged[-1], y))
        away.append(max(distances(models, weights)))
        alike.append(mean_cka(list(outputs[-1])))
        if run is first:
            gap = ensemble_gap(lambda model: logits(model).softmax(-1), models, weights, (1.0,))
            near = ensemble_gap(lambda model: logits(model).softmax(-1), models, weights, NEAR)
            by_number = errors_by_number(logits, models, weights, y)
    seen = torch.zeros(len(clients), len(y), dtype=torch.bool, device=y.device)
    for place, client in enumerate(clients):
        classes = torch.from_numpy(first.classes_of(client)).to(y.device)
        seen[place] = torch.isin(y, classes)
    # On softmax outputs and one-hot targets (discrepancy B16).
    shares, average = (torch.stack(each).softmax(-1) for each in (outputs, averaged))
    one_hot = functional.one_hot(y, outputs[0].shape[-1])
    terms = decompose(shares, average, one_hot, weights.to(y.device), seen)
    loss = float((average.double() - one_hot).square().mean())
    return {
        "round": number,
        "clients": len(clients),
        **terms._asdict(),
        "total": terms.total,
        "loss": loss,
        "ensemble_loss": loss - terms.locality,
        "error": mean(errors),
        "errors_by_number": by_number,
        "distance": mean(away),
        "gap": gap.gaps[0],
        "slope": near.slope if math.isfinite(near.slope) else None,
        "cka": cka if math.isfinite(cka := mean(alike)) else None,
    }


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


def linear_cka(one: Tensor, other: Tensor) -> float:
    """Linear centred kernel alignment of features [n, p] and [n, q] of the same samples: 0 to 1.

    |Y'X|^2 / (|X'X| |Y'Y|) after centring, in Frobenius norms (their eq. 6); NaN if one of them is
    constant over samples. Invariant to rotation and scaling.

    Raises:
        UserError: if they have different numbers of samples.
    """
    if len(one) != len(other):
        why = f"features of {len(one)} and {len(other)} samples: expected the same"
        raise refusal("CKA", why, "features")
    x, y = (each.double() - each.double().mean(0) for each in (one, other))
    norm = torch.linalg.matrix_norm(x.T @ x) * torch.linalg.matrix_norm(y.T @ y)
    return float(torch.linalg.matrix_norm(y.T @ x).square() / norm)


def mean_cka(features: Sequence[Tensor]) -> float:
    """:func:`linear_cka` averaged over all pairs, as IMA's Figure 4 is read (discrepancy B16).

    Raises:
        UserError: if there are fewer than two.
    """
    if len(features) < 2:
        raise bad_value("CKA", "models", len(features), "at least two, for a pair")
    return mean([linear_cka(one, other) for one, other in combinations(features, 2)])


def mean(values: Sequence[float]) -> float:
    """The mean, with the same bits in every Python: sum() rounds in another way since 3.12."""
    return reduce(add, values) / len(values)
