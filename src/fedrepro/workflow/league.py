"""Where a method of the reader's own can play in the league, and its search of hyperparameters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean

from fedrepro.config.experiment import COMPACT, shipped
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.searches import LEAGUE_SHARE, Searched, validated_name
from fedrepro.config.settings import Setting
from fedrepro.config.targets import RunKey
from fedrepro.config.values import Scalar
from fedrepro.config.workbench import Workbench
from fedrepro.data.dataset import PREPARED, is_prepared, open_dataset
from fedrepro.data.readers.packing import Shapes
from fedrepro.engine.method import Method
from fedrepro.methods.facts import defaults_of
from fedrepro.methods.files import part_files
from fedrepro.methods.personal.partly_shared import keeps_a_part
from fedrepro.methods.registry import compose
from fedrepro.models import registry
from fedrepro.report.cells.claims import CENTRAL
from fedrepro.report.cells.league import UNSHARED, Choice, Match, matches_of, reads_test_set
from fedrepro.report.cells.search import on_validation, select
from fedrepro.report.cells.tables import result_of
from fedrepro.run.results import find_run
from fedrepro.run.standing import of_another
from fedrepro.support.errors import UserError, bad_argument, refusal
from fedrepro.support.names import Composition
from fedrepro.support.packaged import ORIGIN

# The keys of a setting that a search may change: how clients train, not on what, nor for how long.
OF_TRAINING = ("optimizer", "lr_decay", "decay_from", "epochs", "batch_size")


def chosen_matches(workbench: Workbench, group: str | None) -> list[Match]:
    """The matches of a group; of all groups if it is None.

    Raises:
        UserError: if there are none.
    """
    matches = matches_of(workbench)
    if not matches:
        one, *others = (name for name in shipped() if (ORIGIN / COMPACT / f"{name}.yaml").exists())
        why = (
            "no row of a table has `league`, so there is no league: `fedrepro init "
            f"--with {one}` adds settings and results of {one}; as well {', '.join(others)}"
        )
        raise refusal(COMPACT, why, "league", code="missing")
    groups = list(dict.fromkeys(match.group for match in matches))
    if group is not None and group not in groups:
        wanted = f"a group of the league: {', '.join(groups)}"
        raise bad_argument("--on", group, wanted, groups)
    return [match for match in matches if group in (None, match.group)]


def refuse_unknown(workbench: Workbench, matches: Iterable[Match], method: str) -> None:
    """Raise UserError if no experiment file or plug-in has a part of a composition.

    It may be one with values, such as ``fedprox_mu0.1``, in the setting of a match.
    """
    experiments = workbench.experiments.values()
    variants = (name for experiment in experiments for name in experiment.methods)
    known = {*part_files(workbench.plugins), *variants}
    settings = {match.setting: workbench.setting(match.setting) for match in matches}.values()
    for part in Composition.parse(method).parts:
        bases = (workbench.composition_of(setting, part.name)[0] for setting in settings)
        if part.name not in known and known.isdisjoint(bases):
            raise bad_argument("METHOD", str(part), "a method", known)


def obstacle(workbench: Workbench, match: Match, name: str) -> str:
    """The reason why a method cannot play in a match, as far as it is known before data; or ""."""
    try:
        spec = workbench.run_spec(match.setting, match.method(name), match.seeds[0])
        method, _ = compose(spec.composition, spec.hyperparameters, workbench.plugins)
    except UserError as error:
        return str(error)
    if match.judged and method.classifies:
        return "it makes no synthetic set, by which this setting ranks methods"
    if not match.judged and not (method.classifies or method.own_classifier):
        return "it trains no classifier"
    shared = reads_test_set(workbench, match) or not spec.setting.evaluate.clients
    keeps = method.own_classifier or _keeps_a_part(method, spec, workbench.root)
    if shared and method.classifies and keeps:
        return UNSHARED
    return ""


def _keeps_a_part(method: Method, spec: RunSpec, root: Path) -> bool:
    """True if clients keep a part of the model; False if the size of the data is not known."""
    size, name, prepared = spec.data_size, spec.setting.dataset, root / PREPARED
    of_data: tuple[Shapes, int]
    if size:
        of_data = size.shape, size.classes
    elif is_prepared(name, prepared):
        data = open_dataset(name, prepared)
        of_data = data.shapes, data.outputs
    else:
        return False
    return keeps_a_part(method, registry.outline(spec.setting.model, *of_data, spec.plugins))


@dataclass(frozen=True)
class Search:
    """A search of a method's hyperparameters in a setting, on clients' validation samples.

    Attributes:
        candidates: what follows the setting's name and the method in the name of each candidate's
            run, and its values; empty without a search.
        why: why there is none, or "".
    """

    match: Match
    method: str
    candidates: Mapping[tuple[str, str], Mapping[str, Scalar]]
    why: str = ""

    @property
    def runs(self) -> list[RunKey]:
        """One of each candidate, with the first seed, where clients keep validation samples."""
        setting = validated_name(self.match.setting, LEAGUE_SHARE)
        seed = self.match.seeds[0]
        return [RunKey(setting + suffix, name, seed) for suffix, name in self.candidates]


def searches_of(
    workbench: Workbench, matches: Iterable[Match], name: str, grid: Searched, rivals: bool = False
) -> list[Search]:
    """A search for each setting and method; the first match of a setting says what is scored.

    Args:
        rivals: whether all other methods try the same values of the setting's keys.

    Raises:
        UserError: for a key that neither the method nor the setting has, or a refused value.
    """
    searches: dict[tuple[str, str], Search] = {}
    for match in matches:
        own, keys = match.method(name), _keys_of_setting(workbench, match, name, grid)
        if rivals and not keys:
            wanted = "a key of the setting, such as lr, which all methods have"
            raise bad_argument("--grid", ", ".join(grid.grid), wanted)
        asked = {own: grid.grid} | {
            rival: keys for rival in (rivals_of(workbench, match) if rivals else ()) if rival != own
        }
        for method, values in asked.items():
            if (match.setting, method) not in searches:
                searches[match.setting, method] = _search_of(workbench, match, method, values)
    return list(searches.values())


def rivals_of(workbench: Workbench, match: Match) -> list[str]:
    """The methods of a match's row in its setting, without those that choose by test samples."""
    target = workbench.table(match.system, match.item, "compact")
    columns = len(target.table.columns)
    return [
        cell.methods[0]
        for cell in target.cells[match.row * columns : (match.row + 1) * columns]
        if cell.setting == match.setting and len(cell.methods) == 1 and cell.methods != (CENTRAL,)
        if not cell.metric.quantity.selection
    ]


