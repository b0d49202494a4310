"""Compute runs and keep their results in the repository, under reports/papers/<system>/.

By default these are the runs that reports/papers/reference.yaml lists; finished runs are copied,
without their models, into reference/. With --compact they are those of the tables of scale compact,
seed by seed, packed into compact/ (fedrepro.run.landed_runs). What is kept already and of today's
configuration and code is not made again; with --again it is, and compared.

Prints a cost estimate of the missing runs, as `fedrepro estimate` would, then has Snakemake make
them: those of a group, or with --compact of a seed, together. Interrupted runs resume.
"""

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet
from pydantic import Field

from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey, SearchTarget, Target
from fedrepro.config.workbench import Workbench
from fedrepro.cost.model import CostModel, RunCost
from fedrepro.report.cells.search import as_far_as_it_went
from fedrepro.run import digests, landed_runs
from fedrepro.run.landed_runs import PAPERS
from fedrepro.run.manifest import is_of_this_kind
from fedrepro.run.results import TIMING, RunRecord, read_run, reference_folder
from fedrepro.run.run_comparison import SAME, Outcome, compare_landed
from fedrepro.run.standing import of_another, standing_of
from fedrepro.support.errors import UserError, bad_value
from fedrepro.support.files import write_atomically
from fedrepro.support.typed_yaml import Seed, Typed, read_yaml, validate

LIST = PAPERS / "reference.yaml"
MODEL, MANIFEST = "model.safetensors", "manifest.json"


class Wanted(Typed):
    """Rows and columns of a table, ``<system>/<item>``, at scale paper, with some seeds."""

    table: str
    rows: str
    columns: str = "*"
    seeds: tuple[Seed, ...] = Field(min_length=1)

    @property
    def title(self) -> str:
        seeds = " and ".join(map(str, self.seeds))
        what = self.rows if self.columns == "*" else f"{self.rows}: {self.columns}"
        return f"{self.table}, {what}, seed{'s' if len(self.seeds) > 1 else ''} {seeds}"


@dataclass(frozen=True)
class Group:
    """Runs of a table, ``<system>/<item>``, that are listed together."""

    title: str
    table: str
    runs: list[RunKey]

    def target(self, missing: Iterable[RunKey]) -> "Rows":
        """Those that are missing, as planned."""
        return Rows(*self.table.split("/", 1), "paper", tuple(missing))


class List(Typed):
    """reports/papers/reference.yaml."""

    runs: list[Wanted]


def runs_of(bench: Workbench, wanted: Wanted) -> list[RunKey]:
    """All runs of some rows and columns, each once, by seed, then by row.

    Raises:
        UserError: for an unknown table, row or column.
    """
    cells = list(bench.table(*wanted.table.split("/", 1), "paper").cells)
    for key in ("row", "column"):
        labels = dict.fromkeys(getattr(cell, key).label for cell in cells)
        pattern = getattr(wanted, f"{key}s")
        cells = [cell for cell in cells if fnmatch.fnmatch(getattr(cell, key).label, pattern)]
        if not cells:
            raise bad_value(LIST, f"{key}s", pattern, f"{key}s of {wanted.table}", labels)
    return list(
        dict.fromkeys(
            RunKey(cell.setting, method, seed)
            for seed in wanted.seeds
            for cell in cells
            for method in cell.methods
        )
    )


def compact_runs(bench: Workbench, system: str, item: str, seed: int) -> list[RunKey]:
    """The runs of a compact table or search with one seed, as far as the search went."""
    target = bench.target(system, item, "compact")
    if isinstance(target, SearchTarget):
        target = as_far_as_it_went(bench, target)
    return [run for run in target.runs if run.seed == seed]


def is_current(bench: Workbench, record: RunRecord) -> bool:
    """Whether there is a result of the current configuration and, if packed, of today's code."""
    run = record.run
    today = bench.run_spec(run.setting, run.method, run.seed)
    if record.state == "damaged" or not record.manifest:
        return False
    if record.landed:
        return not of_another(bench, record)
    return bool(record.manifest["run"] == json.loads(json.dumps(today.description())))


def keep(run: RunKey, source: Path | None = None) -> Path:
    """Copy a finished run's files, except its model, to the committed reference results.

    This includes its synthetic set's evaluation, which needs the model.

    Args:
        source: where they are, if they were made on another machine.
    """
    folder, judged = reference_folder(run), run.analysis("quality")
    made = source or run.folder
    files = {file.name: file for file in sorted(made.iterdir()) if file.name != MODEL}
    if judged.exists():
        files["quality.json"] = judged
    digests.record_reference(run, digests.digest_of_files(files))
    # The manifest comes last: without it, a copy that was interrupted is no result.
    for name in sorted(files, key=MANIFEST.__eq__):
        with write_atomically(folder / name) as temporary:
            shutil.copyfile(files[name], temporary)
    return folder


