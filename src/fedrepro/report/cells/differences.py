"""How a setting of scale compact differs from the paper's, key by key, from the resolved ones.

Nobody writes this by hand: docs/compact.md, docs/differences.md and the claims page come from it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from fedrepro.config.partition_sizes import cohort_size, estimated_shares
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.searches import is_number
from fedrepro.config.settings import ArtifactFromData, Setting
from fedrepro.config.tables import full_name
from fedrepro.config.workbench import Workbench
from fedrepro.measures.base import Quantity
from fedrepro.methods.facts import defaults_of
from fedrepro.report.cells.claims import CENTRAL, compact_pairs
from fedrepro.report.papers.claim import Claim, CompactTest
from fedrepro.run.schedules import schedule_of
from fedrepro.support.errors import UserError, missing_value
from fedrepro.support.names import Composition

Values = dict[str, Any]
# What a scheme has besides its kind of heterogeneity.
SIZES = ("scheme", "clients", "server", "validation", "within", "share")

# What the classifiers have that are trained on a synthetic set and on real samples.
JUDGE = {
    "model": "network",
    "epochs": "most epochs",
    "batch_size": "mini-batch",
    "lr": "learning rate",
}


@dataclass(frozen=True)
class Difference:
    """A key of a setting, with the paper's value and ours; None where a setting has no such key."""

    key: str
    there: Any
    here: Any

    @property
    def kept(self) -> bool:
        return bool(self.there == self.here)

    @property
    def ratio(self) -> float | None:
        """Our value by the paper's; None if they are no numbers."""
        numbers = is_number(self.there) and is_number(self.here)
        return float(self.here / self.there) if numbers and self.there else None


def counterpart_of(workbench: Workbench, name: str, claim: Claim | None = None) -> str:
    """The full name of the paper's setting that a compact one stands for, if for a claim.

    Raises:
        UserError: if it stands for none.
    """
    system, _, short = name.partition("/")
    test = claim.compact if claim else ""
    own = test.stands_for.get(short) if isinstance(test, CompactTest) else None
    there = own or workbench.setting(name).stands_for
    if there is None:
        key = f"settings.{short}.stands_for"
        wanted = "the paper's setting, as a claim is judged by it"
        raise missing_value(workbench.files[system], key, wanted)
    return full_name(system, there)


def of_setting(
    workbench: Workbench, name: str, methods: Iterable[str], seed: int, claim: Claim | None = None
) -> list[Difference]:
    """All compared keys of a compact setting, with some of its methods, if for a claim.

    Args:
        name: the setting's full name.

    Raises:
        UserError: as :func:`counterpart_of`.
    """
    here, there = workbench.setting(name), workbench.setting(counterpart_of(workbench, name, claim))
    printed, ours = _of(workbench, there), _of(workbench, here)
    keys = {**printed, **ours}
    differences = {key: Difference(key, printed.get(key), ours.get(key)) for key in keys}
    for method in dict.fromkeys(methods):
        if method == CENTRAL:
            continue
        ours = _of_method(workbench, here, method, seed)
        printed = _of_best(workbench, there, _tried_with(workbench, there.name, method), seed)
        for key in ours:
            # The paper may have no such method with this data set. A variant must not hide another.
            if key in printed and (key not in differences or differences[key].kept):
                differences[key] = Difference(key, printed[key], ours[key])
    return list(differences.values())


def of_claim(workbench: Workbench, claim: Claim) -> dict[str, list[Difference]]:
    """By setting, all compared keys of the settings that a claim is judged by.

    Raises:
        UserError: as :func:`counterpart_of`.
    """
    if isinstance(claim.compact, str) or claim.system not in workbench.experiments:
        return {}
    if not workbench.experiments[claim.system].compact:
        return {}
    target = workbench.table(claim.system, claim.compact.table, "compact")
    methods: dict[str, list[str]] = {}
    metrics: dict[str, list[Quantity]] = {}
    for pair in compact_pairs(workbench, claim, claim.compact):
        for place in (pair.left, pair.right):
            cell = target.cells[place]
            methods.setdefault(cell.setting, []).extend(cell.methods)
            metrics.setdefault(cell.setting, []).append(cell.metric.quantity)
    summary = _of_summary(workbench, claim)
    return {
        name: [
            *of_setting(workbench, name, names, target.seeds[0], claim),
            *_of_metrics(workbench, claim, name, metrics[name]),
            *summary,
        ]
        for name, names in methods.items()
    }


def of_search(workbench: Workbench, system: str, item: str) -> list[Difference]:
    """All compared keys of a compact setting that is searched before anything is judged by it."""
    search = workbench.experiments[system].compact_search[item]
    (seed, *_) = workbench.search(system, item, "compact").seeds
    methods = [method.method for method in search.methods]
    return of_setting(workbench, full_name(system, search.setting), methods, seed)


