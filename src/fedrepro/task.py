"""What is learned: the loss of a model's output and when a prediction counts as right."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from fedrepro.tree import Tree


class Task(NamedTuple):
    """A learning task.

    Attributes:
        name: "classification" or "binary".
        losses: (logits [n, outputs], targets [n], reduction) -> losses [n] for the reduction
            "none", their mean for "mean".
        hits: (logits, targets) -> whether each sample is predicted rightly [n], bool.
    """

    name: str
    losses: Callable[[Tensor, Tensor, str], Tensor]
    hits: Callable[[Tensor, Tensor], Tensor]

    def loss(self, logits: Tensor, batch: Tree) -> Tensor:
        """The mean loss over the real samples of a mini-batch.

        A padded mini-batch (of clients that run side by side) marks its real samples with 1 in
        ``batch["real"]`` [n].
        """
        if "real" not in batch:
            return self.losses(logits, batch["y"], "mean")
        each = self.losses(logits, batch["y"], "none")
        real: Tensor = batch["real"]
        return (each * real).sum() / real.sum().clamp(min=1)


def _cross_entropy(logits: Tensor, targets: Tensor, reduction: str) -> Tensor:
    return functional.cross_entropy(logits, targets, reduction=reduction)


def _binary_cross_entropy(logits: Tensor, targets: Tensor, reduction: str) -> Tensor:
    return functional.binary_cross_entropy_with_logits(
        logits.squeeze(-1), targets.to(logits.dtype), reduction=reduction
    )


CLASSIFICATION = Task(
    "classification", _cross_entropy, lambda logits, targets: logits.argmax(-1) == targets
)
BINARY = Task(
    "binary",
    _binary_cross_entropy,
    lambda logits, targets: (logits.squeeze(-1) > 0) == targets.to(torch.bool),
)
TASKS = {task.name: task for task in (CLASSIFICATION, BINARY)}
