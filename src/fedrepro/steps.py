"""A client's mini-batches of one round, in order.

A client that runs alone gets :class:`Steps`: views of its shuffled data, the last mini-batch of an
epoch as short as it comes. Clients that run side by side get one tree of tensors
[steps, batch, ...], padded to the longest of them, in which ``real`` [steps, batch] is 1 for real
samples; every epoch is padded by itself, so that epochs stay aligned. The functions at the end
serve both, and a method needs no more.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedrepro import tree
from fedrepro.tree import Tree


@dataclass(frozen=True)
class Steps:
    """Mini-batches ``{"x": [b, ...], "y": [b], **drawn}`` of a client that runs alone.

    Attributes:
        x, y: the client's samples.
        orders: one permutation of them per epoch.
        batch_size: samples per mini-batch; the last of an epoch may have fewer.
        drawn: what :meth:`Method.draw` drew, leaves [all steps of the round, ...].
        first: index of this object's first step in ``drawn``.
    """

    x: Tensor
    y: Tensor
    orders: list[Tensor]
    batch_size: int
    drawn: Tree
    first: int = 0

    @property
    def per_epoch(self) -> int:
        return steps_per_epoch(len(self.y), self.batch_size)

    def __len__(self) -> int:
        return self.per_epoch * len(self.orders)

    def __iter__(self) -> Iterator[Tree]:
        step = self.first
        for order in self.orders:
            inputs = self.x[order].split(self.batch_size)
            targets = self.y[order].split(self.batch_size)
            for x, y in zip(inputs, targets, strict=True):
                yield {"x": x, "y": y, **tree.take(self.drawn, step)}
                step += 1


def steps_per_epoch(samples: int, batch_size: int) -> int:
    return -(-samples // batch_size)


def shuffle(samples: int, epochs: int, rng: torch.Generator) -> list[Tensor]:
    """One permutation per epoch."""
    return [torch.randperm(samples, generator=rng) for _ in range(epochs)]


def pad(steps: Steps, per_epoch: int) -> Tree:
    """``steps`` as one tree [epochs * per_epoch, batch, ...] for running side by side."""
    samples, width = len(steps.y), steps.batch_size
    room = per_epoch * width
    index = torch.zeros(len(steps.orders), room, dtype=torch.long)
    real = torch.zeros(len(steps.orders), room, dtype=torch.float64)
    for epoch, order in enumerate(steps.orders):
        index[epoch, :samples] = order
        real[epoch, :samples] = 1
    index = index.view(-1, width).to(steps.x.device)
    kind = steps.x.dtype if steps.x.is_floating_point() else torch.get_default_dtype()
    position = torch.arange(len(index))
    number, within = position // per_epoch, position % per_epoch
    # A dead step is given the draw of the last live one: any value will do.
    source = number * steps.per_epoch + within.clamp(max=steps.per_epoch - 1)
    return {
        "x": steps.x[index],
        "y": steps.y[index],
        "real": real.view(-1, width).to(steps.x.device, kind),
        **tree.apply(lambda leaf: leaf[source.to(leaf.device)], steps.drawn),
    }


def count(steps: Steps | Tree) -> Tensor | int:
    """How many real steps there are: an int, or side by side a scalar tensor for this client."""
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
            first=steps.first + first * steps.per_epoch,
        )
    per_epoch = steps["real"].shape[0] // epochs
    return tree.apply(lambda leaf: leaf[first * per_epoch : last * per_epoch], steps)
