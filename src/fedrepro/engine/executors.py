"""Execution of a round's clients: one after another, in several processes, or side by side.

Methods cannot tell the difference. The first two give the same bits; side by side agrees with them
to 1e-9 in float64: it is another class of arithmetic (:mod:`fedrepro.provenance.arithmetic`).
"""

import os
import shutil
import sysconfig
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.func import vmap

from fedrepro.engine import internals, tree
from fedrepro.engine.context import Context
from fedrepro.engine.graphs import Graphs
from fedrepro.engine.method import Method
from fedrepro.engine.net import TOO_FEW, Net
from fedrepro.engine.processes import Stacked, can_distribute, distribute
from fedrepro.engine.steps import Steps, side_by_side
from fedrepro.engine.tree import Tree
from fedrepro.support.errors import UserError, refusal, refuse_unknown

# Up to this many steps per client, of a model with this few parameters, are compiled into one
# kernel: there the time goes into launching kernels, not into arithmetic.
UNROLLED, UNROLLED_PARAMETERS = 16, 20_000
LONGEST_REASON = 300  # characters of a compiler's output in a message


class Training(NamedTuple):
    """The local training of a round's cohort: all that an executor gets.

    Attributes:
        message: what every client receives.
        client_states, steps: each client's state and mini-batches.
    """

    method: Method
    ctx: Context
    message: Tree
    client_states: Sequence[Tree]
    steps: Sequence[Steps]


# (updates with leaves [cohort, ...], the cohort's states)
Outcome = tuple[Tree, list[Tree]]
Executor = Callable[[Training], Outcome]


def sequential(training: Training) -> Outcome:
    """One client after another, each updated in place."""
    updates: Any = None
    after: list[Tree] = []
    cohort = zip(training.client_states, training.steps, strict=True)
    for place, (client_state, batches) in enumerate(cohort):
        update, moved = _local(training, client_state, batches)
        if updates is None:
            updates = _room(update, len(training.steps))
        _put(updates, place, update)
        after.append(moved)
    return updates, after


def _room(update: Tree, cohort: int) -> Tree:
    """Memory for the updates of a cohort, leaves [cohort, ...]."""
    return tree.apply(lambda leaf: leaf.new_empty(cohort, *leaf.shape), update)


def _put(updates: Tree, place: int, update: Tree) -> None:
    # Copied to its place at once: all updates held twice would take too much memory.
    tree.fill([stacked[place] for stacked in tree.leaves(updates)], tree.leaves_as(update, updates))


@dataclass(frozen=True)
class Lanes:
    """Like :func:`sequential` and with the same bits, on several streams of a GPU.

    A small network leaves most of a GPU idle. Each lane has a stream and a copy of the network;
    Python launches client after client and waits for none. With one lane, where clients share more
    than the message (random layers, networks of the method), and for a model that cannot be copied,
    it is :func:`sequential`.
    """

    count: int
    twins: dict[Net, list[tuple[Net, Graphs]]] = field(default_factory=dict, compare=False)

    def __call__(self, training: Training) -> Outcome:
        ctx, steps = training.ctx, training.steps
        alone = self.count == 1 or not ctx.net.graphs or ctx.draws or ctx.nets
        lanes = [] if alone else self._lanes(ctx.net)
        if not lanes:
            return sequential(training)
        updates: Any = None
        after: list[Tree] = []
        # Memory of the main stream, which that would use again while a lane still reads it.
        held: list[object] = []
        for place in range(len(steps)):
            net, graphs = lanes[place % self.count]
            # Not on the lane: a new state may be drawn in the memory of the shared network.
            client_state, batches = training.client_states[place], steps[place]
            held.append((client_state, batches))
            graphs.recorder.begin()
            with graphs.recorder.inside():
                there = training._replace(ctx=replace(ctx, net=net))
                update, moved = _local(there, client_state, batches)
            if updates is None:
                updates = _room(update, len(steps))
                for _, lane in lanes:
                    lane.recorder.begin()
            with graphs.recorder.inside():
                _put(updates, place, update)
            after.append(moved)
        for _, lane in lanes:
            lane.recorder.end()
        return updates, after

    def _lanes(self, net: Net) -> list[tuple[Net, Graphs]]:
        """A copy of a network for each lane, and its recordings; none if it cannot be copied."""
        if net not in self.twins:
            assert net.graphs is not None
            try:
                twins = [net.twin() for _ in range(self.count)]
            except Exception as error:  # of the user's model, of any kind
                net.graphs.note(
                    f"model {type(net.module).__name__}: clients train on one stream of the GPU, "
                    f"as it cannot be copied ({type(error).__name__}: {error})"
                )
                twins = []
            self.twins[net] = [(twin, net.graphs.beside()) for twin in twins]
            for twin, graphs in self.twins[net]:
                twin.graphs = graphs
        return self.twins[net]


