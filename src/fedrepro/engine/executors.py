"""How the clients of a round are run: one after another, in several processes, or side by side.

A method cannot tell which. The first two give the same bits, side by side agrees with them to 1e-9
in float64. Which one serves a run is fixed by a table and the run's size, never by a timing,
because a timing would make a result depend on noise.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch.func import vmap

from fedrepro.engine import internals, tree
from fedrepro.engine.context import Context
from fedrepro.engine.method import Method
from fedrepro.engine.processes import Stacked, can_distribute, distribute
from fedrepro.engine.steps import Steps, side_by_side
from fedrepro.engine.tree import Tree
from fedrepro.support.errors import UserError, bad_value

# Up to so many steps of a client, of a model with so few parameters, are compiled into one kernel:
# there the time goes into calling kernels, not into arithmetic.
UNROLLED, UNROLLED_PARAMETERS = 16, 20_000

# (reports with leaves [cohort, ...], the cohort's states)
Outcome = tuple[Tree, list[Tree]]
Executor = Callable[[Method, Context, Tree, Sequence[Tree], Sequence[Steps]], Outcome]


def sequential(
    method: Method,
    ctx: Context,
    message: Tree,
    client_states: Sequence[Tree],
    steps: Sequence[Steps],
) -> Outcome:
    """One client after another, each moved in place."""
    updates: Any = None
    after: list[Tree] = []
    for place, (client_state, each) in enumerate(zip(client_states, steps, strict=True)):
        update, moved = _local(method, ctx, message, client_state, each)
        if updates is None:
            updates = tree.apply(lambda leaf: leaf.new_empty(len(steps), *leaf.shape), update)
        # Copied to its place at once: all reports twice would be a lot of memory.
        for stacked, leaf in zip(tree.leaves(updates), tree.leaves(update), strict=True):
            stacked[place] = leaf
        after.append(moved)
    return updates, after


def _local(
    method: Method, ctx: Context, message: Tree, client_state: Tree, steps: Steps
) -> tuple[Tree, Tree]:
    with ctx.net.drawing_from(steps.layers_seed):
        update, after = method.client_update(ctx, message, client_state, steps)
    return update, tree.contiguous(after)  # as it is when it comes from a file


@dataclass(frozen=True)
class Parallel:
    """As :func:`sequential` and with the same bits, by several processes.

    Clients with many samples go first, so that no process is left alone with one at the end.

    Raises:
        UserError: what a client's training raised, or when a process was killed.
    """

    workers: int

    def __call__(
        self,
        method: Method,
        ctx: Context,
        message: Tree,
        client_states: Sequence[Tree],
        steps: Sequence[Steps],
    ) -> Outcome:
        updates, after = Stacked(len(steps)), Stacked(len(steps))

        def train(place: int) -> None:
            update, moved = _local(method, ctx, message, client_states[place], steps[place])
            updates.put(place, update)
            after.put(place, moved)

        with updates, after:
            distribute(
                train, ctx.sizes.argsort(descending=True, stable=True).tolist(), self.workers
            )
        return updates.tree, _taken_apart(after.tree, len(client_states))


def eager(
    method: Method,
    ctx: Context,
    message: Tree,
    client_states: Sequence[Tree],
    steps: Sequence[Steps],
) -> Outcome:
    """All clients at once under ``torch.func.vmap``, padded to the one with the most samples.

    Raises:
        UserError: for a model with BatchNorm: the padding of a short mini-batch would count in its
            statistics, and vmap can't update running ones. For one with dropout: what a client
            draws must not depend on who else is in its cohort.
    """
    return _stacked(_every_client, method, ctx, message, client_states, steps)


def vectorised(
    method: Method,
    ctx: Context,
    message: Tree,
    client_states: Sequence[Tree],
    steps: Sequence[Steps],
) -> Outcome:
    """As :func:`eager`, compiled: whole rounds where they are short, else one step of all clients.

    Raises:
        UserError: without a C++ compiler, which torch.compile needs on a CPU.
    """
    if not can_compile(ctx.sizes.device.type):
        raise UserError(
            "executor: 'vectorised': expected a C++ compiler (c++ or g++) on the PATH; "
            "install one or use 'sequential'"
        )
    steps = list(steps)
    longest = max(len(each) for each in steps)
    # Of a model of which only a part travels, that part.
    moving = message.get("params", ctx.initial)
    if longest <= UNROLLED and tree.numel(moving) <= UNROLLED_PARAMETERS:
        # The rate as a tensor: a number would be compiled in, and it changes every round.
        ctx = replace(ctx, mode="unrolled", lr=torch.tensor(ctx.lr, dtype=torch.float64))
        return _stacked(_compiled(), method, ctx, message, client_states, steps)
    return _stacked(
        _every_client, method, replace(ctx, mode="compiled"), message, client_states, steps
    )


def _stacked(
    run: Callable[[Method, Context, Tree, Tree, Tree], tuple[Tree, Tree]],
    method: Method,
    ctx: Context,
    message: Tree,
    client_states: Sequence[Tree],
    steps: Sequence[Steps],
) -> Outcome:
    if ctx.net.mixes_samples:
        raise UserError(
            "executor: 'vectorised': expected a model without BatchNorm, whose statistics "
            "padding would change; use 'sequential', or a model with GroupNorm"
        )
    if ctx.net.draws:
        raise UserError(
            "executor: 'vectorised': expected a model without dropout or stochastic depth, which "
            "clients side by side would have to share; use 'sequential'"
        )
    if ctx.net.moves_buffers:
        raise UserError(
            "executor: 'vectorised': expected a model that keeps nothing between mini-batches, "
            "not power iterations; use 'sequential', or an exact spectral norm"
        )
    if ctx.net.precision:
        raise UserError(
            "executor: 'vectorised': expected a setting without `precision`; use 'sequential'"
        )
    updates, after = run(method, ctx, message, tree.stack(client_states), side_by_side(list(steps)))
    return updates, _taken_apart(after, len(client_states))


def _taken_apart(after: Tree, cohort: int) -> list[Tree]:
    """The states of ``cohort`` clients in ``after``, leaves [cohort, ...]."""
    # Copied: a view would keep the states of the whole cohort in memory as long as itself.
    return [tree.copy(tree.take(after, index)) for index in range(cohort)]


def _every_client(
    method: Method, ctx: Context, message: Tree, client_states: Tree, steps: Tree
) -> tuple[Tree, Tree]:
    """``client_update`` of all clients.

    The leaves of ``client_states`` and ``steps`` are [clients, ...].
    """
    return vmap(lambda client_state, each: method.client_update(ctx, message, client_state, each))(
        client_states, steps
    )


@lru_cache
def _compiled() -> Callable[[Method, Context, Tree, Tree, Tree], tuple[Tree, Tree]]:
    # One compilation for every number of steps that a round's longest client can have.
    return internals.compiled(_every_client, 2 * UNROLLED)


def can_compile(device: str) -> bool:
    """Whether there is what torch.compile needs: a C++ compiler, for a CPU."""
    return device != "cpu" or any(shutil.which(name) for name in ("c++", "g++"))


EXECUTORS: dict[str, Callable[[int], Executor]] = {  # workers -> executor
    "sequential": lambda workers: sequential,
    "parallel": Parallel,
    "vectorised": lambda workers: vectorised,
}

# Client steps in a whole run from which stacking clients pays for compiling (about 20 s of CPU), by
# the model's family, the device and :func:`kind_of_steps`; measured, see docs/benchmarks.md. What
# is missing loses by stacking, or gains too little: convolutions on a CPU, and large plain steps
# with momentum, which a client that runs alone takes in one pass over its parameters.
PAYS_FROM = {
    ("linear", "cpu", "plain"): 300_000,
    ("linear", "cpu", "momentum"): 300_000,
    ("linear", "cpu", "own"): 300_000,
    ("mlp", "cpu", "plain"): 500_000,
    ("mlp", "cpu", "own"): 150_000,
    **{
        (family, "cuda", kind): 20_000
        for family in ("linear", "mlp")
        for kind in ("plain", "momentum", "own")
    },
}

# Client steps in a round from which a second process pays for being forked (about 20 ms).
DEALT_FROM = {"linear": 400, "mlp": 200, "convolutional": 20, "recurrent": 10, "transformer": 2}


def kind_of_steps(method: Method, momentum: float) -> str:
    """What clients' steps take: "plain" as FedAvg's, with "momentum", or the method's "own".

    Args:
        momentum: of the clients' optimizer.
    """
    inmost = type(method.layers()[-1])  # what it wraps takes the steps
    hooks = ("loss", "gradient", "client_update")
    if any(getattr(inmost, hook) is not getattr(Method, hook) for hook in hooks):
        return "own"
    return "momentum" if momentum else "plain"


def choose(
    wanted: str,
    family: str,
    device: str,
    kind: str,
    client_steps: int,
    rounds: int = 1,
    threads: int = 1,
) -> str:
    """The executor of a run.

    Args:
        wanted: "auto", or an executor by name.
        family: of the model (:class:`fedrepro.models.registry.ModelEntry`).
        device: "cpu" or "cuda".
        kind: of steps (:func:`kind_of_steps`).
        client_steps: local steps of all clients over the whole run.
        rounds: of the run.
        threads: how many the run may use.

    Raises:
        UserError: if there is no executor called ``wanted``, or it can't be had here.
    """
    if wanted == "auto":
        threshold = PAYS_FROM.get((family, device, kind))
        if threshold is not None and client_steps >= threshold and can_compile(device):
            return "vectorised"
        distributed = threads > 1 and client_steps / rounds >= DEALT_FROM[family]
        return "parallel" if distributed and device == "cpu" and can_distribute() else "sequential"
    if wanted not in EXECUTORS:
        names = ["auto", *EXECUTORS]
        raise bad_value("executor", "name", wanted, f"one of {', '.join(names)}", names)
    if wanted == "parallel" and (device != "cpu" or not can_distribute()):
        raise UserError("executor: 'parallel': expected Linux and device cpu; use 'sequential'")
    return wanted
