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


class OwnMean:
    """The mean of a loss that is only known as one: of all samples, or of many at a time.

    Its function may compare all samples that it is given, and a sample's outputs may be many. Where
    no target counts (``ignore_index``) it is NaN, without outputs that are not finite: such samples
    are left out. NaN if all are; infinite if outputs are not finite.
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
        return self._sum / self._samples if self._samples else math.nan

    def _take(self) -> None:
        outputs, targets = _joined(self._parts)
        self._parts = []
        loss = float(self._task.losses(outputs, targets, "mean"))
        if math.isnan(loss):
            if outputs.isfinite().all():
                return
            loss = math.inf
        self._sum += loss * len(targets)
        self._samples += len(targets)


class _Scoring:
    """Scores one model after another, and keeps what further measures are computed from.

    Attributes:
        task: with the measures that are computed; they keep all outputs in memory.
        sums: of each model's losses, hits and predictions [3]. They stay on the device, which would
            have to finish for a number.
        means: each model's loss, where that is only known as a mean.
    """

    def __init__(self, net: Net, task: Task) -> None:
        self.net, self.task = net, task
        self.sums: list[Tensor] = []
        self.means: list[float] = []
        self._kept: list[tuple[Tensor, Tensor]] = []

    def add(self, params: Tree, samples: Samples, total: int) -> None:
        """Score a model on its samples."""
        bound, own = self.net.bind(params), OwnMean(self.task) if self.task.of_mean else None
        sums = torch.zeros(3, dtype=torch.float64, device=_device(params))
        for first in range(0, total, BATCH):
            x, y = samples(first, min(first + BATCH, total))
            logits, by_sample = self._batch(bound, x, y)
            sums += torch.stack([values.sum(dtype=torch.float64) for values in by_sample])
            if own:
                own.add(logits, y)
        self.sums.append(sums)
        if own:
            self.means.append(own.mean())

    def scores(self, sizes: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The loss and the accuracy of each model that was added, on so many samples."""
        losses, hits, predictions = torch.stack(self.sums, 1).cpu().numpy()
        with np.errstate(invalid="ignore"):
            return np.array(self.means) if self.means else losses / sizes, hits / predictions

    def of_rows(
        self, params: Tree, samples: ClientSamples, clients: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Each client's loss and accuracy with one model, on the samples of all in turn."""
        bound, sums, sizes = self.net.bind(params), [], samples.sizes[clients]
        rows = torch.from_numpy(samples.rows(clients))
        for batch in rows.to(_device(params)).split(BATCH):
            _, by_sample = self._batch(bound, *samples.at(batch))
            sums.append(torch.stack([values.double() for values in by_sample]))
        starts = np.cumsum(sizes) - sizes
        loss, hits, predictions = np.add.reduceat(torch.cat(sums, 1).cpu().numpy(), starts, axis=1)
        with np.errstate(invalid="ignore"):
            return loss / sizes, hits / predictions

    def measured(self, sizes: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """The measures of so many samples each, of all that were scored in turn."""
        if not self._kept:
            return {}
        outputs, targets = map(_array, _joined(self._kept))
        return self.task.measured(outputs, targets, np.concatenate([[0], np.cumsum(sizes)]))

    def _batch(self, bound: Tree, x: Tensor, y: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The outputs of a mini-batch; its samples' losses, hits and predictions, each [n]."""
        task, logits = self.task, self.net.predict(bound, x)
        if task.measures:
            self._kept.append((task.shaped(logits, y), y))
        return logits, (task.losses(logits, y, "none"), task.hits(logits, y), task.predictions(y))


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
    task = task if measured else task._replace(measures={})
    scoring, sizes = _Scoring(net, task), np.array([total])
    scoring.add(params, samples, total)
    loss, accuracy = scoring.scores(sizes)
    scores = {"loss": loss, "accuracy": accuracy, **scoring.measured(sizes)}
    return {name: float(value) for name, (value,) in scores.items()}


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
    sizes, scoring = samples.sizes[clients], _Scoring(net, task)
    names = ("loss", "accuracy", *task.measures)
    scores = {"samples": sizes} | {name: np.full(len(clients), np.nan) for name in names}
    together, alone = [], []
    for place in np.flatnonzero(sizes).tolist():
        client = int(clients[place])
        model = model_of(client)
        if model is shared and not task.of_mean:
            together.append(place)
        else:
            alone.append(place)
            scoring.add(model, samples.of(client), int(sizes[place]))
    if alone:
        scores["loss"][alone], scores["accuracy"][alone] = scoring.scores(sizes[alone])
    if together and shared is not None:
        scores["loss"][together], scores["accuracy"][together] = scoring.of_rows(
            shared, samples, clients[together]
        )
    order = np.array([*alone, *together], dtype=np.int64)
    for name, values in scoring.measured(sizes[order]).items():
        scores[name][order] = values
    return scores


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