def _local(training: Training, client_state: Tree, steps: Steps) -> tuple[Tree, Tree]:
    method, ctx, message, *_ = training
    with ctx.drawing_from(steps.layers_seed):
        try:
            update, after = method.client_update(ctx, message, client_state, steps)
        except ValueError as error:
            _explain(error, steps)
            raise
    # By name: a client may have put the leaves of its update in another order.
    update = tree.ordered_as(update, message.get("params", {}))
    return update, tree.contiguous(after)  # as if read from a file


def _explain(error: ValueError, steps: Steps) -> None:
    """Raises UserError instead of PyTorch's for BatchNorm in training on a single sample."""
    if TOO_FEW in str(error):
        raise lone_sample(steps.batch_size, len(steps.orders[0])) from error


def lone_sample(batch_size: int, size: int, who: str = "a client") -> UserError:
    """The error about a client whose last mini-batch has one sample."""
    why = (
        f"{batch_size}: leaves one sample to the last mini-batch of {who} with {size}, "
        "which BatchNorm cannot normalise: choose another size"
    )
    return refusal("batch_size", why, "batch_size", batch_size)


@dataclass(frozen=True)
class Parallel:
    """Like :func:`sequential` and with the same bits, in several processes.

    Clients with many samples go first, so that no process has to work alone at the end.

    Raises:
        UserError: raised by a client's training, or if a process ended early.
    """

    workers: int

    def __call__(self, training: Training) -> Outcome:
        ctx, client_states, steps = training.ctx, training.client_states, training.steps
        updates, after = Stacked(len(steps)), Stacked(len(steps))

        def train(place: int) -> None:
            update, moved = _local(training, client_states[place], steps[place])
            updates.put(place, update)
            after.put(place, moved)

        def name_of(place: int) -> str:
            return f"client {int(ctx.cohort[place])} in round {ctx.round + 1}"

        order = ctx.sizes.argsort(descending=True, stable=True).tolist()
        with updates, after:
            distribute(train, order, self.workers, name_of)
            for results in (updates, after):
                results.refuse_gaps(name_of)
        return updates.tree, _taken_apart(after.tree, len(client_states))


def eager(training: Training) -> Outcome:
    """All clients at once under ``torch.func.vmap``, padded to the client with the most samples.

    Raises:
        UserError: for a model with BatchNorm, or another that mixes samples: padding would enter
            its batch statistics, and vmap cannot update running statistics. Also for a model with
            dropout: a client's draws must not depend on the rest of its cohort.
    """
    return _stacked(_every_client, training)


def unrolled(training: Training) -> Outcome:
    """The code that :func:`vectorised` compiles for small models, uncompiled: for tests."""
    return _stacked(_every_client, training._replace(ctx=_unrolled(training.ctx)))


def _unrolled(ctx: Context) -> Context:
    # The rate as a tensor: a Python number would be compiled in, and it changes every round.
    return replace(ctx, mode="unrolled", lr=torch.tensor(ctx.lr, dtype=torch.float64))


