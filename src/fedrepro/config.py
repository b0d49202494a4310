"""Experiments are data: typed models of ``config/`` and what follows from them.

``load`` reads ``config/config.yaml`` and every ``config/experiments/*.yaml``. The result, a
:class:`Workbench`, knows each setting, each table with the runs it needs at a scale, and the
resolved description of every run. Nothing here imports torch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, PrivateAttr, Tag, field_validator, model_validator

from fedrepro.data.catalogue import CATALOGUE, DatasetSpec, load_datasets
from fedrepro.data.schemes import PartitionSpec, Share
from fedrepro.errors import UserError, bad_value
from fedrepro.fingerprint import EXECUTION
from fedrepro.models import MODELS
from fedrepro.typed_yaml import Real, Typed, Whole, expected, plain_or, read_yaml, validate

Scale = Literal["demo", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Executor = Literal["auto", "sequential", "vectorised"]
Scalar = bool | int | float | str | None
Hyperparameters = dict[str, Annotated[Scalar, expected("a number, a word, true, false or null")]]

CONFIG = Path("config/config.yaml")
EXPERIMENTS = Path("config/experiments")


PositiveWhole = Annotated[Whole, Field(ge=1), expected("a whole number of at least 1")]
Seed = Annotated[Whole, Field(ge=0, lt=2**32), expected("a whole number from 0 to 4294967295")]
PositiveReal = Annotated[
    Real, Field(gt=0, allow_inf_nan=False), expected("a finite number above 0")
]
NonNegativeReal = Annotated[
    Real, Field(ge=0, allow_inf_nan=False), expected("a finite number of at least 0")
]
Fraction = Annotated[Real, Field(gt=0, le=1), expected("a number above 0 and at most 1")]
Momentum = Annotated[Real, Field(ge=0, lt=1), expected("a number of at least 0 and below 1")]
Device = Annotated[
    str, Field(pattern=r"^(cpu|cuda(:\d+)?)$"), expected("cpu, cuda or cuda:<number>")
]
# Names become folders and parts of addresses on the site.
Name = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80),
    expected("a name of letters, digits, '_', '-' and '.'"),
]
Composition = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_.]+(@released)?(\+[A-Za-z0-9_.]+(@released)?)*$", max_length=120),
    expected("method names joined by '+', such as ima+fedprox"),
]


class Seeds(Typed):
    """Which seeds each scale runs."""

    demo: tuple[Seed, ...] = Field(default=(1,), min_length=1)
    paper: tuple[Seed, ...] = Field(default=(1, 2, 3), min_length=1)

    @field_validator("demo", "paper")
    @classmethod
    def _distinct(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("seeds that differ from each other")
        return seeds


class DataSources(Typed):
    """Where data are looked for."""

    archives: Path | None = Field(
        default=None, description="A folder of archives that is looked in before the network."
    )


class Config(Typed):
    """config/config.yaml."""

    scale: Scale = "demo"
    seeds: Seeds = Seeds()
    device: Device = "cpu"
    threads: PositiveWhole = Field(default=1, description="CPU threads of one run.")
    executor: Executor = "auto"
    checkpoint_every: PositiveWhole = Field(default=10, description="Rounds between checkpoints.")
    data: DataSources = DataSources()


class Overrides(Typed):
    """What one call may set otherwise than config.yaml."""

    scale: Scale | None = None
    device: Device | None = None
    executor: Executor | None = None


class OptimizerSpec(Typed):
    """The clients' SGD."""

    lr: PositiveReal
    momentum: Momentum = 0.0
    weight_decay: NonNegativeReal = 0.0


class StepDecay(Typed):
    """A learning rate that stays the same for some rounds and is then multiplied."""

    factor: Fraction
    every: PositiveWhole = Field(description="Rounds with the same learning rate.")


Decay = Annotated[
    Annotated[Fraction, Tag("plain")] | Annotated[StepDecay, Tag("StepDecay")], plain_or(StepDecay)
]


class Evaluate(Typed):
    """When the model is evaluated, and on whose data."""

    every: PositiveWhole = Field(default=1, description="Rounds between evaluations.")
    clients: bool = Field(default=False, description="Also on each client's own test split.")


class Noise(Typed):
    """Labels that are wrong on purpose: the next class, or any other one."""

    kind: Literal["pair", "symmetric"]
    rate: Share = Field(description="The probability that a label is wrong.")
    everywhere: bool = Field(
        default=False, description="Also on clients' own test samples, as SuPerFed's code does."
    )


