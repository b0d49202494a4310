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
from fedrepro.support.errors import bad_value, refusal
from fedrepro.support.rng import stream

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
        losses = self.function(*aligned(self.task, outputs, targets))
        if losses.ndim:
            if len(losses) != len(targets):  # of the hardest samples, say
                wanted = f"a loss for each sample [{len(targets)}], or their mean"
                raise bad_value("loss", "result", [*losses.shape], wanted)
            losses = by_sample(losses)
            return losses.mean() if reduction == "mean" else losses
        return losses if reduction == "mean" else losses.expand(len(targets))


def aligned(task: Task, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs and targets of one shape, where the task compares them as numbers."""
    if task.name == "binary":
        return outputs.squeeze(-1), targets.to(outputs.dtype)
    return task.shaped(outputs, targets), targets


def with_loss(
    task: Task, name: str, function: Loss, device: str, targets: Tensor, outputs: int
) -> Task:
    """The task with a loss of the user's own.

    A function of PyTorch, or one with its keyword ``reduction``, is asked for each sample's loss,
    if its own mean is the plain mean of these.

    Args:
        targets: of the training samples, on which that is tried.
        outputs: of the model for one sample.

    Raises:
        UserError: for a sum over samples, and for parameters, which nothing would train.
    """
    where, each = f"loss {name}", function
    if isinstance(function, nn.Module):
        if any(leaf.requires_grad for leaf in function.parameters()):
            raise refusal(where, "has parameters to train: expected a function without")
        try:
            function = each = copied(function).to(device)
        except (TypeError, RuntimeError) as error:
            why = f"can't be copied ({error}): expected a module without locks, files, generators"
            raise refusal(where, why) from error
        reduction: Any = getattr(function, "reduction", None)
        if reduction == "sum":
            raise bad_value(where, "reduction", "sum", "'mean' or 'none'")
        if reduction == "mean":
            each = copied(function)
            vars(each)["reduction"] = "none"
    elif _averages(function):
        each = cast(Loss, partial(cast(Any, function), reduction="none"))
    if each is not function and not _is_plain(OwnLoss(function, task), each, targets, outputs):
        each = function
    return task._replace(losses=OwnLoss(each, task))


def _is_plain(own: OwnLoss, each: Loss, targets: Tensor, outputs: int) -> bool:
    """Whether a function's own mean is the plain mean of what it returns for each sample.

    One over what is not masked, or with weights, differs with any outputs.
    """
    rng, task = stream(0, "loss"), own.task
    for y in targets.split(1000):
        shape = y.shape if task.alike else (*y.shape, outputs)
        made = torch.randn(shape, generator=rng).to(y.device)
        try:
            mean, plain = (OwnLoss(loss, task)(made, y, "mean") for loss in (own.function, each))
        except Exception:  # of the user's code, which is tried with the model's outputs later
            return False
        if not torch.allclose(mean, plain, rtol=1e-4, equal_nan=True):
            return False
    return True


def _averages(function: Loss) -> bool:
    """Whether a function has a keyword ``reduction`` whose default is the mean."""
    try:
        named = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return "reduction" in named and bool(named["reduction"].default == "mean")
