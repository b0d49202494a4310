"""Read ``config/`` and check references between its entries."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

from fedrepro.config.config_file import Config, Overrides
from fedrepro.config.expansion import extend_all, written_out
from fedrepro.config.experiment import COMPACT, EXPERIMENTS, CompactFile, Experiment, how_to_add
from fedrepro.config.figures import Charts, Sheets, Trend
from fedrepro.config.searches import LONGEST, Search, Searched
from fedrepro.config.settings import ArtifactFromData, ArtifactFromRun, Setting
from fedrepro.config.tables import Column, full_name, named_settings
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.data.catalogue.catalogue import CATALOGUE, load_catalogue
from fedrepro.data.catalogue.kinds import DatasetSpec
from fedrepro.methods.facts import defaults_of
from fedrepro.methods.files import part_files, unknown_part
from fedrepro.models import registry as models
from fedrepro.support.errors import UserError, bad_value, missing_value, refusal
from fedrepro.support.files import visible
from fedrepro.support.names import RELEASED
from fedrepro.support.old_names import with_new_keys
from fedrepro.support.packaged import CONFIG
from fedrepro.support.plugins import NONE, Folders
from fedrepro.support.typed_yaml import Typed, parsed, read_text, read_yaml, validate

# The environment variable with the values of `snakemake --config`, for the commands of its jobs.
OVERRIDES = "FEDREPRO_OVERRIDES"


def load(root: Path = Path(), overrides: Overrides | None = None) -> Workbench:
    """Read and check all of ``root/config``.

    Args:
        overrides: by default, those of the Snakemake call whose job this is.

    Raises:
        UserError: for the first fault: one line with file, key, value and what was expected.
    """
    config = load_config(root)
    if overrides is None:
        text = os.environ.get(OVERRIDES, "{}")
        overrides = validate(Overrides, parsed(text, Path(OVERRIDES)), OVERRIDES)
    config = config.model_copy(update=overrides.model_dump(exclude_none=True))
    plugins = config.plugins.under(root)
    catalogue = load_catalogue(root / CATALOGUE, plugins)
    experiments: dict[str, Experiment] = {}
    files: dict[str, Path] = {}
    for path in visible(root / EXPERIMENTS, "*.yaml"):
        shown = path.relative_to(root)
        experiment = _experiment(root, path, shown, plugins, catalogue.datasets)
        experiments[experiment.system], files[experiment.system] = experiment, shown
    for path in (*visible(root / EXPERIMENTS, "*"), *visible(root / COMPACT, "*")):
        if path.suffix != ".yaml" and path.suffix.lower() in (".yaml", ".yml"):
            shown = path.relative_to(root)
            raise refusal(shown, "rename it: expected the ending .yaml")
    if not experiments:
        raise refusal(EXPERIMENTS, "expected at least one <system>.yaml", code="missing")
    weights = {
        name: (model.weights, catalogue.weights[model.weights])
        for name, model in models.MODELS.items()
        if model.weights in catalogue.weights
    }
    bench = Workbench(
        root, config, experiments, catalogue.datasets, files, weights, catalogue.weights
    )
    _check_settings_of_others(bench)
    _check_stops(bench)
    _check_landed_rounds(bench)
    _check_league(bench)
    return bench


def parse_all(root: Path) -> None:
    """Parse experiment files before processes are forked, so that they share what is in them."""
    for folder in (EXPERIMENTS, COMPACT):
        for path in visible(root / folder, "*.yaml"):
            with suppress(UserError):  # reported when a command loads the file
                _written_out(path, path.relative_to(root))


def require_workbench(root: Path) -> None:
    """Raise UserError unless a folder is a workbench."""
    if not (root / CONFIG).exists():
        why = "there is no such file: run this in a workbench, which `fedrepro init` makes"
        raise refusal(CONFIG, why, code="missing")


def load_config(root: Path = Path()) -> Config:
    """Read ``root/config/config.yaml``.

    Raises:
        UserError: for the first fault.
    """
    require_workbench(root)
    written = with_new_keys("config", read_yaml(root / CONFIG, CONFIG), CONFIG)
    return validate(Config, {} if written is None else written, CONFIG)


def folders_here() -> Folders:
    """The working directory's folders of plug-ins; none if it is not a workbench.

    Raises:
        UserError: for the first fault in its config.yaml.
    """
    return load_config().plugins.under(Path()) if CONFIG.exists() else NONE


def _experiment(
    root: Path, path: Path, shown: Path, plugins: Folders, datasets: Mapping[str, DatasetSpec]
) -> Experiment:
    def checked(data: Any, file: Path) -> Experiment:
        if isinstance(data, dict) and isinstance(data.get("settings"), dict):
            data = {**data, "settings": extend_all(data["settings"], file, root)}
        experiment = validate(Experiment, data, file, plugins)
        experiment._own = plugins
        for name, setting in experiment.settings.items():
            setting._name = f"{experiment.system}/{name}"
        if experiment.system != path.stem:
            raise bad_value(shown, "system", experiment.system, f"the file's name, '{path.stem}'")
        for searches in (experiment.search, experiment.compact_search):
            searches.update({item: _named(experiment, each) for item, each in searches.items()})
        _check_references(experiment, file, datasets)
        return experiment

    data, added = _written_out(path, shown), COMPACT / path.name
    if not isinstance(data, dict) or not (root / added).exists():
        return checked(data, shown)
    compact = _written_out(root / added, added)
    if not isinstance(compact, dict) or compact.keys() - CompactFile.model_fields:
        validate(CompactFile, compact, added, plugins)  # which raises
    both_files = {
        **_merged(data, compact, added),
        "compact": compact.get("tables", {}),
        "compact_search": compact.get("search", {}),
        "tunes": compact.get("tunes", {}),
    }
    try:
        return checked(both_files, shown)
    except UserError:
        checked(data, shown)  # raises if the fault is in the experiment file
        return checked(both_files, added)


def _written_out(path: Path, shown: Path) -> Any:
    return _text_written_out(read_text(path, shown), shown)


@lru_cache(maxsize=64)  # as the text is parsed only once
def _text_written_out(text: str, shown: Path) -> Any:
    return written_out(parsed(text, shown), shown)


def _merged(data: Mapping[str, Any], compact: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """An experiment file with the methods and settings of its compact file."""
    joined = dict(data)
    for key in ("methods", "settings"):
        own, theirs = data.get(key, {}), compact.get(key, {})
        if isinstance(own, Mapping) and isinstance(theirs, Mapping):
            for name in own.keys() & theirs.keys():
                raise bad_value(file, key, name, "a name that the experiment file does not have")
            joined[key] = {**own, **theirs}
    return joined


def _named(experiment: Experiment, search: Search) -> Search:
    """The search with the setting's keys under ``keys``, by their full names.

    A grid may have them, too, and ``lr`` stands for ``optimizer.lr`` unless the method has one.
    """
    setting = experiment.plain_readings.get(search.setting)
    if setting is None:  # which is reported with all other names
        return search
    methods = []
    for searched in search.methods:
        of_method = {key for key in searched.grid if _is_own(experiment, setting, searched, key)}
        every = {*searched.all_values, *searched.published} - of_method
        full = {key: setting.named(key) for key in every}
        names = {key: named[0] for key, named in full.items() if len(named) == 1}
        keys = {names.get(key, key): values for key, values in searched.keys.items()}
        keys |= {names[key]: searched.grid[key] for key in searched.grid if key in names}
        grid = {key: values for key, values in searched.grid.items() if key not in names}
        published = {names.get(key, key): each for key, each in searched.published.items()}
        changed = {"keys": keys, "grid": grid, "published": published}
        twice = len(keys) + len(grid) < len(searched.all_values)  # which is reported
        methods.append(searched if twice else searched.model_copy(update=changed))
    return search.model_copy(update={"methods": methods})


def _is_own(experiment: Experiment, setting: Setting, searched: Searched, key: str) -> bool:
    """Whether a key of a grid names a hyperparameter of the method's."""
    part, dot, _ = key.rpartition(".")
    if dot or len(searched.parts) > 1:
        return part in searched.parts
    base, said = experiment.part(setting, searched.parts[0])
    return key in {*defaults_of(base, experiment._own), *said}