class Row(NamedTuple):
    """A key that differs, as pages show it; ``settings`` may be "all"."""

    key: str
    there: str
    here: str
    ratio: str
    settings: str


def rows_of(compared: Mapping[str, Iterable[Difference]]) -> Iterator[Row]:
    """A row for each key and pair of values that differ, with its settings."""
    for difference, settings in grouped(compared):
        there, here = map(_shown, (difference.there, difference.here))
        ratio = "" if difference.ratio is None else f"{difference.ratio:.3g}"
        where = "all" if len(settings) == len(compared) else ", ".join(settings)
        yield Row(difference.key, there, here, ratio, where)


def grouped(compared: Mapping[str, Iterable[Difference]]) -> list[tuple[Difference, list[str]]]:
    """The differences, all of a key together, with the settings that have these two values."""
    rows: dict[Difference, list[str]] = {}
    for name, differences in compared.items():
        for difference in differences:
            if not difference.kept:
                rows.setdefault(difference, []).append(name.partition("/")[2])
    order = [*dict.fromkeys(difference.key for difference in rows)]
    return sorted(rows.items(), key=lambda row: order.index(row[0].key))


def unsearched(
    workbench: Workbench, name: str, differences: Iterable[Difference]
) -> dict[str, str]:
    """The keys that a paper tunes and no compact search has: where the paper says so, by key.

    Args:
        name: the setting's full name.
        differences: its compared keys. Of other methods than those that they have, nothing is said.
    """
    parts = {
        difference.key.partition(": ")[0] for difference in differences if ": " in difference.key
    }
    system, _, short = name.partition("/")
    experiment = workbench.experiments[system]
    searched: set[str] = set()
    for search in experiment.compact_search.values():
        if short in (search.setting, *search.selects_for):
            for method in search.methods:
                searched.update(method.keys, (f"{method.method}.{key}" for key in method.keys))
                for part, key in map(method.place_of, method.grid):
                    base, _ = experiment.part(workbench.setting(name), part)
                    searched.add(f"{base}.{key}")
    return {
        key: place
        for key, place in experiment.tunes.items()
        if key not in searched and key.partition(".")[0] in {*parts, *Setting.model_fields}
    }


def _of_metrics(
    workbench: Workbench, claim: Claim, name: str, ours: Iterable[Quantity]
) -> list[Difference]:
    """The metrics of our cells in a setting, beside the paper's in the setting it stands for.

    Where the paper's tables have no such setting, all their cells count. A metric that the paper
    does not show, or whose printed numbers are not comparable, has the nearest other one beside it.
    """
    tables = workbench.experiments[claim.system].tables
    targets = [
        workbench.table(claim.system, item, "paper") for item in claim.tables if item in tables
    ]
    counterpart = counterpart_of(workbench, name, claim)
    shown = [
        (cell.setting == counterpart, cell.metric.quantity.words)
        for target in targets
        for cell in target.cells
    ]
    there = {words for same, words in shown if same} or {words for _, words in shown}
    nearest = {}
    for metric in ours:
        known = there - {metric.words} if metric.incomparable else there
        close = get_close_matches(metric.words, sorted(known), 1, 0)
        nearest[metric.words] = close[0] if close else None
    # Sorted so that one that differs comes last, as with summaries.
    order = sorted(nearest.items(), key=lambda pair: (pair[0] != pair[1], pair))
    return [Difference("metric", printed, words) for words, printed in order]


def _of_summary(workbench: Workbench, claim: Claim) -> list[Difference]:
    """How many evaluated rounds are averaged, in the paper's table and in ours."""
    experiment = workbench.experiments[claim.system]
    assert not isinstance(claim.compact, str)
    here = experiment.compact[claim.compact.table].summary.rounds
    there = {
        experiment.tables[item].summary.rounds for item in claim.tables if item in experiment.tables
    }
    # Sorted so that one that differs comes last: later ones are kept.
    return [
        Difference("evaluated rounds that count", rounds, here)
        for rounds in sorted(there, key=lambda rounds: rounds != here)
    ]