def vectorised(training: Training) -> Outcome:
    """Like :func:`eager`, compiled: whole rounds if they are short, else one step of all clients.

    Raises:
        UserError: without what torch.compile needs: a compiler, Python's headers, and a folder for
            what it compiles; for recurrent layers; and if it fails.
    """
    ctx, steps = training.ctx, list(training.steps)
    if missing := _missing_to_compile(ctx.sizes.device.type):
        raise _not_compiled(missing)
    if any(isinstance(layer, nn.RNNBase) for layer in ctx.net.module.modules()):
        raise _unfit("PyTorch's compiler takes no LSTM, GRU or RNN")
    longest = max(len(batches) for batches in steps)
    # For a model of which only a part is communicated: that part.
    moving = training.message.get("params", ctx.initial)
    whole = longest <= UNROLLED and tree.numel(moving) <= UNROLLED_PARAMETERS
    run = _compiled() if whole else _every_client
    ctx = _unrolled(ctx) if whole else replace(ctx, mode="compiled")
    try:
        return _stacked(run, training._replace(ctx=ctx, steps=steps))
    except Exception as error:
        if not internals.is_of_compiler(error):
            raise
        raise _not_compiled(f"PyTorch's compiler failed: {_reason(str(error))}") from error


def _not_compiled(why: str) -> UserError:
    remedy = "mend that, or use 'sequential', which gives other numbers (docs/provenance.md)"
    return _unfit(why, remedy)


def _unfit(why: str, remedy: str = "use 'sequential'", executor: str = "vectorised") -> UserError:
    """The error for an executor that can't train this model here."""
    return refusal("executor", f"{executor!r}: {why}: {remedy}", "name", executor)