def _check_references(
    experiment: Experiment, shown: Path, datasets: Mapping[str, DatasetSpec]
) -> None:
    """Reject names of data sets, models, settings and their keys that do not exist."""
    for item, search in experiment.all_searches.items():
        for searched in search.methods:
            _check_keys(experiment, search, searched, shown, f"search.{item}")

    def require(where: str, name: str | None, known: Collection[str], wanted: str) -> None:
        if name is not None and name not in known:
            raise bad_value(shown, where, name, wanted, known)

    ways = "a key of a setting, <method>.<hyperparameter> or <method>.<key of a setting>"
    for key in experiment.tunes:
        part, _, name = key.partition(".")
        require("tunes", part, {*Setting.model_fields, *part_files(experiment._own)}, ways)
        if not {part, name.partition(".")[0]} & Setting.model_fields.keys():
            owns = [f"{part}.{own}" for own in defaults_of(part, experiment._own)]
            require("tunes", key, owns, f"one of {', '.join(sorted(owns))}")
    known_models, here = models.names(experiment._own), "a setting of this file"
    a_model, a_dataset = f"one of {', '.join(known_models)}", f"a data set of {CATALOGUE}"
    for name, setting in experiment.settings.items():
        at, evaluator = f"settings.{name}", setting.evaluator
        require(f"{at}.dataset", setting.dataset, datasets, a_dataset)
        require(f"{at}.model", setting.model, known_models, a_model)
        if evaluator:
            require(f"{at}.evaluator.model", evaluator.model, known_models, a_model)
        require(f"{at}.stands_for", setting.stands_for, experiment.settings, here)
        for need, source in setting.inputs.items():
            if isinstance(source, ArtifactFromRun):
                where = f"{at}.inputs.{need}.setting"
                require(where, source.setting, experiment.readings, here)
            elif isinstance(source, ArtifactFromData):
                require(f"{at}.inputs.{need}.dataset", source.dataset, datasets, a_dataset)
    for where, value in _named_settings(experiment):
        if value is not None and "/" not in value and value not in experiment.readings:
            if str(value).removesuffix(RELEASED) in experiment.settings:
                raise bad_value(shown, where, value, f"{here} with `released` keys")
            raise bad_value(shown, where, value, here, experiment.readings)
    for where, columns, named in _columns_named(experiment):
        labels = [column.label for column in columns]
        _check_once(labels, shown, f"{where}.columns", "a label that no other column has")
        for label in named:
            require(f"{where}.column_settings", label, labels, "the label of a column")
    _check_figures(experiment, shown)
    seen: set[str] = set()
    for section in ("tables", "compact", "computed", "figures", "search", "compact_search"):
        for item in getattr(experiment, section):
            if item in seen:
                raise bad_value(shown, section, item, "a name that no other table or figure has")
            seen.add(item)
    for item, search in experiment.all_searches.items():
        for searched in search.methods:
            _check_searched(experiment, search, searched, shown, f"search.{item}")


