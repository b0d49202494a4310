"""Losses of the user's own: functions of outputs and targets."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from torch import Tensor, nn

from fedrepro.engine.task import Task, by_sample
from fedrepro.support.copies import copied
from fedrepro.support.errors import bad_value, refusal

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


def with_loss(task: Task, name: str, function: Loss, device: str) -> Task:
    """The task with a loss of the user's own.

    A function of PyTorch, or one with its keyword ``reduction``, is asked for each sample's loss.

    Raises:
        UserError: for a sum over samples, and for parameters, which nothing would train.
    """
    where = f"loss {name}"
    if isinstance(function, nn.Module):
        if any(leaf.requires_grad for leaf in function.parameters()):
            raise refusal(where, "has parameters to train: expected a function without")
        function = copied(function).to(device)
        reduction: Any = getattr(function, "reduction", None)
        plain = getattr(function, "weight", None) is None and _counts_all(vars(function))
        if reduction == "sum":
            raise bad_value(where, "reduction", "sum", "'mean' or 'none'")
        if reduction == "mean" and plain:
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
    defaults = {key: parameter.default for key, parameter in named.items()}
    averages = defaults.get("reduction") == "mean" and _counts_all(defaults)
    return bool(averages and defaults.get("weight") is None)


def _counts_all(options: Mapping[str, Any]) -> bool:
    """Whether PyTorch's mean is over all samples, not those of a class less."""
    return bool(options.get("ignore_index", -1) < 0)  # no class has such a number
