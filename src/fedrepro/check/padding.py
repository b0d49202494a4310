"""Compare a client's round side by side with its round alone: padding may not count."""

import torch
from torch import Tensor

from fedrepro.check.contract import Mistake
from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.executors import Outcome, Training, sequential
from fedrepro.engine.method import METRICS
from fedrepro.engine.tree import Tree

NEAR = 1e-3  # of its norm: by how much an update side by side may differ from that alone
# Relative noise on what a client receives, and by how much a difference exceeds its effect.
SHAKEN, LARGE = 1e-6, 10
PADDED = "if `loss` takes a mean of its own, it must leave out padding, which batch['real'] marks"


def most_padded(ctx: Context) -> int:
    """The place of the client with the fewest samples; of those with a short mini-batch, if any."""
    sizes = ctx.sizes.tolist()
    return min(range(len(sizes)), key=lambda at: (sizes[at] % ctx.batch_size == 0, sizes[at]))


def refuse_padding(training: Training, place: int, alone: Outcome, together: Outcome) -> None:
    """Raise Mistake if a client's update or state is another one side by side.

    Not for a training that turns rounding into such differences, as with a rate that is too high.
    """
    one = _numbers(tree.take(alone[0], 0), alone[1][0])
    other = _numbers(tree.take(together[0], place), together[1][place])
    far = {name: away for name in one if not (away := _away(one[name], other[name])) <= NEAR}
    if not far or not all(bool(numbers.isfinite().all()) for numbers in one.values()):
        return
    rng = torch.Generator().manual_seed(0)

    def noisy(leaf: Tensor) -> Tensor:
        noise = torch.randn(leaf.shape, generator=rng).to(leaf)
        return leaf * (1 + SHAKEN * noise) if leaf.is_floating_point() else leaf

    states, steps = [tree.copy(training.client_states[place])], [training.steps[place]]
    message = tree.apply(noisy, training.message)
    shaken = sequential(training._replace(message=message, client_states=states, steps=steps))
    third = _numbers(tree.take(shaken[0], 0), shaken[1][0])
    for name, away in far.items():
        if not away <= LARGE * _away(one[name], third[name]):
            what = f"{name} of a client is another one side by side, by {away:.1%}"
            raise Mistake(what, f"{PADDED}, or use executor 'sequential'")


def _numbers(update: Tree, state: Tree) -> dict[str, Tensor]:
    """The trees that a client returns, each as one vector, without those that are only recorded."""
    trees = {name: branch for name, branch in update.items() if name != METRICS}
    vectors = {name: tree.leaves(each) for name, each in (trees | {"the state": state}).items()}
    return {
        name: torch.cat([leaf.double().flatten() for leaf in leaves])
        for name, leaves in vectors.items()
        if leaves
    }


def _away(one: Tensor, other: Tensor) -> float:
    """The norm of a difference by that of ``one``, but for the hundredth of it that is largest.

    Where updates are quantised, rounding may move a single number by far.
    """
    away = (one - other).abs()
    least = away.sort().values[: len(away) - len(away) // 100] if len(away) >= 100 else away
    norm = float(one.norm())
    return float(least.norm()) / norm if norm else float(least.norm() > 0)
