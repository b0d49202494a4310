"""What a method of the reader's own needs to play in the league: runs, inputs, searches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from fedrepro.config.run_spec import RunSpec
from fedrepro.config.searches import Searched
from fedrepro.config.targets import RunKey, Target
from fedrepro.config.values import Scalar
from fedrepro.config.workbench import Workbench
from fedrepro.methods.files import part_files
from fedrepro.report.cells.league import Choice
from fedrepro.report.cells.matches import Match, matches_of
from fedrepro.report.cells.search import on_validation, select
from fedrepro.report.cells.tables import result_of
from fedrepro.run.replayed import of_another
from fedrepro.run.results import find_run
from fedrepro.support.errors import UserError, bad_value
from fedrepro.support.names import Composition
from fedrepro.workflow.cost import CostModel

if TYPE_CHECKING:
    from fedrepro.engine.method import Method

VALIDATION = 0.2  # the share of its training samples that a client keeps in a search
READING = f"@validation{VALIDATION}"
Values = Mapping[str, Scalar]


def chosen_matches(workbench: Workbench, group: str | None) -> list[Match]:
    """The matches of a group; of all groups if it is None.

    Raises:
        UserError: if there are none.
    """
    found = matches_of(workbench)
    groups = list(dict.fromkeys(match.group for match in found))
    if not found:
        raise UserError("config/compact: no row of a table has `league`, so there is no league")
    if group is not None and group not in groups:
        wanted = f"a group of the league: {', '.join(groups)}"
        raise bad_value("the command line", "--on", group, wanted, groups)
    return [match for match in found if group in (None, match.group)]


def refuse_unknown(workbench: Workbench, method: str) -> None:
    """Raise UserError if no experiment file or plug-in has a part of a composition."""
    known = {
        *part_files(workbench.plugins),
        *(name for each in workbench.experiments.values() for name in each.methods),
    }
    for part in Composition.parse(method).parts:
        if part.name not in known:
            raise bad_value("the command line", "METHOD", str(part), "a method", known)


def obstacle(workbench: Workbench, match: Match, name: str) -> str:
    """Why a method cannot play in a match, as far as that is known before its data are; or ""."""
    from fedrepro.methods.registry import compose

    try:
        spec = workbench.run_spec(match.setting, match.method(name), match.seeds[0])
        method, _ = compose(spec.composition, spec.hyperparameters, workbench.plugins)
    except UserError as error:
        return str(error)
    if match.judged and method.classifies:
        return "it makes no synthetic set, by which this setting ranks methods"
    if not match.judged and not (method.classifies or method.own_classifier):
        return "it trains no classifier"
    none = method.own_classifier or _keeps_a_part(method, spec)
    if method.classifies and none and not spec.setting.evaluate.clients:
        return "its clients share no model, and the setting scores the shared one"
    return ""


def _keeps_a_part(method: "Method", spec: RunSpec) -> bool:
    """Whether clients keep a part of the model; not, if the catalogue has no size of the data."""
    import torch

    from fedrepro.methods.personal.partly_shared import keeps_a_part
    from fedrepro.models import registry

    if spec.holds is None:
        return False
    with torch.device("meta"):  # names only
        model = registry.build(
            spec.setting.model, spec.holds.shape, spec.holds.classes, folders=spec.plugins
        )
    return keeps_a_part(method, model)


@dataclass(frozen=True)
class Search:
    """A search of a method's hyperparameters in a setting, on clients' validation samples.

    Attributes:
        reading: the setting in which clients keep validation samples.
        candidates: the method of each candidate's run, and its values.
        why: why there is none, or "".
    """

    match: Match
    method: str
    reading: str = ""
    candidates: Mapping[str, Values] | None = None
    why: str = ""

    @property
    def runs(self) -> list[RunKey]:
        """One of each candidate, with the first seed."""
        names = self.candidates or {}
        return [RunKey(self.reading, name, self.match.seeds[0]) for name in names]


def with_searches(
    workbench: Workbench, matches: Iterable[Match], name: str, grid: Searched
) -> tuple[Workbench, list[Search]]:
    """A workbench with all candidates, and a search for each setting and method.

    The first match of a setting decides what is scored.

    Raises:
        UserError: for a hyperparameter that the method does not have, or a value that it refuses.
    """
    found: dict[tuple[str, str], Search] = {}
    for match in matches:
        key = match.setting, match.method(name)
        if key not in found:
            workbench, found[key] = _with_search(workbench, match, key[1], grid)
    return workbench, list(found.values())


def _with_search(
    workbench: Workbench, match: Match, method: str, grid: Searched
) -> tuple[Workbench, Search]:
    from fedrepro.methods.registry import compose

    setting = workbench.setting(match.setting)
    given = workbench.run_spec(match.setting, method, match.seeds[0]).given
    seen = [
        need
        for need, source in given.items()
        if isinstance(source, RunSpec) and source.setting.partition.scheme != "at_server"
    ]
    if match.judged:
        return workbench, Search(match, method, why="a synthetic set has no validation score")
    if seen:
        why = f"it is given {', '.join(seen)}, trained on what would be validation samples"
        return workbench, Search(match, method, why=why)
    if setting.partition.validation:
        return workbench, Search(match, method, why="its validation samples have another use")
    experiment = workbench.experiments[match.system]
    short = f"{match.setting.partition('/')[2]}{READING}"
    reading = setting.validated(short, VALIDATION, {})
    changed = experiment.model_copy(update={"settings": {**experiment.settings, short: reading}})
    for name in ("readings", "plain_readings"):  # the copy has the cached ones
        changed.__dict__.pop(name, None)
    experiments = {**workbench.experiments, match.system: changed}
    workbench = replace(workbench, experiments=experiments)
    candidates: dict[str, Values] = {}
    for row in product(*grid.grid.values()):
        values = dict(zip(grid.grid, row, strict=True))
        workbench, name = workbench.with_variant(reading, method, values, "--grid")
        compose(*workbench.compose(reading, name), workbench.plugins)
        candidates[name] = values
    return workbench, Search(match, method, reading.name, candidates)


def choose(workbench: Workbench, search: Search) -> tuple[Workbench, str, Choice]:
    """Choose by the validation scores that there are; never reads a test score.

    Returns:
        A workbench with the chosen method, its name, and what was chosen.
    """
    match, setting = search.match, search.match.setting
    if search.candidates is None:
        return workbench, search.method, Choice(setting, 0, 0, None, None, search.why)
    measure = on_validation(match.measure)
    scores = [
        result_of(workbench, run.setting, {run.method: [run]}, measure, match.summary).mean
        if is_there(workbench, run)  # else what other code left: its own run may have failed
        else None
        for run in search.runs
    ]
    tried, number = sum(score is not None for score in scores), len(scores)
    best = select(scores, match.measure.rising, ())
    if best is None:
        why = "no candidate has a validation score, so its defaults were used"
        return workbench, search.method, Choice(setting, number, 0, None, None, why)
    values = list(search.candidates.values())[best]
    workbench, name = workbench.with_variant(
        workbench.setting(setting), search.method, values, "--grid"
    )
    return workbench, name, Choice(setting, number, tried, values, scores[best])


def is_there(workbench: Workbench, run: RunKey, judged: bool = False) -> bool:
    """Whether a run of today's code and configuration has ended, here or in the repository."""
    record = find_run(workbench.root, run)
    if record.state not in ("finished", "diverged"):
        return False
    if of_another(record, workbench.run_spec(run.setting, run.method, run.seed)):
        return False
    return not judged or record.state == "diverged" or bool(record.quality)


