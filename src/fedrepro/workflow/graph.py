"""Inputs, parameters and resources of the workflow's rules, from the experiment files."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fedrepro.analysis.studies import file_of
from fedrepro.config.figures import PART
from fedrepro.config.loading import load
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.settings import ArtifactFromData
from fedrepro.config.targets import (
    ComputedTarget,
    FigureTarget,
    RunKey,
    SearchTarget,
    TableTarget,
    Target,
)
from fedrepro.config.workbench import Workbench
from fedrepro.data.catalogue.catalogue import find_dataset, meaning_of
from fedrepro.data.catalogue.entries import Own
from fedrepro.data.dataset import FORMAT, PREPARED, is_prepared
from fedrepro.data.fetching.own_files import sha256_of_own
from fedrepro.data.fetching.weights import is_there
from fedrepro.measures import registry as measures
from fedrepro.methods.facts import defaults_of
from fedrepro.methods.files import part_files, unknown_part
from fedrepro.models.registry import INCEPTION
from fedrepro.provenance import fingerprint, numerics
from fedrepro.provenance.identity import in_words
from fedrepro.run.integrity import WRITTEN
from fedrepro.run.landed_runs import PAPERS
from fedrepro.run.results import MANIFEST, MODEL, TIMING
from fedrepro.run.standing import partition_now, prepared_differences, standing_of
from fedrepro.support import checksummed_json
from fedrepro.support.errors import bad_value, exit_on_user_error
from fedrepro.support.names import Composition
from fedrepro.workflow import checks
from fedrepro.workflow.rendering import as_rendered, of_paper, report_code
from fedrepro.workflow.snakemake_patches import read_record, recorded_parameters

OUTPUTS_OF_A_RUN = (MANIFEST, *WRITTEN, TIMING)


def open_graph(overrides: Mapping[str, Any]) -> "Graph":
    """The graph of the experiment files in the working directory.

    Args:
        overrides: the values of ``snakemake --config``.

    Raises:
        SystemExit: with status 2 after one line on stderr, for the first error in them.
    """
    # Jobs find the `fedrepro` of the Python that runs Snakemake.
    here = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([here, os.environ.get("PATH", os.defpath)])
    with exit_on_user_error():
        checks.refuse_braces()
        given = checks.overrides_of(overrides)
        checks.learn_methods_apart()
        bench = load(overrides=given)
        checks.check_methods_apart(bench)
        checks.check_given(bench)
    return Graph(bench)


@dataclass(frozen=True)
class Graph:
    """Functions for rules; ``wildcards`` are a rule's wildcards."""

    bench: Workbench
    _reasons: dict[RunKey, str] = field(default_factory=dict)  # why finished runs are not current

    @property
    def scale(self) -> str:
        return self.bench.config.scale

    @property
    def device_and_executor(self) -> str:
        """Device and executor of runs, as arguments of the command."""
        return f" --device {self.bench.config.device} --executor {self.bench.config.executor}"

    def code_of_table(self, wildcards: Any) -> str:
        """The hash of the report's code, a parameter of the rule for tables."""
        path = Path(f"results/tables/{wildcards.scale}/{wildcards.system}/{wildcards.item}.json")
        known = [
            parameter(wildcards)
            for parameter in (self.paper, self.table_definition, self.finished_paper_runs)
        ]
        return as_rendered(self.bench.root, [path], known, (report_code(),))[0]

    def code_of_page(self, wildcards: Any) -> str:
        """The hash of the report's code, a parameter of the rule for pages."""
        name = f"{wildcards.system}/{wildcards.item}.html"
        paths = [Path("reports/site", name), Path("results/report", name)]
        known = [self.paper(wildcards), self.page_definition(wildcards), self.scale]
        return as_rendered(self.bench.root, paths, known, (report_code(),))[0]

    def code_of_site(self, wildcards: Any) -> str:
        """The hash of the report's code, a parameter of the rule for the start page."""
        return self._of_site[0]

    def methods_of_site(self, wildcards: Any) -> str:
        """The hash of the methods' files, another parameter of that rule."""
        return self._of_site[1]

    @cached_property
    def _of_site(self) -> Sequence[str]:
        known, values = [self.papers, self.scale], (report_code(), self.methods)
        own = self.bench.plugins.files("methods").values()
        return as_rendered(self.bench.root, [Path("reports/site/index.html")], known, values, own)

    def paper(self, wildcards: Any) -> str:
        """A hash of the committed files on a system's paper, reference results included."""
        return of_paper(wildcards.system)

    @cached_property
    def papers(self) -> str:
        """A hash of the committed files on all papers."""
        return fingerprint.of_files([PAPERS])

    @cached_property
    def methods(self) -> str:
        """A hash of the methods' files, which the site shows."""
        return fingerprint.of_files(part_files(self.bench.plugins).values())

    def code(self, module: str) -> str:
        """The ids of the code of an analysis."""
        return numerics.of_analysis(fingerprint.module_path(module))

    def study_code(self, wildcards: Any) -> str:
        """A hash of a study's code."""
        with exit_on_user_error():
            return numerics.of_analysis(file_of(wildcards.study))

    def code_with_method(self, module: str) -> Callable[[Any], str]:
        """A function for the hash of a module's code and of the run's method, which it calls."""

        def code(wildcards: Any) -> str:
            composition = self._run_spec(wildcards).composition
            file = fingerprint.module_path(module)
            return numerics.of_analysis(file, composition, self.bench.plugins)

        return code

    def quality_code(self, wildcards: Any) -> str:
        """A hash of the code that evaluates a synthetic set, its classifier included."""
        evaluator = self._run_spec(wildcards).setting.evaluator
        code = self.code("fedrepro.analysis.quality_of_run")
        if evaluator is None:
            return code
        return f"{code} {numerics.of_named_model(evaluator.model, self.bench.plugins)}"

    def evaluator(self, wildcards: Any) -> str:
        """A setting's `evaluator`, as text.

        With `fid`, it includes whether Inception's weights exist. They are not an input of the rule
        because everything else is computed without them.
        """
        evaluator = self._run_spec(wildcards).setting.evaluator
        entry = self.bench.catalogue_weights.get(INCEPTION)
        there = evaluator is not None and evaluator.fid and entry is not None and is_there(entry)
        return f"{evaluator.model_dump_json() if evaluator else None} {there and entry}"

    def landscape_arguments(self, wildcards: Any) -> str:
        """The arguments of the command that a landscape's file name encodes."""
        match = re.fullmatch(PART, wildcards.part)
        assert match  # the rule's wildcard constraint ensures it
        models = match[1].replace("-", " ")
        return f"--through {models} --points {match[2]} --samples {match[3]}"

    def runs_of_seeds(self, wildcards: Any) -> list[str]:
        """The inputs of an analysis of several seeds."""
        runs = [
            RunKey(wildcards.setting, wildcards.method, int(seed))
            for seed in wildcards.seeds.split("-")
        ]
        with exit_on_user_error():
            specs = [self.bench.spec_of(run) for run in runs]
        manifests = [str(run.manifest) for run in runs]
        partitions = [str(spec.setting.partition_path(spec.seed)) for spec in specs]
        return [*manifests, *partitions]

    def recipe_of_download(self, wildcards: Any) -> str:
        """A hash of a data set's catalogue entry, and of the bytes of files that the user supplies.

        Of the code that prepares data, only its ``FORMAT`` and its revision count: otherwise adding
        a reader would invalidate all runs. Files that the user supplies are not inputs of the rule;
        their bytes are part of this hash instead. So the command reports a missing file in one
        line, and changes inside of folders are detected. While the prepared data say that they are
        current, the hash is as Snakemake recorded it.
        """
        with exit_on_user_error():
            spec = find_dataset(wildcards.dataset, self.bench.datasets)
            prepared = is_prepared(wildcards.dataset, self.bench.root / PREPARED)
            if prepared and not prepared_differences(self.bench, wildcards.dataset):
                output = Path("results/downloads", wildcards.dataset, "files.json")
                if recorded := recorded_parameters(self.bench.root, [output], (), 1):
                    return str(recorded[0])
            text = f"{FORMAT} {json.dumps(meaning_of(spec))}"
            if isinstance(spec, Own):
                text += f" {sha256_of_own(spec, self.bench.config.data.archives)}"
        return fingerprint.of_text(text)

    def stale_partition(self, wildcards: Any) -> tuple[Path, str]:
        """A partition's file, and why it would be made again; "" if it is current or missing."""
        setting = self.bench.setting(self.setting_of_partition(wildcards))
        seed = int(wildcards.seed)
        stored = partition_now(self.bench, setting, seed)
        return setting.partition_path(seed), in_words(stored.differences)

    def setting_of_partition(self, wildcards: Any) -> str:
        """The first setting with the wanted data set and partition."""
        wanted = Path("results/partitions", wildcards.dataset, wildcards.partition)
        with exit_on_user_error():
            if wanted not in self._partitions:
                paths = (path for path in self._partitions if path.parent == wanted.parent)
                known = sorted(path.name for path in paths)
                expected = f"that of a setting on {wildcards.dataset}"
                raise bad_value(wanted.parent, "partition", wanted.name, expected, known)
        return self._partitions[wanted]

    @cached_property
    def _partitions(self) -> dict[Path, str]:
        settings = reversed(self.bench.settings.items())  # the first of several wins
        return {setting.partition_path(0).parent: name for name, setting in settings}

    def inputs_of_run(self, wildcards: Any) -> list[str]:
        with exit_on_user_error():
            spec = self._run_spec(wildcards)
            self._refuse_unknown(spec.composition)  # a target may name any method
        # A setting that `--set` changed is known by its name only.
        self._partitions.setdefault(spec.setting.partition_path(0).parent, spec.setting.name)
        data = f"results/data/{spec.setting.dataset}/meta.json"
        return [data, str(spec.setting.partition_path(spec.seed)), *given_of(spec)]

    def _refuse_unknown(self, composition: str) -> None:
        """Raise UserError for a part that does not exist: its job would fail much later."""
        for name in Composition.parse(composition).names:
            if name not in self._parts:
                folders = self.bench.plugins
                fields_of = partial(defaults_of, folders=folders)
                raise unknown_part(f"method {composition}", "part", name, folders, fields_of)

    @cached_property
    def _parts(self) -> dict[str, Path]:
        return part_files(self.bench.plugins)

    def parent_of_run(self, wildcards: Any) -> list[str]:
        """The manifest of the parent run, if there is one."""
        parent = self.bench.parent_of(RunKey.of_wildcards(wildcards))
        return [str(parent.manifest)] if parent else []

    def _run_spec(self, wildcards: Any) -> RunSpec:
        return self.bench.spec_of(RunKey.of_wildcards(wildcards))

    def table(self, wildcards: Any) -> TableTarget:
        """The table at the wildcard ``scale``, or at the configured scale if there is none.

        While scale compact is configured, tables of scale paper only show what exists.
        """
        scale = getattr(wildcards, "scale", None)
        with exit_on_user_error():
            table = self.bench.table(wildcards.system, wildcards.item)
            if scale in (None, table.scale):
                return table
            return self.bench.table(wildcards.system, wildcards.item, scale)

    def table_definition(self, wildcards: Any) -> str:
        """:meth:`definition_of` a table, a parameter of its rule."""
        table = self.table(wildcards)
        older = self.definition_of(table, beside=False)
        return self._as_recorded(table, table.path, self.definition_of(table), older)

    def _as_recorded(self, table: TableTarget, output: Path, now: str, older: str) -> str:
        """A definition; that of an older version where that made the table and recorded it."""
        if fingerprint.PACKAGE.is_relative_to(self.bench.root.resolve()):
            return now
        recorded, made = read_record(self.bench.root, output).get("params") or (), None
        with suppress(OSError, ValueError):
            made = checksummed_json.parsed(self.bench.root / table.path).get("definition")
        return older if repr(older) in recorded and made != self.definition_of(table) else now

    def definition_of(self, table: TableTarget, beside: bool = True) -> str:
        """A hash of a table's entry in the experiment file, its runs, and their surrogate data.

        Args:
            beside: whether, at scale demo, settings and seeds of the runs of scale paper count,
                which the table shows, too.
        """
        paper = self.bench.table(table.system, table.item, "paper")
        settings = sorted({cell.setting for cell in paper.cells})
        surrogates = [data for name in settings if (data := self.bench.surrogate_for(name))]
        specs = (self.bench.spec_of(run) for run in paper.runs)
        today = [numerics.of_run(spec) for spec in specs]  # verdicts depend on the code's ids
        text = f"{self._asked(table.table)} {self._definitions(table)} {today}"
        across = ["average_across"] if self.bench.config.average_across else []
        shown = self._definitions(paper) if beside and table.scale == "demo" else []
        more = [*surrogates, *across, *shown]
        return fingerprint.of_text(f"{text} {more}" if more else text)

    def _definitions(self, target: Target) -> list[str]:
        return [self.bench.spec_of(run).digest for run in target.runs]

    def finished_paper_runs(self, wildcards: Any) -> str:
        """A hash of the finished runs at scale paper, which every table also shows.

        They are not inputs: a table at scale demo must not require them. Those that it does require
        do not count: Snakemake records this value from before it makes them. Why a run is not
        current counts, too.
        """
        paper = self.bench.table(wildcards.system, wildcards.item, "paper").runs
        table = self.table(wildcards)
        required = {*table.required}
        shown = [run for run in paper if run not in required]
        finished = of_finished(shown)
        if why := stale(self.bench, shown, self._reasons):
            return fingerprint.of_text(f"{finished} {why}")
        # Until 27 November 2026, all counted.
        older = of_finished(paper)
        recorded = read_record(self.bench.root, table.path).get("params") or ()
        return older if repr(older) in recorded else finished

    def inputs_of_table(self, wildcards: Any) -> list[str]:
        table = self.table(wildcards)
        files = self.files_of_runs(table, MANIFEST, "rounds.parquet")
        return files + [str(path) for path in table.analyses if table.awaited]

    def files_of_runs(self, target: Target, *names: str) -> list[str]:
        return [f"{run.folder}/{name}" for run in target.required for name in names]

    def target(self, wildcards: Any) -> Target:
        with exit_on_user_error():
            return self.bench.target(wildcards.system, wildcards.item)

    def inputs_of_page(self, wildcards: Any) -> list[str]:
        """The inputs of the page of a table or figure."""
        target = self.target(wildcards)
        if target.study:
            return [str(target.study)]
        if isinstance(target, ComputedTarget):
            return self._counted(target)
        runs = self.files_of_runs(target, MANIFEST, "rounds.parquet", "clients.parquet")
        if isinstance(target, FigureTarget):
            if not target.awaited:
                return []
            drawn = (f"{target.system}/{name}" for name in target.figure.shared_out(target.scale))
            return [*runs, *map(str, target.analyses), *self._histograms(drawn, target.seeds)]
        if isinstance(target, SearchTarget):
            return runs + [str(path) for path in target.analyses if target.awaited]
        assert isinstance(target, TableTarget)
        settings = dict.fromkeys(run.setting for run in target.required)
        files = [str(target.path), *runs, *self._histograms(settings, target.seeds)]
        # Its claims are tested on the small runs, which the same call makes.
        small = self._small_tables(target.system) if self.scale == "compact" else ()
        return list(dict.fromkeys((*files, *(str(table.path) for table in small))))

    def _small_tables(self, system: str) -> list[TableTarget]:
        """A system's compact tables."""
        compact = self.bench.experiments[system].compact
        return [self.bench.table(system, item, "compact") for item in compact]

    def _histograms(self, settings: Iterable[str], seeds: Sequence[int]) -> list[str]:
        """The histograms of settings' partitions, for the first seed."""
        paths = (self.bench.setting(name).partition_path(seeds[0]) for name in settings)
        return [str(path.with_suffix(".json")) for path in paths]

    def _counted(self, target: ComputedTarget) -> list[str]:
        """The histograms of settings whose data are prepared; others are not fetched for this."""
        settings = (f"{target.system}/{name}" for name in target.spec.counted_in().values())
        return [
            str(self.bench.histogram_of(setting))
            for setting in settings
            if self.bench.is_prepared(setting)
        ]

    def page_definition(self, wildcards: Any) -> str:
        """The entry in the experiment file of a page that is made from runs or from nothing.

        A table's page is made from its JSON file, and its definition, of which that may show
        nothing; the notes of its settings and the titles of their data; and the system's compact
        tables, which its claims are tested on.
        """
        target = self.target(wildcards)
        if not isinstance(target, TableTarget):
            return self.entry_of(target)
        settings = {cell.setting for cell in target.cells}
        named = [self.bench.setting(name) for name in sorted(settings)]
        notes = " ".join(setting.note for setting in named)
        titles = " ".join(find_dataset(each.dataset, self.bench.datasets).title for each in named)
        compact = self._compact[target.system]
        now = f"{notes} {titles} {self.definition_of(target)} {compact}"
        return self._as_recorded(target, target.page, now, f"{notes} {compact}".strip())

    def entry_of(self, target: Target) -> str:
        """The entry in the experiment file of a figure, search or computed table, and its runs."""
        match target:
            case ComputedTarget():
                return target.spec.model_dump_json()
            case FigureTarget():
                entry = f"{self._asked(target.figure)} {self._definitions(target)}"
            case SearchTarget():
                entry = f"{self._asked(target.search)} {self._definitions(target)}"
            case _:
                return ""
        if not target.awaited:
            why = stale(self.bench, target.runs, self._reasons)
            entry = f"{entry} {of_existing(target.runs, target.analyses, why)}".strip()
        return entry

    @cached_property
    def _compact(self) -> dict[str, str]:
        """A hash of each system's compact tables; "" if it has none.

        Their finished runs count where these tables are no inputs (:meth:`inputs_of_page`).
        """
        hashes, inputs = dict[str, str](), self.scale == "compact"
        for system in self.bench.experiments:
            tables = self._small_tables(system)
            parts = [
                (self.definition_of(table), of_finished(() if inputs else table.runs))
                for table in tables
            ]
            hashes[system] = fingerprint.of_text(repr(parts)) if parts else ""
        return hashes

    def _asked(self, item: BaseModel) -> str:
        """The entry of a table, figure or search, with the code of its measure plug-ins."""
        text = item.model_dump_json()
        own = [name for name in self.bench.plugins.files("measures") if f'"{name}"' in text]
        if not own:
            return text
        files = measures.files_of(own, self.bench.plugins)
        return f"{text} {fingerprint.of_closure(files, fingerprint.HANDLING, fingerprint.SAME)}"

    def pages(self) -> list[str]:
        return [str(target.page) for target in self.bench.targets().values()]

    def tables(self) -> list[str]:
        return [str(table.path) for table in self.bench.tables().values()]

    def results(self) -> list[str]:
        """All tables and runs: as explicit targets, they are made again if deleted."""
        targets = self.bench.targets().values()
        runs = dict.fromkeys(run for target in targets for run in target.required)
        return self.tables() + [str(run.manifest) for run in runs]


