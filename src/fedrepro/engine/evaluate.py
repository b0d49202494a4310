"""Evaluate a model on samples."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrepro.engine.net import Net
from fedrepro.engine.task import Task
from fedrepro.engine.tree import Tree

BATCH = 500  # samples at a time; larger batches are no faster on a CPU
# The most samples, and outputs, of which a mean of the user's own is taken.
AT_ONCE, MOST_OUTPUTS = 10_000, 10**8

# (first, last) -> inputs and targets of that slice, on the run's device
Samples = Callable[[int, int], tuple[Tensor, Tensor]]
# By name: mean "loss", "accuracy" (0 to 1), and the task's further measures.
Score = dict[str, float]
# The same of many clients, each [clients], after their "samples"; NaN for a client without any.
Scores = dict[str, NDArray[Any]]


class ClientSamples(Protocol):
    """The samples on which clients are scored, one client's after the other's.

    Attributes:
        sizes: number of samples of each client.
    """

    sizes: NDArray[np.int64]

    def of(self, client: int) -> Samples:
        """One client's samples."""

    def rows(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of these clients' samples, one client's after the other's."""

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets at ``rows``, on the run's device."""


class _OwnMean:
    """The mean of a loss that is only known as one: of all samples, or of many at a time.

    Its function may compare all samples that it is given, and a sample's outputs may be many.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._parts: list[tuple[Tensor, Tensor]] = []
        self._sum, self._samples = 0.0, 0

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        self._parts.append((outputs, targets))
        samples = sum(len(part) for _, part in self._parts)
        if samples >= AT_ONCE or sum(part.numel() for part, _ in self._parts) >= MOST_OUTPUTS:
            self._take()

    def mean(self) -> float:
        if self._parts:
            self._take()
        return self._sum / self._samples

    def _take(self) -> None:
        outputs, targets = _joined(self._parts)
        self._sum += float(self._task.losses(outputs, targets, "mean")) * len(targets)
        self._samples += len(targets)
        self._parts = []


@torch.no_grad()
def evaluate(
    net: Net, task: Task, params: Tree, samples: Samples, total: int, measured: bool = False
) -> Score:
    """Score ``params`` on ``total`` samples, with dropout and BatchNorm in testing mode.

    Sums are taken in float64, so that they do not depend on the batch size. The outputs of a
    BatchNorm without running statistics (:mod:`fedrepro.models.superfed`) do depend on it: it
    normalises over :data:`BATCH` samples, or over all of a client's if they are fewer.

    Args:
        measured: also compute the task's further measures; this keeps all outputs in memory.
    """
    measures = task.measures if measured else {}
    kept: list[tuple[Tensor, Tensor]] | None = [] if measures else None
    own = _OwnMean(task) if task.of_mean else None
    loss, hits, predictions = _totals(net, task, params, samples, total, kept, own).tolist()
    score = {"loss": loss / total, "accuracy": hits / predictions if predictions > 0 else math.nan}
    if own:
        score["loss"] = own.mean()
    if kept:
        outputs, targets = map(_array, _joined(kept))
        score |= {name: take(outputs, targets) for name, take in measures.items()}
    return score


def _totals(
    net: Net,
    task: Task,
    params: Tree,
    samples: Samples,
    total: int,
    kept: list[tuple[Tensor, Tensor]] | None,
    own: _OwnMean | None,
) -> Tensor:
    """The sums of losses, hits and predictions [3]; outputs and targets are added to the others.

    They stay on the device, which would have to finish for a number.
    """
    bound = net.bind(params)
    totals = torch.zeros(3, dtype=torch.float64, device=_device(params))
    for first in range(0, total, BATCH):
        x, y = samples(first, min(first + BATCH, total))
        logits = net.predict(bound, x)
        totals += torch.stack(
            [values.sum(dtype=torch.float64) for values in _by_sample(task, logits, y)]
        )
        if kept is not None:
            kept.append((task.shaped(logits, y), y))
        if own:
            own.add(logits, y)
    return totals


@torch.no_grad()
def evaluate_clients(
    net: Net,
    task: Task,
    model_of: Callable[[int], Tree],
    samples: ClientSamples,
    clients: NDArray[np.int64],
    shared: Tree | None = None,
) -> Scores:
    """Score each of ``clients`` on its own samples, with the task's further measures.

    A client's outputs have the bits of :func:`evaluate`, but for the clients with the ``shared``
    model, whose samples pass through the network together: the last bits of an output depend on
    the size of its batch.

    Args:
        model_of: client -> its parameters, which need not all fit in memory.
        shared: the object that ``model_of`` returns for clients that are scored together.
    """
    sizes = samples.sizes[clients]
    loss, accuracy = np.full((2, len(clients)), np.nan)
    kept: list[tuple[Tensor, Tensor]] | None = [] if task.measures else None
    together, alone, totals = [], [], []
    own: dict[int, _OwnMean] = {}
    for place in np.flatnonzero(sizes).tolist():
        client = int(clients[place])
        model = model_of(client)
        if model is shared and not task.of_mean:
            together.append(place)
            continue
        if task.of_mean:
            own[place] = _OwnMean(task)
        alone.append(place)
        totals.append(
            _totals(net, task, model, samples.of(client), int(sizes[place]), kept, own.get(place))
        )
    if alone:
        sums, hits, predictions = torch.stack(totals, 1).cpu().numpy()
        loss[alone] = sums / sizes[alone]
        for place, mean in own.items():
            loss[place] = mean.mean()
        with np.errstate(invalid="ignore"):
            accuracy[alone] = hits / predictions
    if together and shared is not None:
        rows = samples.rows(clients[together])
        loss[together], accuracy[together] = _means(
            net, task, shared, samples, rows, sizes[together], kept
        )
    order = np.array([*alone, *together], dtype=np.int64)
    scores = {"samples": sizes, "loss": loss, "accuracy": accuracy}
    scores |= {name: np.full(len(clients), np.nan) for name in task.measures}
    if kept:
        bounds = np.concatenate([[0], np.cumsum(sizes[order])])
        outputs, targets = map(_array, _joined(kept))
        for name, values in task.measured(outputs, targets, bounds).items():
            scores[name][order] = values
    return scores


def _means(
    net: Net,
    task: Task,
    params: Tree,
    samples: ClientSamples,
    rows: NDArray[np.int64],
    sizes: NDArray[np.int64],
    kept: list[tuple[Tensor, Tensor]] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each client's mean loss and accuracy with one model, on ``rows`` of all of them in turn."""
    bound, sums = net.bind(params), []
    for batch in torch.from_numpy(rows).to(_device(params)).split(BATCH):
        x, y = samples.at(batch)
        logits = net.predict(bound, x)
        sums.append(torch.stack([values.double() for values in _by_sample(task, logits, y)]))
        if kept is not None:
            kept.append((task.shaped(logits, y), y))
    starts = np.cumsum(sizes) - sizes
    loss, hits, predictions = np.add.reduceat(torch.cat(sums, 1).cpu().numpy(), starts, axis=1)
    with np.errstate(invalid="ignore"):
        return loss / sizes, hits / predictions


def _by_sample(task: Task, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, hits and predictions, each [n]."""
    return task.losses(logits, y, "none"), task.hits(logits, y), task.predictions(y)


def _joined(kept: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Outputs and targets of several batches."""
    outputs, targets = map(torch.cat, zip(*kept, strict=True))
    return outputs, targets


def _array(leaf: Tensor) -> NDArray[Any]:
    # numpy has no bfloat16.
    leaf = leaf.float() if leaf.dtype is torch.bfloat16 else leaf
    array: NDArray[Any] = leaf.cpu().numpy()
    return array


@torch.no_grad()
def score(task: Task, logits: Tensor, y: Tensor) -> Score:
    """Score given outputs ``logits`` [n, outputs] on targets ``y`` [n]."""
    loss = task.losses(logits, y, "none").sum(dtype=torch.float64)
    hits, predictions = task.hits(logits, y).sum(dtype=torch.float64), task.predictions(y).sum()
    return {"loss": float(loss) / len(y), "accuracy": float(hits / predictions)}


def _device(params: Tree) -> torch.device:
    device: torch.device = next(iter(params.values())).device
    return device