@dataclass(frozen=True)
class OwnRuns(Target):
    """Runs of the reader's method as a target, to estimate their cost."""

    wanted: Sequence[RunKey]

    @cached_property
    def runs(self) -> tuple[RunKey, ...]:
        return tuple(self.wanted)


class OwnCosts(CostModel):
    """Costs of runs and their inputs. A parent run is used if it exists, but never made."""

    def first(self, run: RunKey) -> list[RunKey]:
        given = (each for each in self.spec(run).given.values() if isinstance(each, RunSpec))
        return [RunKey(each.setting.name, each.method, each.seed) for each in given]


def missing_inputs(workbench: Workbench, runs: Iterable[RunKey]) -> list[str]:
    """The files that Snakemake must make before some runs: data, partitions, artifacts.

    Partitions with validation samples of a search are not among them: no experiment file has them.
    """
    from fedrepro.workflow.graph import given_of

    costs, found = OwnCosts(workbench, [OwnRuns("", "", "compact", list(runs))]), {}
    for run in costs.runs:
        spec = costs.spec(run)
        files = [f"results/data/{spec.setting.dataset}/meta.json"]
        if not run.setting.endswith(READING):
            files.append(str(spec.setting.partition_path(run.seed)))
        found.update(dict.fromkeys(files))
        found.update(dict.fromkeys(each for each in given_of(spec) if "/data/" in each))
    absent = [name for name in found if not (workbench.root / name).exists()]
    own = {*runs}
    made = [run for run in costs.left if run not in own]
    return [
        *absent,
        *(
            str(run.folder / name)
            for run in made
            for name in ("manifest.json", "model.safetensors")
        ),
    ]