def pack(runs: Iterable[RunKey]) -> None:
    """Add finished runs to the landed results of scale compact."""
    by_setting: dict[str, list[RunKey]] = {}
    for run in runs:
        by_setting.setdefault(run.setting, []).append(run)
    for setting, those in by_setting.items():
        found = dict(landed_runs.runs_landed_in(Path(), setting))
        for run in those:
            judged, folder = run.analysis("quality"), run.folder
            manifest = json.loads((folder / "manifest.json").read_bytes())
            tables = {}
            for name in landed_runs.TABLES:
                if name in manifest["files"]:
                    whole = pyarrow.parquet.ParquetFile(folder / name).read().to_pydict()
                    tables[name] = landed_runs.reduced(name, whole)
            quality = json.loads(judged.read_bytes()) if judged.exists() else {}
            timing = json.loads((folder / TIMING).read_bytes())
            kept = {name: columns for name, columns in tables.items() if columns}
            found[run] = landed_runs.LandedRun(manifest, timing, quality, kept)
        digests.record_runs(setting, {run: digests.digest_of(found[run]) for run in those})
        print(f"kept: {len(those)} in {landed_runs.write(Path(), setting, found)}", flush=True)


def keep_finished(
    bench: Workbench, runs: Iterable[RunKey], *, compact: bool = False
) -> list[RunKey]:
    """Keep finished runs that are not kept yet; the others."""
    missing, finished = [], []
    for run in runs:
        if not is_current(bench, read_run(Path(), run, reference=True)):
            here = standing_of(bench, run).is_current
            (finished if here and _is_judged(bench, run) else missing).append(run)
    if compact:
        pack(finished)
    else:
        for run in finished:
            print(f"kept: {keep(run)}", flush=True)
    return missing


def _is_judged(bench: Workbench, run: RunKey) -> bool:
    """Whether a run's synthetic set has been evaluated, if its setting asks for it."""
    return bench.setting(run.setting).evaluator is None or run.analysis("quality").exists()


@dataclass(frozen=True)
class Rows(Target):
    """Rows and columns of a table as a target, with their missing runs."""

    missing: tuple[RunKey, ...]

    @property
    def runs(self) -> tuple[RunKey, ...]:
        return self.missing


def in_words(costs: Iterable[RunCost]) -> str:
    """The number of runs and their cost estimate."""
    left = [cost for cost in costs if not cost.done]
    known = [cost.seconds for cost in left if cost.seconds is not None]
    text = f"{len(left)} runs to make" if len(left) != 1 else "1 run to make"
    if known:
        text += f", some {sum(known) / 3600:.1f} hours of one core"
    for why, number in Counter(cost.why for cost in left if cost.why).items():
        text += f"; {number} without hours: {why}"
    return text


def listed(bench: Workbench) -> list[Group]:
    """The groups of reports/papers/reference.yaml."""
    wanted = validate(List, read_yaml(LIST), LIST).runs
    return [Group(each.title, each.table, runs_of(bench, each)) for each in wanted]


def compact(bench: Workbench, only: str) -> list[Group]:
    """A group for each seed and table of scale compact, seed by seed, after those of searches."""
    every = [
        (system, item)
        for key in ("compact_search", "compact")
        for system, experiment in bench.experiments.items()
        for item in getattr(experiment, key)
    ]
    chosen = [each for each in every if fnmatch.fnmatch("/".join(each), only)]
    if not chosen:
        known = ["/".join(each) for each in every]
        raise bad_value("the command line", "--compact", only, "tables of scale compact", known)
    searches = [each for each in chosen if each[1] in bench.experiments[each[0]].compact_search]
    tables = [each for each in chosen if each not in searches]
    return [
        Group(f"{system}/{item}, seed {seed}", f"{system}/{item}", found)
        for those in (searches, tables)
        for seed in sorted(
            {run.seed for each in those for run in bench.target(*each, "compact").runs}
        )
        for system, item in those
        if (found := compact_runs(bench, system, item, seed))
    ]


def core_count(text: str) -> str:
    """What Snakemake takes: a number, or "all"."""
    return text if text == "all" else str(int(text))


def make(runs: Iterable[RunKey], bench: Workbench, cores: str) -> int:
    """Have Snakemake make runs. Returns its exit status."""
    files = [str(run.folder / "manifest.json") for run in runs]
    # A synthetic set is judged before it is kept.
    files += [str(run.analysis("quality")) for run in runs if bench.setting(run.setting).evaluator]
    called = subprocess.run(["snakemake", "--cores", cores, *files], check=False)
    return called.returncode