def of_finished(runs: Iterable[RunKey]) -> str:
    """A hash of what finished runs, and analyses of them, say of themselves."""
    return fingerprint.of_files(
        path for run in runs for path in (run.manifest, run.analysis("quality")) if path.exists()
    )


def given_of(spec: RunSpec) -> Iterator[str]:
    """The inputs of a run that come from other runs and data sets.

    A given file is not an input of the rule: the command reports a missing one in one line, and the
    run's definition contains its SHA-256.
    """
    for source in spec.inputs.values():
        match source:
            case RunSpec():
                yield str(source.key.manifest)
                yield str(source.key.folder / MODEL)
            case ArtifactFromData():
                yield f"results/data/{source.dataset}/meta.json"


def of_existing(runs: Sequence[RunKey], analyses: Iterable[Path], why: Sequence[str]) -> str:
    """A hash of finished runs and analyses that are there, and why runs are not current; or ""."""
    there = [*(run.manifest for run in runs), *analyses]
    there = [path for path in there if path.exists()]
    return fingerprint.of_text(f"{fingerprint.of_files(there)} {why}") if there else ""


def stale(bench: Workbench, runs: Iterable[RunKey], known: dict[RunKey, str]) -> list[str]:
    """Why finished runs are not current.

    Args:
        known: of runs that were asked for before; others are added. It takes milliseconds a run.
    """
    finished = [run for run in runs if run.manifest.exists()]
    for run in finished:
        if run not in known:
            known[run] = standing_of(bench, run).why
    return [known[run] for run in finished if known[run]]
