"""Losses of the user's own: functions of outputs and targets."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from fedrepro.engine.task import Task, by_sample
from fedrepro.support.copies import copied
from fedrepro.support.errors import UserError, bad_value

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class OwnLoss:
    """A loss in the form of :attr:`fedrepro.engine.task.Task.losses`.

    A function that returns a mean has no value for one sample: its mean stands for each.

    Attributes:
        function: (outputs, targets) -> losses [n], [n, ...], or their mean.
        task: whose outputs and targets the function gets.
    """

    function: Loss
    task: Task

    def __call__(self, outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
        losses = self.function(*_alike(self.task, outputs, targets))
        if losses.ndim:
            losses = by_sample(losses)
            return losses.mean() if reduction == "mean" else losses
        return losses if reduction == "mean" else losses.expand(len(targets))


def _alike(task: Task, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs and targets of one shape, where the task compares them as numbers."""
    if task.name == "binary":
        return outputs.squeeze(-1), targets.to(outputs.dtype)
    return task.shaped(outputs, targets), targets


def with_loss(task: Task, name: str, function: Loss, device: str) -> Task:
    """The task with a loss of the user's own.

    A function of PyTorch, or one with its keyword ``reduction``, is asked for each sample's loss.

    Raises:
        UserError: for a sum over samples, and for parameters, which nothing would train.
    """
    if isinstance(function, nn.Module):
        if any(leaf.requires_grad for leaf in function.parameters()):
            raise UserError(f"loss {name}: has parameters to train: expected a function without")
        function = copied(function).to(device)
        reduction: Any = getattr(function, "reduction", None)
        weighted = getattr(function, "weight", None) is not None
        if reduction == "sum":
            raise bad_value(f"loss {name}", "reduction", "sum", "'mean' or 'none'")
        if reduction == "mean" and not weighted:
            vars(function)["reduction"] = "none"
    elif _averages_plainly(function):
        function = cast(Loss, partial(cast(Any, function), reduction="none"))
    return task._replace(losses=OwnLoss(function, task))


def _averages_plainly(function: Loss) -> bool:
    """Whether a function has a ``reduction`` whose default is the plain mean."""
    try:
        named = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    averages = "reduction" in named and named["reduction"].default == "mean"
    return averages and ("weight" not in named or named["weight"].default is None)


def refuse_unfit(task: Task, name: str, outputs: Tensor, targets: Tensor, stacked: bool) -> None:
    """Try a loss on a few samples.

    Args:
        outputs: of the model for these samples.
        stacked: whether clients run side by side, in padded mini-batches.

    Raises:
        UserError: if it fails, returns neither losses nor their mean, or no gradient follows from
            it; and for a mean where each sample's loss is needed.
    """
    where, function = f"loss {name}", getattr(task.losses, "function")  # noqa: B009  # an OwnLoss
    outputs = outputs.detach().requires_grad_()
    try:
        with torch.enable_grad():
            losses = function(*_alike(task, outputs, targets))
    except Exception as error:  # of the user's code
        shapes = f"outputs {[*outputs.shape]} and targets {[*targets.shape]}"
        raise UserError(f"{where}: {shapes}: {type(error).__name__}: {error}") from error
    wanted = f"a loss for each sample [{len(targets)}], or their mean"
    if not isinstance(losses, Tensor):
        raise bad_value(where, "result", type(losses).__name__, wanted)
    if losses.ndim and len(losses) != len(targets):
        raise bad_value(where, "result", [*losses.shape], wanted)
    if not losses.requires_grad:
        raise UserError(f"{where}: no gradient follows from it: compute with tensors only")
    if stacked and not losses.ndim:
        wanted = "'sequential' or 'parallel', or a loss that returns one number per sample"
        raise bad_value(where, "executor", "vectorised", wanted)