def make_again(bench: Workbench, groups: Iterable[Group], cores: str) -> None:
    """Make runs again that were landed with today's code, and compare their numbers.

    Those that lie in results/ are left out.

    Raises:
        UserError: if a number differs though the kind of machine is the same.
    """
    outcomes: Counter[str] = Counter()
    wrong = 0
    for each in groups:
        records = {run: read_run(Path(), run, reference=True) for run in each.runs}
        current = [run for run, record in records.items() if is_current(bench, record)]
        # A run that lies here may be the landed one itself: nothing would be compared.
        left = [run for run in current if not run.folder.exists()]
        here = len(current) - len(left)
        besides = f"; {here} left out, as they lie in results/" if here else ""
        print(f"{each.title}: {len(current)} of {len(each.runs)} landed{besides}", flush=True)
        if left:
            make(left, bench, cores)
        for run in left:
            kind = is_of_this_kind(records[run].manifest)
            outcome: Outcome = compare_landed(records[run], read_run(Path(), run), same_kind=kind)
            print(f"{run.setting} {run.method} seed {run.seed}: {outcome.words}", flush=True)
            outcomes["same bits" if outcome.words == SAME else "other bits"] += 1
            wrong += not outcome.expected
    print("; ".join(f"{words}: {number}" for words, number in outcomes.items()))
    if wrong:
        of = sum(outcomes.values())
        raise UserError(
            f"{wrong} of {of} runs differ from what was landed and should not; see above"
        )


def batches(
    groups: Iterable[tuple[Group, list[RunKey]]], *, by_seed: bool
) -> dict[str, list[RunKey]]:
    """What one call of Snakemake makes, by title: a group's missing runs, or all of one seed.

    One table's chain of parent runs leaves cores idle, which other tables of the seed then use.
    """
    found: dict[str, list[RunKey]] = {}
    for group, missing in groups:
        for run in missing:
            found.setdefault(f"seed {run.seed}" if by_seed else group.title, []).append(run)
    return found


def main(arguments: argparse.Namespace) -> None:
    bench = load()
    if arguments.again:
        os.nice(19)  # everything else on this machine goes first
        make_again(bench, compact(bench, arguments.compact or "*"), arguments.cores)
        return
    packs = arguments.compact is not None
    while make_missing(bench, arguments, packs=packs):
        pass  # searches go on while the best is at an end of what was tried


def make_missing(bench: Workbench, arguments: argparse.Namespace, *, packs: bool) -> bool:
    """Make the missing runs. Returns whether those of searches have led to others."""
    groups: list[tuple[Group, list[RunKey]]] = []
    planned: set[RunKey] = set()
    for each in compact(bench, arguments.compact) if packs else listed(bench):
        missing = keep_finished(bench, each.runs, compact=packs)
        left = [run for run in missing if run not in planned]
        planned.update(left)
        groups.append((each, left))
    cost_model = CostModel(bench, [each.target(left) for each, left in groups])
    costs = cost_model.costs()
    for each, left in groups:
        print(f"{each.title}: {in_words(costs[run] for run in left) if left else 'complete'}")
    print(f"In all, with parent runs: {in_words(costs.values())}.")
    if arguments.plan:
        return False
    # Everything else on this machine goes first. The terminal's session keeps its share: runs are
    # made by a server with a session of its own, which takes over this niceness.
    os.nice(19)
    for title, left in batches(groups, by_seed=packs).items():
        try:
            status = make(left, bench, arguments.cores)
        finally:  # also what was finished before Ctrl-C
            missing = keep_finished(bench, left, compact=packs)
        for run in missing:
            print(f"missing: {run.folder}", flush=True)
        # One method's failure does not stop the others, unless Snakemake made nothing at all.
        if status and missing == left:
            raise UserError(f"{title}: snakemake made nothing (status {status}); see above")
    known = {run for each, _ in groups for run in each.runs}
    again = compact(bench, arguments.compact) if packs else []
    return any(run not in known for each in again for run in each.runs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", action="store_true", help="print what is missing and stop")
    parser.add_argument("--cores", type=core_count, default="1", help="a number, or all")
    parser.add_argument(
        "--compact", metavar="TABLES", nargs="?", const="*",
        help="make scale compact, or only the tables that match, such as 'fedgo/*'",
    )  # fmt: skip
    parser.add_argument(
        "--again", action="store_true", help="make landed runs of scale compact again and compare"
    )
    try:
        main(parser.parse_args())
    except UserError as error:
        sys.exit(f"reference: {error}")
    except KeyboardInterrupt:
        sys.exit(130)  # checkpoints stay