def _check_figures(experiment: Experiment, shown: Path) -> None:
    """Reject lines with one name, and learning curves of what is not a number of every round."""
    for item, figure in experiment.figures.items():
        if isinstance(figure, Trend):
            _check_once(figure.lines, shown, f"figures.{item}.lines", "a name of one line")
        if not isinstance(figure, Charts) or figure.kind != "lines":
            continue
        for row in figure.rows:
            if (quantity := (row.metric or figure.metric).quantity).of_a_run:
                where = f"figures.{item}.rows.{row.label}.metric"
                raise bad_value(shown, where, quantity.words, "a number of every round")


def _check_once(labels: Sequence[str], shown: Path, where: str, wanted: str) -> None:
    """Reject a label that is there twice: sentences, pages and ranks tell numbers apart by it."""
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise bad_value(shown, where, twice[0], wanted)


def _check_settings_of_others(bench: Workbench) -> None:
    """Reject names of other systems' settings that do not exist."""
    for system, experiment in bench.experiments.items():
        for where, value in _named_settings(experiment):
            if value is not None and "/" in value and value not in bench.settings:
                wanted = f"a setting of this file, or SYSTEM/SETTING of another in {EXPERIMENTS}"
                wanted += how_to_add(value, bench.root)
                raise bad_value(bench.files[system], where, value, wanted, bench.settings)


def _check_stops(bench: Workbench) -> None:
    """Reject metrics of tables that need rounds which a setting's runs, as they stop, may lack."""
    settings = (setting for one in bench.experiments.values() for setting in one.settings.values())
    if not any(setting.stop for setting in settings):
        return
    for system, experiment in bench.experiments.items():
        for item, table in experiment.all_tables.items():
            cells = product(table.rows, table.columns, SCALES)
            for row, column, scale in cells:
                setting = bench.setting(full_name(system, table.setting_of(row, column, scale)))
                metric = table.metric_of(row, column)
                if setting.ends_before(metric.quantity.reaches):
                    where = f"tables.{item}.rows.{row.label}.metric.{metric.key}"
                    wanted = (
                        f"an accuracy at which runs of {setting.name} have not stopped (`stop`)"
                    )
                    raise bad_value(bench.files[system], where, getattr(metric, metric.key), wanted)


def _check_landed_rounds(bench: Workbench) -> None:
    """Reject means of several rounds at scale compact that need clients of more than the last."""
    for system, experiment in bench.experiments.items():
        means = [
            (f"tables.{item}", table.summary.rounds, table.metric_of(row, column))
            for item, table in experiment.compact.items()
            for row, column in product(table.rows, table.columns)
        ] + [
            (f"search.{item}", search.summary.rounds, search.metric)
            for item, search in experiment.compact_search.items()
        ]
        for where, rounds, metric in means:
            if rounds > 1 and metric.quantity.needs_clients:
                wanted = "1, or the metric average over clients with weighted: false"
                raise bad_value(
                    COMPACT / f"{system}.yaml", f"{where}.summary.rounds", rounds, wanted
                )


