"""Shared prefixes: a child run continues its parent run, whose first rounds are bit-identical.

``ima+fedavg`` equals ``fedavg`` until its window fills: ``fedavg`` is its parent run. A parent run
keeps checkpoints after the rounds from which child runs in the experiment files' tables and figures
continue. They are not part of a run's result and are stored separately: they may be deleted at any
time. A child run that finds none trains from the start, to the same bytes.
"""

from dataclasses import dataclass
from pathlib import Path

from fedrepro.config.run_spec import RunSpec
from fedrepro.config.targets import RunKey
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.provenance import arithmetic, fingerprint, numerics
from fedrepro.provenance.numerics import Numerics
from fedrepro.support import plugins

KEPT = Path("results/trunks")


@dataclass(frozen=True)
class ParentRun:
    """A run that a child run may continue.

    Attributes:
        fingerprint: of the code that defines it.
        numerics: the ids of that code.
        rounds: the last round after which the child run may continue.
        folder: of its checkpoints.
    """

    spec: RunSpec
    fingerprint: str
    numerics: Numerics
    rounds: int
    folder: Path


@dataclass(frozen=True)
class Sharing:
    """The checkpoints that a run keeps for others, and the run that it continues.

    Attributes:
        folder: where it keeps its checkpoints after ``rounds``, for child runs.
        parent: the run that it continues.
    """

    folder: Path
    rounds: frozenset[int] = frozenset()
    parent: ParentRun | None = None


ALONE = Sharing(KEPT)


def kept_of(run: RunKey) -> Path:
    """The folder of a run's checkpoints for child runs, relative to the root."""
    return KEPT / run.setting / run.method / f"seed{run.seed}"


def kept_in(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints in such a folder, each with its round."""
    numbered = ((entry.name.removeprefix("round"), entry) for entry in folder.glob("round*"))
    return [(int(number), each) for number, each in numbered if number.isdigit()]


def shared_rounds(bench: Workbench, run: RunKey) -> int:
    """The last round after which a run can continue its parent run; 0 if it has none.

    The parent run's last round is not kept, a run's files of single rounds must be its own, and
    both runs must have the same class of arithmetic.
    """
    parent, setting = bench.parent_of(run), bench.setting(run.setting)
    if parent is None:
        return 0
    from fedrepro.methods.registry import compose  # `clean` and `estimate` need no PyTorch

    method, server_optimizer = compose(*bench.composition_of(setting, run.method), bench.plugins)
    with plugins.blamed():
        first, rounds = method.shared_prefix(setting.rounds)
    its = compose(*bench.composition_of(setting, parent.method), bench.plugins)
    if (first, server_optimizer) != its:
        return 0
    specs = (bench.spec_of(key) for key in (run, parent))
    if len(set(map(arithmetic.of_spec, specs))) > 1:
        return 0
    return min(
        rounds,
        setting.rounds - 1,
        *(round - 1 for round in setting.save_models_at.get(run.method, ())),
    )


def sharing_of(bench: Workbench, run: RunKey) -> Sharing:
    """The sharing of a run with those of its setting in any table or figure, at any scale."""
    methods = {key.method for key in bench.runs_of(run.setting, SCALES)}
    children = (RunKey(run.setting, method, run.seed) for method in methods)
    rounds = {shared_rounds(bench, child) for child in children if bench.parent_of(child) == run}
    folder = bench.root / kept_of(run)
    return Sharing(folder, frozenset(rounds - {0}), _parent_of(bench, run))


def _parent_of(bench: Workbench, run: RunKey) -> ParentRun | None:
    rounds, parent = shared_rounds(bench, run), bench.parent_of(run)
    if not parent or not rounds:
        return None
    spec = bench.spec_of(parent)
    code, ids = fingerprint.of_code(spec), numerics.of_run(spec)
    return ParentRun(spec, code, ids, rounds, bench.root / kept_of(parent))