class Setting(Typed):
    """Data set + partition + model + optimisation + rounds."""

    extends: str | None = Field(
        default=None, description="A setting of this file that gives all keys that are missing."
    )
    dataset: Name
    partition: PartitionSpec
    model: Name
    rounds: PositiveWhole
    participation: Fraction = Field(description="The fraction of clients in a round's cohort.")
    epochs: PositiveWhole = Field(description="Passes of a client over its data in one round.")
    batch_size: PositiveWhole
    optimizer: OptimizerSpec
    lr_decay: Decay = Field(
        default=1.0, description="Factor on the learning rate per round, or every so many rounds."
    )
    evaluate: Evaluate = Evaluate()
    noise: Noise | None = None
    methods: dict[str, Hyperparameters] = Field(
        default={}, description="Hyperparameters that differ in this setting, by part name."
    )
    _name: str = PrivateAttr(default="")

    @property
    def name(self) -> str:
        """``<system>/<setting>``."""
        return self._name

    def partition_path(self, seed: int) -> Path:
        """Where the shares of the clients are, the same file for all methods."""
        folder = Path("results/partitions") / self.dataset / self.partition.name
        return folder / f"seed{seed}.npz"


class PublishedTable(Typed):
    """Which printed table of the system's paper a table answers."""

    table: str


# Where a client's model lies between the shared one (weight 0) and its own (1): at the method's own
# weight; at the one of 0, .1 .. 1 whose accuracy is best on average, the same for all clients; or
# as SuPerFed's code has it (discrepancies 23 and 24): every client's accuracy at the weight that is
# best on its own test samples, all else the greatest value over the weights that any client chose.
Mix = Literal["fixed", "best", "released"]


class OverClients(Typed):
    """What clients score on their own test samples, as one number over all of them.

    ``average``, ``worst`` and ``best`` are in printed units (percent), the latter two over the
    tenth of clients, but at least one, with the least or greatest scores; ``gini`` is Gini's
    coefficient times 100, ``gap`` best less worst.
    """

    of: Literal["accuracy", "top5", "auroc", "loss", "ece", "mce", "ece_batch", "mce_batch"]
    over_clients: Literal["average", "worst", "best", "gini", "gap"]
    weighted: bool = Field(
        default=True, description="Averages weigh clients by test samples, as AAggFF's code does."
    )
    mix: Mix = Field(
        default="fixed", description="At which mixture, where clients mix two models of theirs."
    )


Metric = Annotated[
    Annotated[Literal["accuracy", "loss"], Tag("plain")]
    | Annotated[OverClients, Tag("OverClients")],
    plain_or(OverClients),
]


class Summary(Typed):
    """How a run's learning curve becomes one number: the mean of its last evaluated rounds."""

    over: Literal["last"] = "last"
    rounds: PositiveWhole = 1


class Place(Typed):
    """One setting of a figure; at scale demo the setting named by ``demo`` stands in for it."""

    label: str
    setting: Name
    demo: Name | None = None

    def setting_at(self, scale: Scale) -> str:
        return self.demo if scale == "demo" and self.demo else self.setting


class Row(Place):
    """One setting of a table and what is measured there."""

    metric: Metric | None = Field(default=None, description="Instead of the table's metric.")
    published: dict[str, str] = Field(
        default={}, description="The printed row: its values in reports/published/."
    )


class Column(Typed):
    """One method of a table, or several of which the best counts."""

    label: str
    method: Composition | Annotated[list[Composition], Field(min_length=1)]
    demo: Composition | Annotated[list[Composition], Field(min_length=1)] | None = None
    published: str | None = Field(default=None, description="The printed name of the column.")
    mix: Mix | None = Field(default=None, description="Instead of the metric's mixture.")

    def methods_at(self, scale: Scale) -> tuple[str, ...]:
        chosen = self.demo if scale == "demo" and self.demo else self.method
        return (chosen,) if isinstance(chosen, str) else tuple(chosen)


class Table(Typed):
    """A published table: rows of settings, columns of methods."""

    title: str
    published: PublishedTable | None = None
    metric: Metric = "accuracy"
    summary: Summary = Summary()
    rows: list[Row] = Field(min_length=1)
    columns: list[Column] = Field(min_length=1)

    def metric_of(self, row: Row, column: Column | None = None) -> Metric:
        """What a row measures, in a column as far as that has a say."""
        metric = row.metric or self.metric
        if isinstance(metric, OverClients) and column and column.mix:
            return metric.model_copy(update={"mix": column.mix})
        return metric


