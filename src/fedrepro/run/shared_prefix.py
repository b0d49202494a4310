"""Rounds that runs share: a run goes on from another that its first rounds are, to the bit.

``ima+fedavg`` is ``fedavg`` until its window fills: ``fedavg`` is its parent run. A parent run
keeps its checkpoint after the rounds that the experiment files' tables and figures have child runs
for. That is no part of what a run is, and lies apart from its files: it may be deleted at any time,
and a child run that finds none trains from the start, to the same bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedrepro.config.run_spec import RunSpec
from fedrepro.config.targets import RunKey
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.methods import registry
from fedrepro.run import fingerprint

KEPT = Path("results/trunks")


@dataclass(frozen=True)
class ParentRun:
    """A run that another may go on from.

    Attributes:
        code: fingerprint of the code that defines it.
        rounds: after which the other must leave it.
        folder: where its checkpoints are.
    """

    spec: RunSpec
    code: str
    rounds: int
    folder: Path


@dataclass(frozen=True)
class Sharing:
    """What a run shares with others.

    Attributes:
        folder: where it keeps its checkpoints after ``rounds``, for those that go on from it.
        parent: what it goes on from itself.
        note: told in one line why it does not.
    """

    folder: Path
    rounds: frozenset[int] = frozenset()
    parent: ParentRun | None = None
    note: Callable[[str], None] = lambda line: None


ALONE = Sharing(KEPT)


def kept_of(run: RunKey) -> Path:
    """Where a run keeps its checkpoints, relative to the root."""
    return KEPT / run.setting / run.method / f"seed{run.seed}"


def kept_in(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints in such a folder, each with its round."""
    found = ((each.name.removeprefix("round"), each) for each in folder.glob("round*"))
    return [(int(number), each) for number, each in found if number.isdigit()]


def shared_rounds(bench: Workbench, run: RunKey) -> int:
    """After how many rounds at most a run can go on from its parent run; 0 where there is none.

    The parent run's last round is not kept, and a run's files of single rounds must be its own.
    """
    parent, setting = bench.parent_of(run), bench.setting(run.setting)
    if parent is None:
        return 0
    method, server_optimizer = registry.compose(*bench.compose(setting, run.method), bench.plugins)
    first, rounds = method.shared_prefix(setting.rounds)
    its = registry.compose(*bench.compose(setting, parent.method), bench.plugins)
    if (first, server_optimizer) != its:
        return 0
    return min(
        rounds, setting.rounds - 1, *(round - 1 for round in setting.keep.get(run.method, ()))
    )


def sharing_of(bench: Workbench, run: RunKey, note: Callable[[str], None]) -> Sharing:
    """What a run shares with those of its setting that any table or figure has, at any scale."""
    targets = (target for scale in SCALES for target in bench.targets(scale).values())
    methods = {
        each.method for target in targets for each in target.runs if each.setting == run.setting
    }
    children = (RunKey(run.setting, method, run.seed) for method in methods)
    rounds = {shared_rounds(bench, child) for child in children if bench.parent_of(child) == run}
    folder = bench.root / kept_of(run)
    return Sharing(folder, frozenset(rounds - {0}), _parent_of(bench, run), note)


def _parent_of(bench: Workbench, run: RunKey) -> ParentRun | None:
    rounds, parent = shared_rounds(bench, run), bench.parent_of(run)
    if not parent or not rounds:
        return None
    spec = bench.run_spec(parent.setting, parent.method, parent.seed)
    return ParentRun(spec, fingerprint.of_code(spec), rounds, bench.root / kept_of(parent))
