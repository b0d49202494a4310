"""Evaluate a model on samples."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fedrepro.engine.net import Net
from fedrepro.engine.task import Task
from fedrepro.engine.tree import Tree

BATCH = 500  # samples at a time; larger batches are no faster on a CPU

# (first, last) -> inputs and targets of that slice, on the run's device
Samples = Callable[[int, int], tuple[Tensor, Tensor]]


class Score(NamedTuple):
    """Mean loss and accuracy (0 to 1) over ``samples`` samples.

    ``more`` contains the task's further measures by name, if requested.
    """

    samples: int
    loss: float
    accuracy: float
    more: Mapping[str, float] = {}


@torch.inference_mode()
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
    bound = net.bind(params)
    loss = torch.zeros((), dtype=torch.float64, device=_device(params))
    hits = torch.zeros((), dtype=torch.float64, device=_device(params))
    predictions = torch.zeros((), dtype=torch.float64, device=_device(params))
    kept: list[tuple[Tensor, Tensor]] = []
    for first in range(0, total, BATCH):
        x, y = samples(first, min(first + BATCH, total))
        logits = net.predict(bound, x)
        loss += task.losses(logits, y, "none").sum(dtype=torch.float64)
        hits += task.hits(logits, y).sum(dtype=torch.float64)
        predictions += task.predictions(y)
        if measured and task.measures:
            kept.append((logits, y))
    more: dict[str, float] = {}
    if kept:
        outputs, targets = (torch.cat(part).cpu().numpy() for part in zip(*kept, strict=True))
        more = {name: take(outputs, targets) for name, take in task.measures.items()}
    accuracy = float(hits / predictions) if predictions > 0 else math.nan
    return Score(total, float(loss) / total, accuracy, more)


@torch.inference_mode()
def score(task: Task, logits: Tensor, y: Tensor) -> Score:
    """Score given outputs ``logits`` [n, outputs] on targets ``y`` [n]."""
    loss = task.losses(logits, y, "none").sum(dtype=torch.float64)
    hits, predictions = task.hits(logits, y).sum(dtype=torch.float64), task.predictions(y)
    return Score(len(y), float(loss) / len(y), float(hits / predictions))


def _device(params: Tree) -> torch.device:
    device: torch.device = next(iter(params.values())).device
    return device