def _keys_of_setting(
    workbench: Workbench, match: Match, name: str, grid: Searched
) -> dict[str, list[Scalar]]:
    """The values of ``--grid`` for keys of the setting, by full name."""
    setting, experiment = workbench.setting(match.setting), workbench.experiments[match.system]
    bases = (experiment.part(setting, part)[0] for part in Composition.parse(name).names)
    own = {key for base in bases for key in defaults_of(base, workbench.plugins)}
    named = {key: setting.named(key) for key in grid.grid if key not in own}
    return {full[0]: grid.grid[key] for key, full in named.items() if full}


def _search_of(
    workbench: Workbench, match: Match, method: str, grid: Mapping[str, list[Scalar]]
) -> Search:
    if workbench.setting(match.setting).partition.validation:
        return Search(match, method, {}, "its validation samples have another use")
    setting = workbench.setting(validated_name(match.setting, LEAGUE_SHARE))
    if seen := workbench.run_spec(setting.name, method, match.seeds[0]).inputs_that_saw_held_out:
        why = f"it is given {', '.join(seen)}, trained on what would be validation samples"
        return Search(match, method, {}, why)
    candidates: dict[tuple[str, str], Mapping[str, Scalar]] = {}
    for row in product(*grid.values()):
        values = dict(zip(grid, row, strict=True))
        changed, other, name = workbench.with_variant(setting, method, values, "--grid")
        tried = workbench.setting(other)
        _refuse_other_conditions(setting, tried)
        composition = changed.composition_of(tried, name)
        compose(*composition, workbench.plugins)
        as_its_own_process_reads_it = workbench.composition_of(tried, name)
        if as_its_own_process_reads_it != composition:
            wanted = "numbers, true, false or words, which make names of runs"
            raise bad_argument("--grid", ", ".join(map(str, row)), wanted)
        candidates[other.removeprefix(setting.name), name] = values
    return Search(match, method, candidates)