class Responses(Typed):
    """A table of responses of distribution functions to losses: computed, nothing is run."""

    kind: Literal["responses"]
    title: str


class ClientStatistics(Typed):
    """A table of what clients hold, counted in data that have been prepared."""

    kind: Literal["client_statistics"]
    title: str
    settings: dict[str, Name] = Field(description="The setting of each printed data set.")


Computed = Annotated[Responses | ClientStatistics, Field(discriminator="kind")]


class Charts(Typed):
    """A panel for each row; in it a bar, or a learning curve, for each column."""

    kind: Literal["bars", "lines"]
    title: str
    metric: Metric = "accuracy"
    summary: Summary = Summary()
    rows: list[Row] = Field(min_length=1)
    columns: list[Column] = Field(min_length=1)

    def needs(self, scale: Scale) -> "Needs":
        return [
            (row.setting_at(scale), method)
            for row in self.rows
            for column in self.columns
            for method in column.methods_at(scale)
        ]


class Regret(Typed):
    """A panel for each setting: the regret of a method's decisions, and its proven bound."""

    kind: Literal["regret"]
    title: str
    method: Composition
    panels: list[Place] = Field(min_length=1)

    def needs(self, scale: Scale) -> "Needs":
        return [(place.setting_at(scale), self.method) for place in self.panels]


class Axis(Typed):
    """One side of a heat map: what varies, and its values."""

    label: str
    values: list[str | Whole | Real] = Field(min_length=1)


class MethodGrid(Typed):
    """One panel of a heat map: rows by the values of y, each with a method for every x."""

    label: str
    methods: list[list[Composition]] = Field(min_length=1)


class HeatMap(Typed):
    """Panels in which two hyperparameters vary; every cell is a method.

    Scale demo has the corners only: the least and the greatest value of each.
    """

    kind: Literal["heat_map"]
    title: str
    setting: Name
    demo: Name | None = None
    metric: Metric = "accuracy"
    summary: Summary = Summary()
    x: Axis
    y: Axis
    panels: list[MethodGrid] = Field(min_length=1)

    @model_validator(mode="after")
    def _as_large_as_its_axes(self) -> Self:
        wide, high = len(self.x.values), len(self.y.values)
        for panel in self.panels:
            if [len(row) for row in panel.methods] != [wide] * high:
                raise ValueError(f"{high} rows of {wide} methods in the panel {panel.label!r}")
        return self

    def at(self, scale: Scale) -> Self:
        """The figure with the values that a scale has."""
        if scale == "paper":
            return self

        def ends(values: Sequence[Any]) -> list[Any]:
            return [values[0], values[-1]] if len(values) > 1 else list(values)

        x, y = (axis.model_copy(update={"values": ends(axis.values)}) for axis in (self.x, self.y))
        panels = [
            panel.model_copy(update={"methods": [ends(row) for row in ends(panel.methods)]})
            for panel in self.panels
        ]
        return self.model_copy(update={"x": x, "y": y, "panels": panels})

    def needs(self, scale: Scale) -> "Needs":
        setting = self.demo if scale == "demo" and self.demo else self.setting
        panels = self.at(scale).panels
        return [(setting, name) for panel in panels for row in panel.methods for name in row]


class Mixtures(Typed):
    """A panel for each setting: accuracy of the clients' mixed models along the weight."""

    kind: Literal["mixtures"]
    title: str
    panels: list[Place] = Field(min_length=1)
    columns: list[Column] = Field(min_length=1)

    def needs(self, scale: Scale) -> "Needs":
        return [
            (place.setting_at(scale), method)
            for place in self.panels
            for column in self.columns
            for method in column.methods_at(scale)
        ]


class Landscape(Typed):
    """A panel for each method: the loss around its model, of the first seed."""

    kind: Literal["landscape"]
    title: str
    setting: Name
    demo: Name | None = None
    columns: list[Column] = Field(min_length=1)

    def needs(self, scale: Scale) -> "Needs":
        setting = self.demo if scale == "demo" and self.demo else self.setting
        return [(setting, name) for column in self.columns for name in column.methods_at(scale)]