def _reason(text: str) -> str:
    """The line of a compiler's output, which may be long, that says why it failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it says nothing"]
    causes = [line for line in lines if "No space left" in line or "fatal error" in line]
    said = [line for line in lines if not line.endswith(" raised:")]
    return (causes or said or lines)[0][:LONGEST_REASON].rstrip(":.")


def _stacked(
    run: Callable[[Method, Context, Tree, Tree, Tree], tuple[Tree, Tree]], training: Training
) -> Outcome:
    method, ctx, message, client_states, steps = training
    if ctx.net.mixes_samples:
        raise _unfit(
            "samples of a mini-batch change each other's outputs (BatchNorm) or gradients "
            "(scale_grad_by_freq), and so would padding",
            "use 'sequential', or a model without such layers, as with GroupNorm",
        )
    if ctx.draws:
        raise _unfit("the model has dropout or other draws, which clients side by side would share")
    if ctx.net.running_statistics:
        moved = ctx.net.running_statistics[0]
        raise _unfit(f"the model keeps state between mini-batches ({moved})")
    if ctx.net.precision != "float32":
        raise _unfit("does not support `precision`")
    with warnings.catch_warnings():  # of attention, which torch then computes client by client
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        states = tree.stack(client_states)
        updates, after = run(method, ctx, message, states, side_by_side(list(steps)))
    return updates, _taken_apart(after, len(client_states))


def _taken_apart(after: Tree, cohort: int) -> list[Tree]:
    """The states of ``cohort`` clients in ``after``, leaves [cohort, ...]."""
    # Copied: a view would keep the states of the whole cohort in memory.
    return [tree.copy(tree.take(after, index)) for index in range(cohort)]


def _every_client(
    method: Method, ctx: Context, message: Tree, client_states: Tree, steps: Tree
) -> tuple[Tree, Tree]:
    """Call ``client_update`` for all clients and return their updates and new states.

    The leaves of both, of ``client_states`` and of ``steps`` are [clients, ...].
    """
    return vmap(partial(method.client_update, ctx, message))(client_states, steps)


@lru_cache
def _compiled() -> Callable[[Method, Context, Tree, Tree, Tree], tuple[Tree, Tree]]:
    # One compilation per number of steps that a round's longest client can have.
    return internals.compiled(_every_client, 2 * UNROLLED)


@lru_cache  # every round asks
def _missing_to_compile(device: str) -> str:
    """The reason why torch.compile cannot work on this machine, or ""."""
    # Without a word, PyTorch would compute the same uncompiled, which gives other bits.
    for name in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        if os.environ.get(name) == "1":
            return f"the environment variable {name} switches PyTorch's compiler off"
    name, others = ("CXX", ["g++"]) if device == "cpu" else ("CC", ["gcc", "clang"])
    # Of a C compiler, Triton builds what starts its kernels.
    given = os.environ.get(name)
    there = any(map(shutil.which, [given] if given else others))
    if not (internals.finds_cpp_compiler() if device == "cpu" else there):
        if given:
            return f"the environment variable {name} is {given!r}, which is no compiler here"
        return f"no {' or '.join(others)} on the PATH, and {name} names no other compiler"
    try:
        folder = internals.folder_of_compiled()
    except OSError as error:
        return f"{error.filename}: no folder for compiled code ({error.strerror})"
    if device == "cpu" and os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return (
            f"{folder}: compiled code cannot be loaded from a file system that is mounted noexec: "
            "let TORCHINDUCTOR_CACHE_DIR or TMPDIR name another folder"
        )
    # Where PyTorch looks for them, too. A compiler that is told other places may find them there.
    places = {sysconfig.get_path("include"), sysconfig.get_path("include", "posix_prefix")}
    elsewhere = any(os.environ.get(name) for name in ("CPATH", "CPLUS_INCLUDE_PATH"))
    if elsewhere or any(Path(place, "Python.h").exists() for place in places):
        return ""
    return f"no Python.h in {' or '.join(sorted(places))} (Debian: package python3-dev)"


# Streams of a GPU. On an H100 four were faster than two and than one in every workload that was
# measured, by 11 to 40 % (docs/cluster.md).
LANES = 4

EXECUTORS: dict[str, Callable[[int, str], Executor]] = {  # (workers, device) -> executor
    "sequential": lambda workers, device: Lanes(LANES) if device != "cpu" else sequential,
    "parallel": lambda workers, device: Parallel(workers),
    "vectorised": lambda workers, device: vectorised,
}

# Client steps in a round from which a second process pays for its fork (about 20 ms).
PARALLEL_FROM_STEPS = {
    "linear": 400,
    "mlp": 200,
    "convolutional": 20,
    "recurrent": 10,
    "transformer": 2,
}


def choose(
    wanted: str,
    stacked: bool,
    family: str,
    device: str,
    client_steps: int,
    rounds: int = 1,
    threads: int = 1,
) -> str:
    """Select the executor of a run.

    Args:
        wanted: "auto", or the name of an executor.
        stacked: with "auto", whether clients are stacked (:mod:`fedrepro.provenance.arithmetic`).
            The other arguments select between executors that give the same bits.
        family: of the model (:class:`fedrepro.models.registry.ModelEntry`).
        device: "cpu" or "cuda".
        client_steps: local steps of all clients over the whole run.
        rounds: number of rounds of the run.
        threads: number of threads that the run may use.

    Raises:
        UserError: if no executor is called ``wanted``, or if it does not work here.
    """
    if wanted == "auto":
        if stacked:
            return "vectorised"
        distributed = threads > 1 and client_steps / rounds >= PARALLEL_FROM_STEPS[family]
        return "parallel" if distributed and device == "cpu" and can_distribute() else "sequential"
    refuse_unknown("executor", "name", [wanted], ["auto", *EXECUTORS])
    if wanted == "parallel" and (device != "cpu" or not can_distribute()):
        raise _unfit("needs Linux and device cpu", executor="parallel")
    return wanted
