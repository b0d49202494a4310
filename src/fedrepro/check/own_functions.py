"""Try a loss, and a measure, of the user's own before they give a wrong number.

A loss (:mod:`fedrepro.engine.losses`) is tried on a few samples; a measure is tried on the first
samples that it is asked for.
"""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrepro.check.traces import changes, generators, marks, strangers
from fedrepro.engine.losses import Loss, aligned
from fedrepro.engine.task import OfOutputs, Task
from fedrepro.support.errors import bad_value, refusal

FEW = 16  # samples at most on which a sum is told from a mean


@torch.enable_grad()
def refuse_unfit(task: Task, name: str, outputs: Tensor, targets: Tensor, stacked: bool) -> None:
    """Try a loss on a few samples, before it produces a wrong number.

    Args:
        outputs: of the model for these samples.
        stacked: whether clients run side by side, in padded mini-batches.

    Raises:
        UserError: if it fails, draws random numbers, keeps something from call to call, changes
            targets, returns neither losses nor their mean (a sum, say), or no gradient follows from
            it; and for a mean where each sample's loss is needed.
    """
    where, function = f"loss {name}", getattr(task.losses, "function")  # noqa: B009  # an OwnLoss
    outputs = outputs.detach().requires_grad_()
    before, followed = (generators(targets.device), marks(targets)), list[list[Tensor]]()

    def called(outputs: Tensor, targets: Tensor) -> Any:
        try:
            losses = function(*aligned(task, outputs.clone(), targets))
            followed.append(strangers(losses, [outputs, targets]))
            return losses
        except Exception as error:  # of the user's code
            shapes = f"outputs {[*outputs.shape]} and targets {[*targets.shape]}"
            raise refusal(where, f"{shapes}: {type(error).__name__}: {error}") from error

    losses = called(outputs, targets)
    if drawn := changes(before[0], generators(targets.device)):
        why = f"draws random numbers ({', '.join(drawn)}), which no seed would repeat"
        raise refusal(where, f"{why}: draw in the model, in training")
    if marks(targets) != before[1]:
        raise refusal(where, "changed its targets in place: return new tensors instead")
    wanted = f"a loss for each sample [{len(targets)}], or their mean"
    if not isinstance(losses, Tensor):
        raise bad_value(where, "result", type(losses).__name__, wanted)
    if not losses.is_floating_point():
        raise bad_value(where, "result", str(losses.dtype), "real numbers")
    if not losses.ndim and losses and len(targets) <= FEW:
        double = (each.repeat_interleave(2, 0) for each in (outputs, targets))
        if torch.allclose(called(*double), 2 * losses):
            raise bad_value(where, "result", "a sum over samples", wanted)
    again = called(outputs, targets)
    rounding = 0.0 if targets.device.type == "cpu" else 1e-5
    if not torch.allclose(again, losses, rtol=rounding, atol=0, equal_nan=True):
        why = "gives another value for the same outputs and targets when it is called again"
        raise refusal(where, f"{why}: keep nothing from call to call, which clients would share")
    for leaf in (leaf for leaf in followed[0] if id(leaf) in map(id, followed[-1])):
        why = f"depends on a tensor {[*leaf.shape]} that requires gradients and that nothing trains"
        remedy = "a Method's `loss` gets its `params`; of others, requires_grad_(False)"
        raise refusal(where, f"{why}: a run trains a copy of its model: {remedy}", "gradient")
    if losses.ndim and len(losses) != len(targets):
        raise bad_value(where, "result", [*losses.shape], wanted)
    if not losses.requires_grad:
        raise refusal(where, "no gradient follows from it: compute with tensors only")
    if stacked and not (losses.ndim and _of_each(called, outputs, targets, losses)):
        wanted = "'sequential' or 'parallel', or a loss that returns each sample's own number"
        raise bad_value(where, "executor", "vectorised", wanted)


def _of_each(called: Loss, outputs: Tensor, targets: Tensor, losses: Tensor) -> bool:
    """Return True if the first sample's loss is the same beside others, such as padding."""
    first = [0] * len(targets)
    beside = called(outputs[first], targets[first])
    return torch.allclose(beside[0], losses[0], rtol=1e-3, equal_nan=True)


def repeatable(name: str, measure: OfOutputs) -> OfOutputs:
    """The measure, which refuses to draw random numbers, or to add up what it is given.

    Its first value is computed twice, and once more after its second one.
    """
    first: list[tuple[NDArray[Any], NDArray[Any], float]] = []
    tried = 0

    def checked(outputs: NDArray[Any], targets: NDArray[Any]) -> float:
        nonlocal tried
        tried += 1
        if tried > 2:
            return measure(outputs, targets)
        before = generators(torch.device("cpu"))
        value = measure(outputs, targets)
        drawn = changes(before, generators(torch.device("cpu")))
        first.append((outputs.copy(), targets.copy(), value))
        *given, wanted = first[0]
        again = measure(*given)
        if drawn or not (wanted == again or (wanted != wanted and again != again)):
            why = (
                "gives other values for the same outputs in another call: draw from a generator "
                "that it makes with a fixed seed in each call, and keep nothing from call to call"
            )
            raise refusal(f"measure {name}", f"of_outputs: {why}", "of_outputs")
        if tried == 2:
            first.clear()
        return value

    return checked
