"""A client's mini-batches of one round, in order.

A client that runs alone gets :class:`Steps`: views of its shuffled samples, in which the last
mini-batch of an epoch may be short. Clients that run side by side get one tree of tensors
[steps, batch, ...], padded to the longest client; ``real`` [steps, batch] is 1 for real samples.
Each epoch is padded separately, so that epochs stay aligned. The functions at the end of this
module work on both forms, and methods need nothing else.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.tree import Tree
from fedrepro.support.errors import bad_value


class Samples(Protocol):
    """Training samples of all clients, by row."""

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs [*rows.shape, ...] and targets [*rows.shape] of some rows."""


@dataclass(frozen=True)
class Steps:
    """Mini-batches ``{"x": [b, ...], "y": [b], **drawn}`` of a client that runs alone.

    Attributes:
        samples: where to read samples.
        orders: the rows of the client's samples, shuffled, one order per epoch.
        batch_size: samples per mini-batch; the last of an epoch may have fewer.
        drawn: what :meth:`Method.sample_steps` drew, leaves [all steps of the round, ...].
        first: index of this object's first step in ``drawn``.
        layers_seed: seed of the model's random layers (dropout) in the client's round.
        flips: which samples are mirrored, one mask per order; empty: none.
        redraws: rows -> inputs drawn anew in place of the stored ones, one function per order;
            empty: none.
    """

    samples: Samples
    orders: list[Tensor]
    batch_size: int
    drawn: Tree
    first: int = 0
    layers_seed: int = 0
    flips: list[Tensor] = field(default_factory=list)
    redraws: list[Callable[[Tensor], Tensor]] = field(default_factory=list)

    @property
    def per_epoch(self) -> int:
        return steps_per_epoch(len(self.orders[0]), self.batch_size)

    def __len__(self) -> int:
        return self.per_epoch * len(self.orders)

    def __iter__(self) -> Iterator[Tree]:
        step = self.first
        for epoch, order in enumerate(self.orders):
            inputs, targets = self.samples.at(order)
            if self.redraws:
                inputs = self.redraws[epoch](order)
            if self.flips:
                inputs = mirrored(inputs, self.flips[epoch])
            pairs = zip(inputs.split(self.batch_size), targets.split(self.batch_size), strict=True)
            for x, y in pairs:
                yield {"x": x, "y": y, **tree.take(self.drawn, step)}
                step += 1


def mirrored(images: Tensor, mask: Tensor) -> Tensor:
    """``images`` [..., channels, height, width], mirrored horizontally where ``mask`` [...]."""
    return torch.where(mask[..., None, None, None], images.flip(-1), images)