def _check_league(bench: Workbench) -> None:
    """Reject rows of the league whose number is not one of each run: ranks would be of others."""
    for system, experiment in bench.experiments.items():
        for item, table in experiment.compact.items():
            for row, metric in ((row, table.metric_of(row)) for row in table.rows if row.league):
                if metric.of_both or metric.quantity.together:
                    where = f"tables.{item}.rows.{row.label}.league"
                    wanted = f"none, as {metric.quantity.words} is no number of each run alone"
                    raise bad_value(COMPACT / f"{system}.yaml", where, row.league, wanted)


def _check_keys(
    experiment: Experiment, search: Search, searched: Searched, shown: Path, at: str
) -> None:
    """Reject keys that the searched setting does not have, and values that they can't have."""
    setting = experiment.plain_readings.get(search.setting)
    if setting is None:  # which is reported with all other names
        return
    for key, values in searched.keys.items():
        where = f"{at}.methods.{searched.method}.keys"
        if setting.scalars.get(key) is None or key == "partition.validation":
            wanted = f"a key of a setting, such as optimizer.lr, that {search.setting} has"
            raise bad_value(shown, where, key, wanted, setting.scalars)
        for value in values:
            try:
                setting.with_keys({key: value}, experiment._own)
            except UserError as error:
                at_key = f"{where}.{key}"
                why = f"{at_key}: {error}"
                raise refusal(shown, why, at_key, error.value, error.code) from None


def _check_searched(
    experiment: Experiment, search: Search, searched: Searched, shown: Path, at: str
) -> None:
    """Reject grids over unknown hyperparameters, and candidates with another method's name."""
    for name in filter(None, (search.setting, search.demo)):
        if share := experiment.plain_readings[name].partition.validation:
            wanted = f"none in setting {name}, because the search has its own"
            raise bad_value(shown, f"settings.{name}.partition.validation", share, wanted)
    where, parts = f"{at}.methods.{searched.method}", searched.parts
    setting = experiment.plain_readings[search.setting]
    for key in searched.grid:
        part, dot, _ = key.rpartition(".")
        if (dot or len(parts) > 1) and part not in parts:
            wanted = f"<part>.<hyperparameter> with a part of {', '.join(parts)}"
            raise bad_value(shown, f"{where}.grid", key, wanted)
        base, said = experiment.part(setting, part or parts[0])
        known, name = {*defaults_of(base, experiment._own), *said}, searched.place_of(key)[1]
        if base in part_files(experiment._own) and name not in known:
            wanted = f"one of {', '.join(sorted(known))}"
            raise bad_value(shown, f"{where}.grid", key, wanted, known)
    for key in searched.published:
        if key not in searched.all_values:
            wanted = f"a key of its grid, {', '.join(searched.all_values)}"
            raise bad_value(shown, f"{where}.published", key, wanted, searched.all_values)
    published = experiment.choice(search, searched)
    if published is None:
        for base in (experiment.part(setting, part)[0] for part in parts):
            if base not in part_files(experiment._own):
                fields_of = partial(defaults_of, folders=experiment._own)
                raise unknown_part(shown, where, base, experiment._own, fields_of)
        why = "`methods` and the method's defaults do not have all of it"
        wanted = f"the paper's {', '.join(searched.all_values)}: {why}"
        raise missing_value(shown, f"{where}.published", wanted)
    names = [candidate.method + candidate.suffix for candidate in searched.candidates(published)]
    for candidate, name in zip(searched.candidates(published), names, strict=True):
        variants = searched.variants(candidate).items()
        taken = any(experiment.has_another(setting, *variant) for variant in variants)
        if taken or names.count(name) > 1:
            raise bad_value(shown, f"{where}.grid", name, "a name that no other method has")
        if len(name) > LONGEST:
            wanted = f"values that make a name of at most {LONGEST} characters"
            raise bad_value(shown, f"{where}.grid", name, wanted)


def _columns_named(
    experiment: Experiment,
) -> Iterator[tuple[str, Sequence[Column], Iterable[str]]]:
    """Keys with settings for single columns: the key, all columns, and the columns' labels."""
    for item, table in experiment.all_tables.items():
        yield f"tables.{item}", table.columns, table.column_settings
        for row in table.rows:
            named = (*row.column_settings, *row.demo_column_settings)
            yield f"tables.{item}.rows.{row.label}", table.columns, named
    for item, figure in experiment.figures.items():
        if isinstance(figure, Charts | Sheets):
            yield f"figures.{item}", figure.columns, figure.column_settings


def _named_settings(experiment: Experiment) -> Iterator[tuple[str, str | None]]:
    """The key and name of every setting that a table, figure or search uses."""
    sections: dict[str, Mapping[str, Typed]] = {
        "tables": experiment.all_tables,
        "computed": experiment.computed,
        "search": experiment.all_searches,
        "figures": experiment.figures,
    }
    for section, items in sections.items():
        for item, model in items.items():
            yield from named_settings(model, f"{section}.{item}")