Needs = list[tuple[str, str]]  # the settings and methods that a figure is made from
Figure = Annotated[Charts | Regret | HeatMap | Mixtures | Landscape, Field(discriminator="kind")]


class Experiment(Typed):
    """config/experiments/<system>.yaml."""

    system: Name
    title: str
    paper: str
    seeds: Seeds | None = Field(default=None, description="Instead of those of config.yaml.")
    methods: dict[str, Hyperparameters] = Field(
        default={},
        description="Hyperparameters by part name; with the key 'use', a named variant of a part.",
    )
    settings: dict[Name, Setting]
    tables: dict[Name, Table] = Field(default={})
    computed: dict[Name, Computed] = Field(default={}, description="Tables that need no runs.")
    figures: dict[Name, Figure] = Field(default={})


@dataclass(frozen=True)
class Run:
    """Setting x method x seed."""

    setting: str
    method: str
    seed: int

    @property
    def folder(self) -> Path:
        return Path("results/runs") / self.setting / self.method / f"seed{self.seed}"

    @property
    def landscape(self) -> Path:
        """The loss around its model, if a figure asks for it."""
        return Path("results/landscapes") / self.setting / self.method / f"seed{self.seed}.json"


@dataclass(frozen=True)
class Cell:
    """One cell of a table: a setting, the methods of which the best counts, the seeds."""

    row: Row
    column: Column
    setting: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]

    def runs(self, method: str) -> tuple[Run, ...]:
        """One run per seed of one of the cell's methods."""
        return tuple(Run(self.setting, method, seed) for seed in self.seeds)


@dataclass(frozen=True)
class Target:
    """What has a page of its own at a scale: a target of the workflow."""

    system: str
    item: str
    scale: Scale

    @property
    def page(self) -> Path:
        return Path("reports/site") / self.system / f"{self.item}.html"

    @property
    def runs(self) -> tuple[Run, ...]:
        """Every run that the page needs, each once."""
        return ()


@dataclass(frozen=True)
class ComputedTarget(Target):
    """A table that needs no runs."""

    spec: Computed


@dataclass(frozen=True)
class FigureTarget(Target):
    """A figure at a scale."""

    figure: Figure
    seeds: tuple[int, ...]

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        found = dict.fromkeys(self.figure.needs(self.scale))
        return tuple(
            Run(f"{self.system}/{setting}", method, seed)
            for setting, method in found
            for seed in self.seeds
        )

    @property
    def landscapes(self) -> tuple[Run, ...]:
        """The runs around whose models the loss is looked at."""
        wanted = isinstance(self.figure, Landscape)
        return tuple(run for run in self.runs if wanted and run.seed == self.seeds[0])