def steps_per_epoch(samples: int, batch_size: int) -> int:
    return -(-samples // batch_size)


def shuffle(rows: Tensor, epochs: int, rng: torch.Generator) -> list[Tensor]:
    """``rows`` [n] in a new order for every epoch; ``rng`` is a CPU generator."""
    orders = [torch.randperm(len(rows), generator=rng) for _ in range(epochs)]
    if rows.is_cuda:  # all in one copy
        return list(rows[sent(torch.stack(orders), rows.device)])
    return [rows[order] for order in orders]


def sent(drawn: Tensor, device: torch.device) -> Tensor:
    """A CPU's draws on ``device``; the CPU does not wait until they are there."""
    if device.type == "cuda" and drawn.device.type == "cpu":
        return drawn.pin_memory().to(device, non_blocking=True)
    return drawn.to(device)


def side_by_side(cohort: Sequence[Steps]) -> Tree:
    """The steps of several clients as one tree [clients, epochs * steps per epoch, batch, ...]."""
    first = cohort[0]
    device, width, epochs = first.orders[0].device, first.batch_size, len(first.orders)
    per_epoch = max(steps.per_epoch for steps in cohort)
    rows = torch.zeros(
        len(cohort), epochs, per_epoch * width, dtype=torch.long, device=device
    )  # fmt: skip
    for client, steps in enumerate(cohort):
        for epoch, order in enumerate(steps.orders):
            rows[client, epoch, : len(order)] = order
    sizes = torch.tensor([len(steps.orders[0]) for steps in cohort], device=device)
    real = torch.arange(rows.shape[2], device=device) < sizes[:, None, None]
    x, y = first.samples.at(rows.view(len(cohort), -1, width))
    if first.redraws:
        by_epoch = x.view(*rows.shape, *x.shape[3:])
        for client, steps in enumerate(cohort):
            for epoch, (order, redraw) in enumerate(zip(steps.orders, steps.redraws, strict=True)):
                by_epoch[client, epoch, : len(order)] = redraw(order)
    if first.flips:
        flips = torch.zeros_like(rows, dtype=torch.bool)
        for client, steps in enumerate(cohort):
            for epoch, mask in enumerate(steps.flips):
                flips[client, epoch, : len(mask)] = mask
        x = mirrored(x, flips.view(len(cohort), -1, width))
    kind = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    real = real.expand(-1, epochs, -1).reshape(len(cohort), -1, width).to(kind)
    return {"x": x, "y": y, "real": real, **_padded_draws(cohort, per_epoch)}


def _padded_draws(cohort: Sequence[Steps], per_epoch: int) -> Tree:
    if not tree.leaves(cohort[0].drawn):
        return {}
    position = torch.arange(per_epoch * len(cohort[0].orders))
    number, within = position // per_epoch, position % per_epoch

    def padded(steps: Steps) -> Tree:
        # A padded step reuses the draw of the last real one: any value will do.
        source = number * steps.per_epoch + within.clamp(max=steps.per_epoch - 1)
        return tree.apply(lambda leaf: leaf[source.to(leaf.device)], steps.drawn)

    return tree.stack([padded(steps) for steps in cohort])


def count(steps: Steps | Tree) -> Tensor | int:
    """The number of real steps: an int, or side by side a scalar tensor for this client."""
    if isinstance(steps, Steps):
        return len(steps)
    live: Tensor = steps["real"].sum(-1) > 0
    return live.sum()


def some_epochs(steps: Steps | Tree, epochs: int, first: int, last: int) -> Steps | Tree:
    """The steps of epochs ``first`` to ``last - 1`` of the round's ``epochs``."""
    if isinstance(steps, Steps):
        return replace(
            steps,
            orders=steps.orders[first:last],
            flips=steps.flips[first:last],
            redraws=steps.redraws[first:last],
            first=steps.first + first * steps.per_epoch,
        )
    per_epoch = steps["real"].shape[0] // epochs
    return tree.apply(lambda leaf: leaf[first * per_epoch : last * per_epoch], steps)


def samples_of(steps: Steps | Tree, epochs: int) -> tuple[Tensor, Tensor, Tensor]:
    """A client's inputs and targets, each sample once, and 1 for those that are not padding."""
    epoch = some_epochs(steps, epochs, 0, 1)
    if isinstance(epoch, Steps):
        x, y = epoch.samples.at(epoch.orders[0])
        x = epoch.redraws[0](epoch.orders[0]) if epoch.redraws else x
        x = mirrored(x, epoch.flips[0]) if epoch.flips else x
        return x, y, y.new_ones(len(y))
    x, y, real = (epoch[name].flatten(0, 1) for name in ("x", "y", "real"))
    return x, y, real


def epochs_of(method: str, key: str, wanted: int | None, epochs: int) -> int:
    """The epochs that a hyperparameter asks for; by default five, or the round's if fewer.

    Raises:
        UserError: if it asks for more than the round has.
    """
    enough_epochs(method, key, wanted or 1, epochs)
    return wanted or min(5, epochs)


def enough_epochs(method: str, key: str, wanted: int, epochs: int) -> None:
    """Raises UserError if a round has fewer epochs than a method's hyperparameter asks for."""
    if wanted > epochs:
        raise bad_value(
            f"method {method}", key, wanted, f"at most the local epochs of a round, {epochs}"
        )