def _refuse_other_conditions(setting: Setting, tried: Setting) -> None:
    """Raise UserError if a candidate's setting differs in more than how clients train."""
    before = setting.scalars
    for key, value in tried.scalars.items():
        if before.get(key) != value and key.partition(".")[0] not in OF_TRAINING:
            wanted = f"a hyperparameter, or a key of {', '.join(OF_TRAINING)}: the rest is the same"
            raise bad_argument("--grid", key, f"{wanted} for all methods")


def choose(workbench: Workbench, searches: Sequence[Search], alike: bool = False) -> list[Choice]:
    """Choose by the validation scores that there are; never reads a test score.

    Args:
        alike: whether all methods of a setting take the values with the best mean over them.
    """
    scores = {id(search): _scores(workbench, search) for search in searches}
    choices = []
    for search in searches:
        setting, deciding = search.match.setting, [scores[id(search)]]
        if alike:
            same = (search for search in searches if search.match.setting == setting)
            deciding = [scores[id(search)] for search in same if search.candidates]
        choices.append(_choice(workbench, search, scores[id(search)], _means(deciding)))
    return choices


def _means(scores: Sequence[Sequence[float | None]]) -> list[float | None]:
    """The mean of each candidate's scores over methods; None if one lacks it."""
    return [
        None if None in row else fmean(score for score in row if score is not None)
        for row in zip(*scores, strict=True)
    ]


def _scores(workbench: Workbench, search: Search) -> list[float | None]:
    """The score of each candidate on clients' validation samples; None without one."""
    match, measure = search.match, on_validation(search.match.quantity)
    return [
        result_of(workbench, run.setting, {run.method: [run]}, measure, match.summary).mean
        # What other code left does not count: its own run may have failed.
        if is_there(workbench, run, match.judged)
        else None
        for run in search.runs
    ]


def _choice(
    workbench: Workbench,
    search: Search,
    scores: Sequence[float | None],
    deciding: Sequence[float | None],
) -> Choice:
    match, method = search.match, search.method
    if search.why:
        return Choice(match.setting, method, 0, 0, None, None, search.why)
    best = select(deciding, match.quantity.higher_is_better, ())
    if best is None:
        why = "no candidate has a validation score, so its defaults were used"
        return Choice(match.setting, method, len(scores), 0, None, None, why)
    tried = sum(score is not None for score in scores)
    (suffix, name), values = [*search.candidates.items()][best]
    suffix = suffix_of(workbench, match.setting, suffix)
    return Choice(match.setting, name, len(scores), tried, values, scores[best], suffix=suffix)


def suffix_of(workbench: Workbench, setting: str, suffix: str) -> str:
    """The end of a setting's name in the runs of a chosen candidate; "" if it changes no key."""
    ours, tried = (workbench.setting(name).scalars for name in (setting, setting + suffix))
    return "" if tried == ours else suffix  # the setting as it is: its runs may be there


def is_there(workbench: Workbench, run: RunKey, judged: bool = False) -> bool:
    """Return True if a run of today's code and configuration has ended, here or in the repository.

    Args:
        judged: ask for the evaluation of its synthetic set, too.
    """
    record = find_run(workbench.root, run)
    if record.state not in ("finished", "diverged"):
        return False
    if of_another(workbench, record):
        return False
    return not judged or record.state == "diverged" or bool(record.quality)