@dataclass(frozen=True)
class TableTarget(Target):
    """A table at a scale."""

    table: Table
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]  # row by row

    @property
    def path(self) -> Path:
        return Path("results/tables") / self.scale / self.system / f"{self.item}.json"

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        found = (run for cell in self.cells for name in cell.methods for run in cell.runs(name))
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Workbench:
    """All of ``config/``, checked."""

    root: Path
    config: Config
    experiments: Mapping[str, Experiment]
    datasets: Mapping[str, DatasetSpec]
    files: Mapping[str, Path]  # of each system

    @cached_property
    def settings(self) -> dict[str, Setting]:
        """All settings by full name, ``<system>/<setting>``."""
        return {
            setting.name: setting
            for experiment in self.experiments.values()
            for setting in experiment.settings.values()
        }

    def setting(self, name: str) -> Setting:
        """The setting of a full name such as ``ima/fmnist-shards2``.

        Raises:
            UserError: when there is none, with the nearest name.
        """
        if name not in self.settings:
            raise bad_value(EXPERIMENTS, "setting", name, "the name of a setting", self.settings)
        return self.settings[name]

    def seeds(self, scale: Scale, system: str) -> tuple[int, ...]:
        """The seeds of a system's runs at a scale."""
        seeds = self.experiments[system].seeds or self.config.seeds
        return seeds.demo if scale == "demo" else seeds.paper

    def tables(self, scale: str | None = None) -> dict[tuple[str, str], TableTarget]:
        """The tables by (system, item), with their runs at a scale (default: the configured)."""
        at = self.scale(scale)
        return {
            (system, item): self._target(system, item, table, at)
            for system, experiment in self.experiments.items()
            for item, table in experiment.tables.items()
        }

    def table(self, system: str, item: str, scale: str | None = None) -> TableTarget:
        """One table.

        Raises:
            UserError: when there is no such system, table or scale, with the nearest name.
        """
        if system not in self.experiments:
            raise bad_value(EXPERIMENTS, "system", system, "the name of a system", self.experiments)
        tables = self.experiments[system].tables
        if item not in tables:
            raise bad_value(self.files[system], "tables", item, "the name of a table", tables)
        return self._target(system, item, tables[item], self.scale(scale))

    def targets(self, scale: str | None = None) -> dict[tuple[str, str], Target]:
        """All that has a page, by (system, item): tables, then computed ones, then figures."""
        at = self.scale(scale)
        found: dict[tuple[str, str], Target] = {**self.tables(at)}
        for system, experiment in self.experiments.items():
            for item, spec in experiment.computed.items():
                found[system, item] = ComputedTarget(system, item, at, spec)
            for item, figure in experiment.figures.items():
                seeds = self.seeds(at, system)
                found[system, item] = FigureTarget(system, item, at, figure, seeds)
        return found

    def target(self, system: str, item: str, scale: str | None = None) -> Target:
        """One table or figure.

        Raises:
            UserError: when there is no such system, item or scale, with the nearest name.
        """
        found = self.targets(scale)
        if (system, item) not in found:
            if system not in self.experiments:
                known = self.experiments
                raise bad_value(EXPERIMENTS, "system", system, "the name of a system", known)
            items = [name for owner, name in found if owner == system]
            wanted = "the name of a table or figure"
            raise bad_value(self.files[system], "tables", item, wanted, items)
        return found[system, item]

    def scale(self, name: str | None) -> Scale:
        """The scale of a name; without one, the configured scale."""
        for scale in SCALES:
            if scale == (name or self.config.scale):
                return scale
        raise bad_value("the command line", "scale", name, "demo or paper", SCALES)

    def run_config(self, setting: str, method: str, seed: int) -> dict[str, Any]:
        """The resolved description of a run, as it goes into its manifest.

        ``method`` is the name that the run is filed under; ``composition`` has variants replaced
        by the parts they use; ``hyperparameters`` has those of each part, by the part's name
        without ``@released``. The keys of ``EXECUTION`` say how to run, not what.
        """
        spec = self.setting(setting)
        # Without noise there is no key: runs from before there was such a thing stay the same.
        unsaid = {"extends", "methods"} | (set() if spec.noise else {"noise"})
        described = spec.model_dump(mode="json", exclude=unsaid)
        composition, hyperparameters = self.compose(spec, method)
        execution = {key: getattr(self.config, key) for key in EXECUTION}
        return {
            "setting": spec.name,
            "method": method,
            "composition": composition,
            "hyperparameters": hyperparameters,
            "seed": seed,
            **described,
            **execution,
        }

    def compose(self, setting: Setting, method: str) -> tuple[str, dict[str, Hyperparameters]]:
        """A method's composition with variants resolved, and its parts' hyperparameters."""
        system = setting.name.partition("/")[0]
        given = self.experiments[system].methods
        merged = {
            part: {**given.get(part, {}), **setting.methods.get(part, {})}
            for part in {*given, *setting.methods}
        }
        parts: list[str] = []
        hyperparameters: dict[str, Hyperparameters] = {}
        for part in method.split("+"):
            name, at, fidelity = part.partition("@")
            own = dict(merged.get(name, {}))
            base = str(own.pop("use", name))
            inherited = merged.get(base, {}) if base != name else {}
            parts.append(f"{base}{at}{fidelity}")
            hyperparameters[base] = {**inherited, **own}
        return "+".join(parts), hyperparameters

    def _target(self, system: str, item: str, table: Table, scale: Scale) -> TableTarget:
        cells = tuple(
            Cell(
                row,
                column,
                f"{system}/{row.setting_at(scale)}",
                column.methods_at(scale),
                self.seeds(scale, system),
            )
            for row in table.rows
            for column in table.columns
        )
        return TableTarget(system, item, scale, table, self.seeds(scale, system), cells)


