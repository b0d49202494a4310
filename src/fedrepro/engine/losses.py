"""Losses of the user's own: functions of outputs and targets."""

import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from fedrepro.engine.task import Task, by_sample
from fedrepro.support.copies import copied
from fedrepro.support.errors import bad_value, refusal

Loss = Callable[[Tensor, Tensor], Tensor]
MOST_TRIED = 2 * 10**8  # outputs, in a trial of a loss


@dataclass(frozen=True)
class OwnLoss:
    """A loss in the form of :attr:`fedrepro.engine.task.Task.losses`.

    A function that returns a mean has no value for one sample: its mean stands for each.

    Attributes:
        function: (outputs, targets) -> losses [n], [n, ...], or their mean.
        task: whose outputs and targets the function gets.
        whole: as the user gave it, if that returns its own mean and ``function`` does not.
    """

    function: Loss
    task: Task
    whole: Loss | None = None

    def __call__(self, outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
        # It may change what it gets, and others use the same outputs: measures, and methods' terms.
        losses = self.function(*aligned(self.task, outputs.clone(), targets))
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
    whole = None if each is function else function
    return task._replace(losses=OwnLoss(each, task, whole))


@torch.no_grad()
def with_own_mean(task: Task, outputs: Tensor, targets: Tensor, *tests: Tensor) -> Task:
    """The task whose loss is only known as its own mean, if that is not the plain mean.

    One over what is not missing, say, or with weights. Where no plain mean is seen, as in numbers
    that are not finite, the function's own counts.

    Args:
        outputs: the model's for some samples [m, ...].
        targets: of all training samples, which are tried with these outputs, m at a time, and with
            others: a mean over samples with a loss above zero is the plain one at the start. Also
            the first ones of m: balanced weights add up to the number of all samples only.
        tests: the same of those that the loss is only computed of.
    """
    loss = cast(OwnLoss, task.losses)
    # A copy: what a module counts is not counted in a trial.
    own, each = (
        OwnLoss(copied(one) if isinstance(one, nn.Module) else one, task)
        for one in (loss.whole or loss.function, loss.function)
    )
    chunks = targets.split(len(outputs))
    if loss.whole is None:
        with suppress(Exception):  # of the user's code
            tried = each.function(*aligned(task, outputs[: len(chunks[0])], chunks[0]))
            return task._replace(of_mean=not tried.ndim)
        return task
    step = -(-len(chunks) * outputs.numel() // MOST_TRIED)
    some = chunks[::step]
    others = [y for test in tests for y in test.split(len(outputs))[::step]]
    others += [chunks[0][: 2**power] for power in range(len(chunks[0]).bit_length())]
    for number, y in enumerate((*some, *others)):
        of_model, sure = outputs[: len(y)], number < len(some)
        drawn = _drawn(task, of_model, y)
        for tried in (of_model, drawn, drawn.sigmoid()):  # some losses take probabilities
            try:
                mean, losses = (
                    one(tried, y, kind).detach() for one, kind in ((own, "mean"), (each, "none"))
                )
                least = 1e-6 * float(losses.abs().mean())
                known = bool(mean.isfinite() & losses.isfinite().all())
                known = known or (sure and tried is of_model)
                alike = torch.allclose(mean, losses.mean(), rtol=1e-4, atol=least)
            except Exception:  # of the user's code
                known, alike = sure and tried is of_model, False
            if known and not alike:
                return task._replace(losses=OwnLoss(loss.whole, task), of_mean=True)
    return task


def _drawn(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """Outputs that are right for some samples and wrong for others, by distances of all sizes."""
    rng = torch.Generator().manual_seed(0)
    shape = len(outputs), *[1] * (outputs.ndim - 1)
    distance = (12 * torch.rand(shape, generator=rng) - 4).to(outputs)
    noise = torch.rand(outputs.shape, generator=rng).to(outputs)
    if task.name in ("classification", "next_word"):
        right = targets.clamp(0, outputs.shape[-1] - 1).unsqueeze(-1) == torch.arange(
            outputs.shape[-1], device=outputs.device
        )
        return distance * right + noise
    numbers = targets.reshape(outputs.shape).to(outputs)
    if task.name == "regression":
        return numbers + distance * noise * (numbers.std(correction=0) or 1.0)
    return distance * (2 * numbers - 1) + noise


def _averages(function: Loss) -> bool:
    """Return True for a function with a keyword ``reduction`` whose default is the mean."""
    try:
        named = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return "reduction" in named and bool(named["reduction"].default == "mean")
