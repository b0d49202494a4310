"""Check the experiment files before a workflow starts: methods, hyperparameters, inputs of runs."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedrepro.config.config_file import Overrides
from fedrepro.config.loading import OVERRIDES, folders_here, load
from fedrepro.config.tables import full_name, wrapped
from fedrepro.config.targets import SearchTarget
from fedrepro.config.values import SCALES, Hyperparameters
from fedrepro.config.workbench import Workbench
from fedrepro.methods import facts
from fedrepro.methods.files import part_files
from fedrepro.provenance import fingerprint
from fedrepro.support.errors import UserError, bad_value, exit_on_user_error, refusal
from fedrepro.support.files import write_atomically
from fedrepro.support.names import Composition
from fedrepro.support.packaged import CONFIG
from fedrepro.support.papers import RULES
from fedrepro.support.typed_yaml import read_yaml, validate

# Composing imports torch, which takes two seconds, so the result of the check is cached.
MARK = Path(".snakemake/fedrepro-checked")

NamedMethod = tuple[str, str, dict[str, Hyperparameters]]  # file and key, composition, values


def overrides_of(config: Mapping[str, Any]) -> Overrides:
    """The values of ``snakemake --config``, which its jobs' commands get in a variable, too.

    Without config.yaml's own values, which a Snakefile that imports ours includes.

    Raises:
        UserError: for the first fault, and for a key without a value, as of `scale=$UNSET`.
    """
    said = read_yaml(CONFIG, CONFIG) if CONFIG.exists() else {}
    own = said if isinstance(said, Mapping) else {}
    given = {key: value for key, value in config.items() if key not in own or own[key] != value}
    for key in (key for key, value in given.items() if value is None):
        raise bad_value("--config", key, None, "a value")
    overrides = validate(Overrides, given, "--config")
    os.environ[OVERRIDES] = overrides.model_dump_json(exclude_none=True)
    return overrides


def refuse_braces(rules: Path = RULES) -> None:
    """Refuse rules in a place that Snakemake takes for a pattern, and fails with a traceback.

    Raises:
        UserError: with the place.
    """
    if not {*"{}"}.isdisjoint(str(rules)):
        raise refusal(rules, "expected no { or } in this path, as Snakemake reads wildcards there")


def check_methods_apart(workbench: Workbench) -> None:
    """:func:`check_methods` for the working directory in a separate process, if needed.

    This keeps PyTorch out of Snakemake's memory, which may run for days.

    Raises:
        SystemExit: with the process's status, which is 2 after one line on stderr.
    """
    named, searched = _named(workbench)
    if not _is_checked(workbench, _hash_of(workbench, named, searched)):
        _check_apart()


def learn_methods_apart() -> None:
    """Write the facts of methods that loading needs, in a separate process, if they are missing.

    Raises:
        SystemExit: as :func:`check_methods_apart`.
    """
    if not facts.are_written(folders_here()):
        _check_apart()


def _check_apart() -> None:
    checked = subprocess.run([sys.executable, "-P", "-m", __name__], check=False)
    if checked.returncode:
        raise SystemExit(checked.returncode)


def check_methods(workbench: Workbench) -> None:
    """Compose every method that an experiment file names.

    Raises:
        UserError: for the first that can't be composed: one line with file and key.
    """
    from fedrepro.methods.registry import compose  # which imports torch, as MARK says

    named, searched = _named(workbench)
    checked_hash = _hash_of(workbench, named, searched)
    if _is_checked(workbench, checked_hash):
        return
    for number, (where, composition, hyperparameters) in enumerate([*named, *searched]):
        try:
            method, _ = compose(composition, hyperparameters, workbench.plugins)
        except UserError as error:
            raise refusal(where, str(error), error.key, error.value, error.code) from None
        if number >= len(named) and not (method.classifies or method.own_classifier):
            wanted = "a method that trains a classifier: others cannot be scored on validation data"
            raise refusal(where, f"{composition!r}: expected {wanted}", "method", composition)
    with write_atomically(workbench.root / MARK) as temporary:
        temporary.write_text(checked_hash, encoding="utf-8")


def _hash_of(workbench: Workbench, named: list[NamedMethod], searched: list[NamedMethod]) -> str:
    """A hash of checked methods and of their methods' code."""
    compositions = {composition for _, composition, _ in (*named, *searched)}
    parts = {name for text in compositions for name in Composition.parse(text).names}
    files = [file for name, file in part_files(workbench.plugins).items() if name in parts]
    code = fingerprint.of_closure((fingerprint.module_path("fedrepro.methods.registry"), *files))
    return fingerprint.of_text(f"{code} {named!r} {searched!r}")