def load(root: Path = Path(), overrides: Overrides | None = None) -> Workbench:
    """Read and check all of ``root/config``.

    Raises:
        UserError: for the first fault: one line with file, key, value and what was expected.
    """
    written = read_yaml(root / CONFIG, CONFIG)
    config = validate(Config, {} if written is None else written, CONFIG)
    if overrides:
        config = config.model_copy(update=overrides.model_dump(exclude_none=True))
    datasets = load_datasets(root / CATALOGUE)
    experiments: dict[str, Experiment] = {}
    files: dict[str, Path] = {}
    for path in sorted((root / EXPERIMENTS).glob("*.yaml")):
        shown = path.relative_to(root)
        experiment = _experiment(path, shown)
        if experiment.system != path.stem:
            raise bad_value(shown, "system", experiment.system, f"the file's name, '{path.stem}'")
        experiments[experiment.system], files[experiment.system] = experiment, shown
        _check_references(experiment, shown, datasets)
    if not experiments:
        raise UserError(f"{EXPERIMENTS}: expected at least one <system>.yaml")
    return Workbench(root, config, experiments, datasets, files)


def _experiment(path: Path, shown: Path) -> Experiment:
    data = read_yaml(path, shown)
    if isinstance(data, dict) and isinstance(data.get("settings"), dict):
        data = {**data, "settings": _extend_all(data["settings"], shown)}
    experiment = validate(Experiment, data, shown)
    for name, setting in experiment.settings.items():
        setting._name = f"{experiment.system}/{name}"
    return experiment


def _extend_all(raw: Mapping[object, object], shown: Path) -> dict[object, object]:
    """Settings with ``extends`` resolved: a key that is not given is taken over whole.

    Settings that others extend come first, so that a wrong value is reported where it stands.
    """
    done: dict[object, object] = {}

    def extend(name: object, above: tuple[object, ...]) -> object:
        if name in done:
            return done[name]
        own = raw[name]
        if isinstance(own, dict) and "extends" in own:
            parent = own["extends"]
            key = f"settings.{name}.extends"
            if not isinstance(parent, str) or parent not in raw:
                choices = [str(choice) for choice in raw]
                raise bad_value(shown, key, parent, "a setting of this file", choices)
            if parent in (*above, name):
                raise bad_value(shown, key, parent, "a setting that does not extend this one")
            inherited = extend(parent, (*above, name))
            own = {**inherited, **own} if isinstance(inherited, dict) else inherited
        done[name] = own
        return own

    for name in raw:
        extend(name, ())
    return done


def _check_references(
    experiment: Experiment, shown: Path, datasets: Mapping[str, DatasetSpec]
) -> None:
    """Refuse names of data sets, models and settings that do not exist."""
    for name, setting in experiment.settings.items():
        key = f"settings.{name}.dataset"
        if setting.dataset not in datasets:
            raise bad_value(shown, key, setting.dataset, f"a data set of {CATALOGUE}", datasets)
        if setting.model not in MODELS:
            expectation = f"one of {', '.join(MODELS)}"
            raise bad_value(shown, f"settings.{name}.model", setting.model, expectation, MODELS)
    for where, value in _named_settings(experiment):
        if value is not None and value not in experiment.settings:
            raise bad_value(shown, where, value, "a setting of this file", experiment.settings)
    sections: dict[str, Iterable[str]] = {
        "tables": experiment.tables,
        "computed": experiment.computed,
        "figures": experiment.figures,
    }
    seen: set[str] = set()
    for section, items in sections.items():
        for item in items:
            if item in seen:
                raise bad_value(shown, section, item, "a name that no other table or figure has")
            seen.add(item)


def _named_settings(experiment: Experiment) -> Iterator[tuple[str, str | None]]:
    """Where a table or figure names a setting, and which."""
    for item, table in experiment.tables.items():
        yield from _of_places(f"tables.{item}.rows", table.rows)
    for item, spec in experiment.computed.items():
        if isinstance(spec, ClientStatistics):
            for dataset, setting in spec.settings.items():
                yield f"computed.{item}.settings.{dataset}", setting
    for item, figure in experiment.figures.items():
        match figure:
            case Charts():
                yield from _of_places(f"figures.{item}.rows", figure.rows)
            case Regret() | Mixtures():
                yield from _of_places(f"figures.{item}.panels", figure.panels)
            case HeatMap() | Landscape():
                yield f"figures.{item}.setting", figure.setting
                yield f"figures.{item}.demo", figure.demo


def _of_places(where: str, places: Sequence[Place]) -> Iterator[tuple[str, str | None]]:
    for number, place in enumerate(places):
        yield f"{where}.{number}.setting", place.setting
        yield f"{where}.{number}.demo", place.demo
