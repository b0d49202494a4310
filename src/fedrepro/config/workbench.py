"""The contents of ``config/``, and what follows from them: settings, runs and targets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from fedrepro.config.config_file import Config, Seeds
from fedrepro.config.experiment import EXPERIMENTS, Experiment, how_to_add
from fedrepro.config.run_spec import Execution, ResolvedSource, RunSpec
from fedrepro.config.searches import LONGEST, Searched
from fedrepro.config.settings import ArtifactFromData, ArtifactFromFile, ArtifactFromRun, Setting
from fedrepro.config.tables import full_name, wrapped
from fedrepro.config.targets import (
    Cell,
    ComputedTarget,
    FigureTarget,
    RunKey,
    SearchTarget,
    TableTarget,
    Target,
    Trial,
)
from fedrepro.config.values import SCALES, Hyperparameters, Scalar, Scale
from fedrepro.data.catalogue.catalogue import Weights
from fedrepro.data.catalogue.kinds import DatasetSpec
from fedrepro.methods.facts import defaults_of, facts_of
from fedrepro.methods.files import part_files, unknown_part
from fedrepro.support.errors import COMMAND_LINE, bad_argument, bad_value, nearest, refusal
from fedrepro.support.names import Composition, Part, SettingName
from fedrepro.support.plugins import Folders


@dataclass(frozen=True)
class Workbench:
    """All of ``config/``, checked."""

    root: Path
    config: Config
    experiments: Mapping[str, Experiment]
    datasets: Mapping[str, DatasetSpec]
    files: Mapping[str, Path]  # the experiment file of each system
    # By model, the name and catalogue entry of the pretrained weights that it starts from.
    weights: Mapping[str, tuple[str, Weights]]
    # All entries of the catalogue's section `weights`.
    catalogue_weights: Mapping[str, Weights] = field(default_factory=dict)

    @cached_property
    def plugins(self) -> Folders:
        """The folders of its plug-ins."""
        return self.config.plugins.under(self.root)

    @cached_property
    def settings(self) -> dict[str, Setting]:
        """All settings, in all readings, by full name, ``<system>/<setting>[@released]``."""
        return {
            setting.name: setting
            for experiment in self.experiments.values()
            for setting in experiment.readings.values()
        }

    def setting(self, name: str) -> Setting:
        """The setting of a full name such as ``ima/fmnist-shards2``, in the reading it asks for.

        Raises:
            UserError: when there is none, with the nearest name.
        """
        setting = self.find_setting(name)
        if setting is None:
            base = SettingName.parse(name).plain
            if str(base) in self.settings:
                wanted = f"a setting with `released` keys; {base} has none"
                raise bad_value(self.files[base.system], "setting", name, wanted)
            wanted = f"the name of a setting{how_to_add(name, self.root)}"
            raise bad_value(EXPERIMENTS, "setting", name, wanted, self.settings)
        return setting

    def find_setting(self, name: str) -> Setting | None:
        """The same, or None; one with other values of keys, which ``--set`` makes, by its name."""
        experiment = self.experiments.get(SettingName.parse(name).system)
        setting = experiment.reading(SettingName.parse(name).local) if experiment else None
        if setting and setting.dataset not in self.datasets:  # of `--set`: files are checked
            raise bad_value(name, "dataset", setting.dataset, "a data set", self.datasets)
        return setting

    def seeds_of(self, setting: str, method: str, scales: Iterable[str]) -> set[int]:
        """The seeds of a setting's runs with a method in all tables and figures at some scales."""
        return {run.seed for run in self.runs_of(setting, scales) if run.method == method}

    def runs_of(self, setting: str, scales: Iterable[str]) -> set[RunKey]:
        """A setting's runs in all tables and figures at some scales."""
        targets = (target for scale in scales for target in self.targets(scale, setting).values())
        return {run for target in targets for run in target.runs if run.setting == setting}

    def histogram_of(self, setting: str) -> Path:
        """The file with each client's class counts, for a setting and the first paper seed.

        The number of samples of a natural client does not depend on the seed.
        """
        seed = self.seeds("paper", SettingName.parse(setting).system)[0]
        return self.setting(setting).partition_path(seed).with_suffix(".json")

    def is_prepared(self, setting: str) -> bool:
        """Whether a setting's data set is prepared."""
        dataset = self.setting(setting).dataset
        return (self.root / "results/data" / dataset / "meta.json").exists()

    def surrogate_for(self, setting: str) -> str | None:
        """The data set for which a setting's data set is a surrogate, if it is one."""
        return self.datasets[self.setting(setting).dataset].surrogate_for

    def seeds(self, scale: Scale, system: str, instead: Seeds | None = None) -> tuple[int, ...]:
        """The seeds of a system's runs at a scale; ``instead`` replaces them."""
        seeds = instead or self.experiments[system].seeds or self.config.seeds
        return {"demo": seeds.demo, "compact": seeds.compact, "paper": seeds.paper}[scale]

    def tables(
        self, scale: str | None = None, only: str | None = None, setting: str | None = None
    ) -> dict[tuple[str, str], TableTarget]:
        """The tables by (system, item), with runs at a scale (default: the configured one).

        Building all takes a tenth of a second.

        Args:
            only: the tables of this system.
            setting: the tables with a cell in this setting.
        """
        at = self.scale(scale)
        return {
            (system, item): self._table(system, item, at)
            for system, experiment in self.experiments.items()
            if only in (None, system)
            for item in experiment.all_tables
            if setting is None or setting in self._settings_of(system, item, at)
        }

    def table(self, system: str, item: str, scale: str | None = None) -> TableTarget:
        """One table.

        Raises:
            UserError: when there is no such system, table or scale, with the nearest name.
        """
        self._require(system)
        tables = self.experiments[system].all_tables
        if item not in tables:
            raise bad_value(self.files[system], "tables", item, "the name of a table", tables)
        return self._table(system, item, self.scale(scale))

    def targets(
        self, scale: str | None = None, setting: str | None = None
    ) -> dict[tuple[str, str], Target]:
        """Everything with a page, by (system, item): tables, computed tables, figures, searches.

        Args:
            setting: leaves out the tables without a cell in this setting.
        """
        at = self.scale(scale)
        targets: dict[tuple[str, str], Target] = {**self.tables(at, setting=setting)}
        for system, experiment in self.experiments.items():
            for items in (experiment.computed, experiment.figures, experiment.all_searches):
                targets |= {(system, item): self._other(system, item, at) for item in items}
        return targets

    def _other(self, system: str, item: str, asked: Scale) -> Target:
        """A target that is no table, at a scale."""
        experiment = self.experiments[system]
        if item in experiment.computed:
            return ComputedTarget(system, item, asked, experiment.computed[item])
        # What else has no runs of scale compact is shown beside those that have.
        at: Scale = "paper" if asked == "compact" else asked
        if item in experiment.all_searches:
            at = "compact" if item in experiment.compact_search else at
            return replace(self.search(system, item, at), awaited=at == asked)
        figure = experiment.figures[item]
        seeds = self.seeds(at, system, figure.seeds)
        return FigureTarget(system, item, at, figure, seeds, awaited=at == asked)

    def search(self, system: str, item: str, scale: Scale) -> SearchTarget:
        """An existing search, with its candidates."""
        experiment = self.experiments[system]
        search = experiment.all_searches[item]
        search = search.with_task_defaults(
            self.datasets[experiment.settings[search.setting].dataset].task
        )
        trials = []
        for searched in search.methods:
            published = experiment.choice(search, searched)
            assert published is not None  # checked on loading
            trials.append(Trial.of(searched, published))
        setting = f"{system}/{search.reading(search.setting_at(scale))}"
        seeds = self.seeds(scale, system, search.seeds)
        return SearchTarget(system, item, scale, search, setting, seeds, tuple(trials))

    def target(self, system: str, item: str, scale: str | None = None) -> Target:
        """One table or figure.

        Raises:
            UserError: when there is no such system, item or scale, with the nearest name.
        """
        # Build only this one: the workflow asks for each target by name.
        self._require(system)
        at, experiment = self.scale(scale), self.experiments[system]
        if item in experiment.all_tables:
            return self._table(system, item, at)
        items = [*experiment.all_tables, *experiment.computed, *experiment.figures]
        items += experiment.all_searches
        if item not in items:
            wanted = "the name of a table or figure"
            raise bad_value(self.files[system], "tables", item, wanted, items)
        return self._other(system, item, at)

    def _require(self, system: str) -> None:
        """Raise UserError, with the nearest name, if a system has no experiment file."""
        if system not in self.experiments:
            here = ", ".join(self.experiments)
            added = how_to_add(system, self.root)
            expectation = f"a system with an experiment file: {here}{added}"
            raise bad_value(EXPERIMENTS, "system", system, expectation, self.experiments)

    def scale(self, name: str | None) -> Scale:
        """The scale of a name; without one, the configured scale."""
        for scale in SCALES:
            if scale == (self.config.scale if name is None else name):
                return scale
        raise bad_argument("scale", name, "demo, compact or paper", SCALES)

    def run_spec(self, name: str, method: str, seed: int, above: tuple[str, ...] = ()) -> RunSpec:
        """A run of the setting ``name`` with everything resolved.

        Args:
            above: the runs that have it as an input, as errors name them.

        Raises:
            UserError: if the setting does not exist, or lacks an input that the method requires.
        """
        setting, config = self.setting(name), self.config
        setting = setting.with_task_defaults(self.datasets[setting.dataset].task)
        composition, hyperparameters = self.composition_of(setting, method)
        execution = Execution(
            config.executor, config.device, config.threads, config.checkpoint_every
        )
        late = max(setting.save_models_at.get(method, ()), default=0)
        if late > setting.rounds:
            where = self.files[setting.system]
            key = f"settings.{setting.local_name}.save_models_at.{method}"
            raise bad_value(where, key, late, f"a round of the run, at most {setting.rounds}")
        here = f"{name} {method} seed {seed}"
        if here in above:
            way = " <- ".join((*above[above.index(here) :], here))
            why = f"inputs: {way}: circular: a run cannot be its own input"
            raise refusal(self.files[setting.system], why, "inputs", way)
        facts = facts_of(composition, self.plugins)
        needs = facts.requires
        if unneeded := setting.unneeded_key(needs):
            where, key = self.files[setting.system], f"settings.{setting.local_name}.{unneeded[0]}"
            expectation = f"none for method {method}, which uses no {unneeded[1]}"
            raise bad_value(where, key, getattr(setting, unneeded[0]), expectation)
        optional = (name for name in facts.optional if name in setting.inputs)
        inputs = {
            name: self._source(setting, name, method, seed, (*above, here))
            for name in (*needs, *optional)
        }
        return RunSpec(
            setting,
            method,
            composition,
            hyperparameters,
            seed,
            execution,
            weights=self.weights.get(setting.model),
            inputs=inputs,
            plugins=self.plugins,
            data_size=self.datasets[setting.dataset].size,
        )

    def spec_of(self, run: RunKey) -> RunSpec:
        """The same for a run."""
        return self.run_spec(run.setting, run.method, run.seed)

    def _source(
        self, setting: Setting, need: str, method: str, seed: int, above: tuple[str, ...]
    ) -> ResolvedSource:
        """The source of an input that a run's method requires."""
        where, key = self.files[setting.system], f"settings.{setting.local_name}.inputs.{need}"
        source = setting.inputs.get(need)
        match source:
            case None:
                wanted = f"'server', a run or a file{nearest(need, setting.inputs)}"
                why = f"{key}: missing: method {method} requires it: expected {wanted}"
                raise refusal(where, why, key, code="missing")
            case ArtifactFromRun():
                its_own = seed if source.seed is None else source.seed
                return self.run_spec(
                    f"{setting.system}/{source.setting}", source.method, its_own, above
                )
            case ArtifactFromFile():
                return source
        if need != "unlabelled":
            expectation = "a run or a file, because samples are not a model"
            raise bad_value(where, key, _shown(source), expectation)
        if isinstance(source, ArtifactFromData):
            return source
        if not setting.partition.server:
            expectation = "a partition with `server: share`, or a run or a file"
            raise bad_value(where, key, source, expectation)
        return source

    def composition_of(
        self, setting: Setting, method: str
    ) -> tuple[str, dict[str, Hyperparameters]]:
        """A method's composition with variants resolved, and its parts' hyperparameters."""
        parts: list[Part] = []
        hyperparameters: dict[str, Hyperparameters] = {}
        for part in Composition.parse(method).parts:
            base, values = self.experiments[setting.system].part(setting, part.name)
            parts.append(part.named(base))
            values.pop("parent", None)
            hyperparameters[base] = values
        return str(Composition.of(parts)), hyperparameters

    def with_variant(
        self, setting: Setting, method: str, values: Mapping[str, Scalar], option: str = "--set"
    ) -> "tuple[Workbench, str, str]":
        """A workbench with some values, and the names of the setting and the method with them.

        The names are those of a search's candidate with these values.

        Args:
            values: by hyperparameter, <part>.<hyperparameter>, or a key of the setting; of one name
                for both, the hyperparameter's.
            option: of the command line, which errors name.

        Raises:
            UserError: for a name that stands for nothing or for several things, or of which the
                method's name has a value, and for a name that another method has.
        """
        experiment = self.experiments[setting.system]
        bases = {name: experiment.part(setting, name) for name in Composition.parse(method).names}
        for base, _ in bases.values():
            if base not in part_files(self.plugins):
                fields_of = partial(defaults_of, folders=self.plugins)
                raise unknown_part(COMMAND_LINE, "METHOD", base, self.plugins, fields_of)
        known = {
            f"{name}.{key}": key
            for name, (base, _) in bases.items()
            for key in defaults_of(base, self.plugins)
        }
        grid: dict[str, list[Scalar]] = {}
        keys: dict[str, Scalar] = {}
        for key, value in values.items():
            having = [place for place, name in known.items() if key in (place, name)]
            of_setting = [] if having else setting.named(key)
            if {*having, *of_setting} & {*grid, *keys}:
                raise bad_argument(option, key, "each key once")
            if len(having or of_setting) != 1:
                of_key = "a key of the setting, such as optimizer.lr"
                choices = ", ".join(having or of_setting or (*known, of_key))
                every = (*known.values(), *known, *setting.scalars)
                raise bad_argument(option, key, f"one of {choices}", every)
            if of_setting:
                keys[of_setting[0]] = value
                continue
            (place,) = having
            name = place.removesuffix(f".{known[place]}")
            said = experiment.said_by(setting, name)
            if known[place] in said:
                wanted = f"none: the name {name} says {said[known[place]]}"
                raise bad_argument(f"{option} {key}", value, wanted)
            grid[place] = [value]
        parts = ("grid", grid), ("keys", {key: [value] for key, value in keys.items()})
        tried = {name: part for name, part in parts if part}
        searched = Searched.model_validate({"method": method, **tried})
        candidate = searched.candidate(keys | {place: value for place, (value,) in grid.items()})
        changed_setting = setting.name + candidate.suffix
        for name in (candidate.method, changed_setting):
            if len(name) > LONGEST:
                wanted = f"values that make a name of at most {LONGEST} characters"
                raise bad_argument(option, name, wanted)
        self._refuse_misread(setting, keys, changed_setting, option)
        methods = {**experiment.methods}
        for name, variant in searched.variants(candidate).items():
            if experiment.has_another(setting, name, variant):
                wanted = "a name that no other method has"
                raise bad_value(self.files[setting.system], "methods", name, wanted)
            if name not in {*methods, *setting.methods, *part_files(self.plugins)}:
                methods[name] = variant
        changed = experiment.model_copy(update={"methods": methods})
        experiments = {**self.experiments, experiment.system: changed}
        return replace(self, experiments=experiments), changed_setting, candidate.method

    def _refuse_misread(
        self, setting: Setting, keys: Mapping[str, Scalar], name: str, option: str
    ) -> None:
        """Raise UserError if a changed setting's name does not say which keys it has."""
        known, changed = self.find_setting(name), setting.with_keys(keys, self.plugins)
        if known is None or known.model_dump() != changed.model_dump():
            wanted = "numbers, true, false or words, which name a setting of its own"
            if name in self.settings:
                wanted = "values whose name no other setting of the experiment file has"
            raise bad_argument(option, name, wanted)

    def parent_of(self, run: RunKey) -> RunKey | None:
        """The run whose first rounds a run may share: its parent run.

        This is the run of the method that its outermost part wraps, or of its first part's
        ``parent``. It depends only on the run's own method, so that no other column of a table
        changes what a run waits for.
        """
        setting = self.setting(run.setting)
        method = Composition.parse(run.method)
        first, inner = method.parts[0], method.inner
        base, values = self.experiments[setting.system].part(setting, first.name)
        if facts_of(base, self.plugins).shares_prefix_with_inner:
            return RunKey(run.setting, str(inner) or "fedavg", run.seed)
        parent = values.get("parent")
        if not parent:
            return None
        parts = (first.named(str(parent)), *inner.parts)
        return RunKey(run.setting, str(Composition.of(parts)), run.seed)

    @cached_property
    def _made(self) -> dict[tuple[str, str, Scale], TableTarget]:
        """The targets of tables that were asked for: a process that renders pages asks often."""
        return {}

    def _table(self, *asked: *tuple[str, str, Scale]) -> TableTarget:
        if asked not in self._made:
            self._made[asked] = self._make_target(*asked)
        return self._made[asked]

    def _scale_of(self, system: str, item: str, asked: Scale) -> Scale:
        """The scale of a table's runs: compact tables are always at scale compact.

        While scale compact is asked for, all others are at scale paper.
        """
        if item in self.experiments[system].compact:
            return "compact"
        return "paper" if asked == "compact" else asked

    def _settings_of(self, system: str, item: str, asked: Scale) -> set[str]:
        """The full names of a table's settings."""
        table = self.experiments[system].all_tables[item]
        scale = self._scale_of(system, item, asked)
        names = {
            table.setting_of(row, column, scale) for row in table.rows for column in table.columns
        }
        return {full_name(system, name) for name in names}

    def _make_target(self, system: str, item: str, asked: Scale) -> TableTarget:
        table = self.experiments[system].all_tables[item]
        scale = self._scale_of(system, item, asked)
        seeds, cells = self.seeds(scale, system, table.seeds), []
        for row in table.rows:
            for column in table.columns:
                alone, metric = column.methods_at(scale), table.metric_of(row, column)
                setting = full_name(system, table.setting_of(row, column, scale))
                methods, rivals = wrapped(row.wrapper, alone), alone if metric.of_both else ()
                cells.append(
                    Cell(row, column, setting, methods, seeds, metric, table.summary, rivals)
                )
        return TableTarget(system, item, scale, table, seeds, tuple(cells), awaited=scale == asked)


def _shown(source: ArtifactFromData | str) -> str:
    return f"data set {source.dataset}" if isinstance(source, ArtifactFromData) else source