def _is_checked(workbench: Workbench, checked_hash: str) -> bool:
    try:
        return (workbench.root / MARK).read_bytes() == checked_hash.encode()
    except OSError:
        return False


def check_given(workbench: Workbench) -> None:
    """Resolve the inputs that the methods of all tables and figures require.

    Raises:
        UserError: for the first input that a setting lacks, or that a search may not have.
    """
    for target in (target for scale in SCALES for target in workbench.targets(scale).values()):
        for run in dict.fromkeys((run.setting, run.method, run.seed) for run in target.runs):
            seen = workbench.run_spec(*run).inputs_that_saw_held_out
            if seen and isinstance(target, SearchTarget):
                where = f"{workbench.files[target.system]}: search.{target.item}"
                wanted = "no input that was trained on what are validation samples here"
                raise bad_value(where, run[1], seen[0], wanted)


def _named(workbench: Workbench) -> tuple[list[NamedMethod], list[NamedMethod]]:
    """All methods that experiment files name; apart, those whose models a search scores."""
    sets = _searched(workbench, by_synthetic_set=True)
    return [*_of_tables(workbench), *sets], [*_searched(workbench, by_synthetic_set=False)]


def _of_tables(workbench: Workbench) -> Iterator[NamedMethod]:
    for system, experiment in workbench.experiments.items():
        file = workbench.files[system]
        sections = {"methods": experiment.methods} | {
            f"settings.{name}.methods": setting.methods
            for name, setting in experiment.plain_readings.items()
        }
        for key, section in sections.items():
            for part, values in section.items():
                everywhere = experiment.methods.get(part, {})
                base = str(values.get("variant_of", everywhere.get("variant_of", part)))
                own = ("variant_of", "parent")
                given = {name: value for name, value in values.items() if name not in own}
                yield f"{file}: {key}.{part}", base, {base: given}
                if values.get("parent"):
                    parent = str(values["parent"])
                    known = experiment.methods.get(parent, {}).get("variant_of", parent)
                    yield f"{file}: {key}.{part}.parent", str(known), {}
        for item, table in experiment.all_tables.items():
            for column in table.columns:
                methods = {*column.methods_at("demo"), *column.methods_at("paper")}
                for method in sorted(methods):
                    for row in table.rows:
                        name = table.setting_of(row, column, "paper")
                        setting = workbench.setting(full_name(system, name))
                        where = f"{file}: tables.{item}.columns.{column.label}.method"
                        (whole,) = wrapped(row.wrapper, [method])
                        yield where, *workbench.composition_of(setting, whole)
        for item, figure in experiment.figures.items():
            needs = dict.fromkeys((*figure.needs("paper"), *figure.needs("demo")))
            for name, method in needs:
                setting = workbench.setting(f"{system}/{name}")
                yield f"{file}: figures.{item}", *workbench.composition_of(setting, method)


def _searched(workbench: Workbench, *, by_synthetic_set: bool) -> Iterator[NamedMethod]:
    """All candidates of searches that score synthetic sets, or that score models."""
    for system, experiment in workbench.experiments.items():
        for item, search in experiment.all_searches.items():
            if (search.metric.analysis is not None) != by_synthetic_set:
                continue
            for scale in SCALES:
                target = workbench.search(system, item, scale)
                for trial in target.trials:
                    where = f"search.{item}.methods.{trial.searched.method}"
                    for candidate in trial.candidates:
                        setting = workbench.setting(target.setting + candidate.suffix)
                        composed = workbench.composition_of(setting, candidate.method)
                        yield f"{workbench.files[system]}: {where}", *composed


if __name__ == "__main__":
    with exit_on_user_error():
        bench = load()
        written = facts.are_written(bench.plugins)
        check_methods(bench)
        if not written:
            facts.write(bench.plugins)