def _of(workbench: Workbench, setting: Setting) -> Values:
    """All that determines training in a setting, apart from its methods."""
    values: Values = {"data set": setting.dataset, "network": setting.model}
    scheme, optimizer, rate = setting.partition, setting.optimizer, schedule_of(setting)
    size = workbench.datasets[setting.dataset].size
    shares = estimated_shares(setting, size) if size else None
    if shares:
        cohort = cohort_size(setting, shares.clients)
        steps = shares.steps / shares.clients * setting.epochs
        values |= {
            "clients": shares.clients,
            "clients in a round": cohort,
            "share of clients in a round": _rounded(cohort / shares.clients),
            "rounds": setting.rounds,
            "rounds in which a client takes part": _rounded(
                setting.rounds * cohort / shares.clients
            ),
            "training samples of a client": _rounded(shares.train / shares.clients),
            "local steps in a round": _rounded(steps),
        }
    inner = getattr(scheme, "within", None) or scheme
    values |= {
        "local epochs": setting.epochs,
        "mini-batch": setting.batch_size,
        "partition": inner.scheme,
        **{
            f"partition: {key}": str(value) if isinstance(value, list | dict) else value
            for key, value in inner.model_dump(mode="json").items()
            if key not in SIZES and value
        },
        "optimizer": optimizer.name,
        "learning rate": optimizer.lr,
        "momentum": optimizer.momentum,
        "weight decay": optimizer.weight_decay,
        "betas": " and ".join(map(str, optimizer.betas)) if optimizer.name == "adam" else None,
        "learning rate at the end, by that at the start": _rounded(
            rate(setting.rounds - 1) / rate(0)
        ),
        "label noise": f"{setting.noise.kind} {setting.noise.rate}" if setting.noise else None,
        "augmentation": setting.augment,
    }
    if setting.evaluator:
        values |= {
            f"judge of the synthetic set: {words}": getattr(setting.evaluator, key)
            for key, words in JUDGE.items()
        }
    return values


def _of_method(workbench: Workbench, setting: Setting, method: str, seed: int) -> Values:
    """A method's hyperparameters and inputs in a setting; none if it cannot run there."""
    try:
        spec = workbench.run_spec(setting.name, method, seed)
    except UserError:
        return {}
    return _of_spec(workbench, spec)


def _tried_with(workbench: Workbench, setting: str, method: str) -> list[str]:
    """The methods of a cell of the paper's tables that prints the best of several, or the one."""
    system = setting.partition("/")[0]
    cells = (
        cell
        for item in workbench.experiments[system].tables
        for cell in workbench.table(system, item, "paper").cells
    )
    return next(
        (
            list(cell.methods)
            for cell in cells
            if cell.setting == setting and method in cell.methods
        ),
        [method],
    )


def _of_best(workbench: Workbench, setting: Setting, methods: list[str], seed: int) -> Values:
    """The hyperparameters of methods of which a paper prints the best: of some keys several."""
    each = [_of_method(workbench, setting, method, seed) for method in methods]
    tried = {key: list(dict.fromkeys(values.get(key) for values in each)) for key in each[0]}
    return {
        key: values[0] if len(values) == 1 else f"best of {', '.join(map(_shown, values))}"
        for key, values in tried.items()
    }


def _hyperparameters(workbench: Workbench, spec: RunSpec) -> Values:
    """The hyperparameters of a run's method, wrappers and server optimizer, with the defaults."""
    values: Values = {}
    for part in Composition.parse(spec.composition).parts:
        base = part.name
        defaults = defaults_of(base, workbench.plugins, part.released)
        hyperparameters = {**defaults, **spec.hyperparameters[base]}
        values |= {f"{base}: {key}": value for key, value in hyperparameters.items()}
    return values


def _of_spec(workbench: Workbench, spec: RunSpec) -> Values:
    values = _hyperparameters(workbench, spec)
    for need, source in spec.inputs.items():
        if isinstance(source, RunSpec):
            inner = _of(workbench, source.setting)
            keys = ("data set", "network", "training samples of a client", "mini-batch",
                    "optimizer", "learning rate", "betas")  # fmt: skip
            values |= {f"{need}: {key}": inner[key] for key in keys if inner.get(key) is not None}
            values[f"{need}: epochs in all"] = source.setting.rounds * source.setting.epochs
            if "local steps in a round" in inner:
                own = _hyperparameters(workbench, source)
                # A generator takes a step after so many of its critic's.
                critic = next((own[key] for key in own if key.endswith(": critic_steps")), None)
                steps = source.setting.rounds * inner["local steps in a round"]
                values[f"{need}: steps in all"] = steps // critic if critic else _rounded(steps)
            further = _of_spec(workbench, source)
            values |= {key: value for key, value in further.items() if key not in values}
        elif isinstance(source, ArtifactFromData):
            values[f"{need}: data set"] = source.dataset
    return values


def _rounded(value: float) -> float | int:
    """With four digits, so that a share of samples that is all but equal is equal."""
    rounded = float(f"{value:.4g}")
    return int(rounded) if rounded == int(rounded) else rounded


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:,g}" if isinstance(value, float) else str(value)
