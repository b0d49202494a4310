"""How the clients of a round are run: one after another, or side by side.

A method cannot tell which, and the two agree to 1e-9 in float64. Which one serves a run is fixed by
a table and the run's size, never by a timing, because a timing would make a result depend on noise.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch.func import vmap

from fedrepro import tree
from fedrepro.errors import UserError, bad_value
from fedrepro.method import Context, Method
from fedrepro.steps import Steps, pad
from fedrepro.tree import Tree

# (reports with leaves [cohort, ...], the cohort's states)
Outcome = tuple[Tree, list[Tree]]
Executor = Callable[[Method, Context, Tree, Sequence[Tree], Sequence[Steps]], Outcome]


def sequential(
    method: Method, ctx: Context, sent: Tree, owns: Sequence[Tree], steps: Sequence[Steps]
) -> Outcome:
    """One client after another, each moved in place."""
    pairs = [method.local(ctx, sent, own, each) for own, each in zip(owns, steps, strict=True)]
    return tree.stack([report for report, _ in pairs]), [own for _, own in pairs]


def side_by_side(
    method: Method, ctx: Context, sent: Tree, owns: Sequence[Tree], steps: Sequence[Steps]
) -> Outcome:
    """All clients at once under ``torch.func.vmap``, padded to the one with the most samples.

    Raises:
        UserError: for a model with running statistics, which vmap can't update.
    """
    if ctx.net.has_buffers:
        raise UserError(
            "executor: 'vectorised': expected a model without running statistics (BatchNorm); "
            "use 'sequential', or a model with GroupNorm"
        )
    per_epoch = max(each.per_epoch for each in steps)
    padded = tree.stack([pad(each, per_epoch) for each in steps])
    reports, after = vmap(lambda own, each: method.local(ctx, sent, own, each))(
        tree.stack(list(owns)), padded
    )
    return reports, [tree.take(after, index) for index in range(len(steps))]


def vectorised(
    method: Method, ctx: Context, sent: Tree, owns: Sequence[Tree], steps: Sequence[Steps]
) -> Outcome:
    """:func:`side_by_side`, one step of all clients compiled into one kernel.

    Raises:
        UserError: without a C++ compiler, which torch.compile needs on a CPU.
    """
    if shutil.which("c++") is None and shutil.which("g++") is None:
        raise UserError(
            "executor: 'vectorised': expected a C++ compiler (c++ or g++) on the PATH; "
            "install one or use 'sequential'"
        )
    return side_by_side(method, replace(ctx, compiled=True), sent, owns, steps)


EXECUTORS: dict[str, Executor] = {"sequential": sequential, "vectorised": vectorised}

# Client steps in a whole run from which stacking clients pays for compiling (about 20 s of CPU);
# measured by `make bench`. Families that are missing lose by stacking: convolutions on a CPU.
PAYS_FROM = {
    ("linear", "cpu"): 300_000,
    ("mlp", "cpu"): 500_000,
    ("linear", "cuda"): 20_000,
    ("mlp", "cuda"): 20_000,
}


def choose(wanted: str, family: str, device: str, client_steps: int) -> str:
    """The executor of a run.

    Args:
        wanted: "auto", or an executor by name.
        family: of the model (:class:`fedrepro.models.Model`).
        device: "cpu" or "cuda".
        client_steps: local steps of all clients over the whole run.

    Raises:
        UserError: if there is no executor called ``wanted``.
    """
    if wanted == "auto":
        threshold = PAYS_FROM.get((family, device))
        return "vectorised" if threshold is not None and client_steps >= threshold else "sequential"
    if wanted not in EXECUTORS:
        names = ["auto", *EXECUTORS]
        raise bad_value("executor", "name", wanted, f"one of {', '.join(names)}", names)
    return wanted
