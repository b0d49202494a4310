"""Compute the runs that reports/papers/reference.yaml lists, and keep them as reference results.

Prints a cost estimate of the missing runs, as `fedrepro plan` would, then has Snakemake make them
in the list's order. Interrupted runs resume. Finished runs are copied, without their models, into
reports/papers/<system>/reference/.
"""

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey, Target
from fedrepro.config.values import Seed
from fedrepro.config.workbench import Workbench
from fedrepro.run.results import PAPERS, RunRecord, read_run, reference_folder
from fedrepro.support.errors import UserError, bad_value
from fedrepro.support.files import write_atomically
from fedrepro.support.typed_yaml import Typed, read_yaml, validate
from fedrepro.workflow.cost import CostModel, RunCost
from fedrepro.workflow.estimate import measured

LIST = PAPERS / "reference.yaml"
MODEL = "model.safetensors"


class Wanted(Typed):
    """Rows and columns of a table, ``<system>/<item>``, at scale paper, with some seeds."""

    table: str
    rows: str
    columns: str = "*"
    seeds: tuple[Seed, ...] = Field(min_length=1)

    def target(self, missing: Iterable[RunKey]) -> "Rows":
        """Its runs, as planned."""
        return Rows(*self.table.split("/", 1), "paper", tuple(missing))

    @property
    def title(self) -> str:
        seeds = " and ".join(map(str, self.seeds))
        what = self.rows if self.columns == "*" else f"{self.rows}: {self.columns}"
        return f"{self.table}, {what}, seed{'s' if len(self.seeds) > 1 else ''} {seeds}"


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


def is_current(bench: Workbench, record: RunRecord) -> bool:
    """Whether there is a reference result of the current configuration."""
    run = record.run
    today = bench.run_spec(run.setting, run.method, run.seed).description()
    if record.state == "damaged" or not record.manifest:
        return False
    return bool(record.manifest["run"] == json.loads(json.dumps(today)))


def keep(run: RunKey) -> Path:
    """Copy a finished run's files, except its model, to the committed reference results.

    This includes its synthetic set's evaluation, which needs the model.
    """
    folder, judged = reference_folder(run), run.analysis("quality")
    copies = {file: folder / file.name for file in sorted(run.folder.iterdir())}
    if judged.exists():
        copies[judged] = folder / "quality.json"
    for file, copy in copies.items():
        if file.name != MODEL:
            with write_atomically(copy) as temporary:
                shutil.copyfile(file, temporary)
    return folder


def keep_finished(bench: Workbench, runs: Iterable[RunKey]) -> Iterator[RunKey]:
    """Keep finished runs that are not kept yet; yields the others."""
    for run in runs:
        if is_current(bench, read_run(Path(), run, reference=True)):
            continue
        if is_current(bench, read_run(Path(), run)):
            print(f"kept: {keep(run)}", flush=True)
        else:
            yield run


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


def main(arguments: argparse.Namespace) -> None:
    bench, wanted = load(), validate(List, read_yaml(LIST), LIST).runs
    groups: list[tuple[Wanted, list[RunKey]]] = []
    planned: set[RunKey] = set()
    absent: set[str] = set()
    for each in wanted:
        wanting = [run for run in keep_finished(bench, runs_of(bench, each)) if run not in planned]
        left = [run for run in wanting if bench.is_required(run.setting)]
        planned.update(left)
        groups.append((each, left))
        absent.update({each.title} if wanting and not left else ())
    cost_model = CostModel(bench, [each.target(left) for each, left in groups])
    costs = cost_model.costs(measured(cost_model))
    for each, left in groups:
        nothing = "data missing" if each.title in absent else "complete"
        print(f"{each.title}: {in_words(costs[run] for run in left) if left else nothing}")
    print(f"In all, with parent runs: {in_words(costs.values())}.")
    if arguments.plan:
        return
    os.nice(19)
    # If Linux schedules by terminal session first, niceness counts only within this session.
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("19", encoding="utf-8")
    for _, left in groups:
        if not left:
            continue
        files = [str(run.folder / "manifest.json") for run in left]
        # A synthetic set is judged before it is kept.
        files += [str(run.analysis("quality")) for run in left if bench.setting(run.setting).judge]
        called = subprocess.run(["snakemake", "--cores", str(arguments.cores), *files], check=False)
        missing = list(keep_finished(bench, left))
        for run in missing:
            print(f"missing: {run.folder}", flush=True)
        # One method's failure does not stop the others, unless Snakemake made nothing at all.
        if called.returncode and missing == left:
            raise UserError(f"snakemake made nothing (status {called.returncode}); see above")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", action="store_true", help="print what is missing and stop")
    parser.add_argument("--cores", type=int, default=1)
    try:
        main(parser.parse_args())
    except UserError as error:
        sys.exit(f"reference: {error}")
    except KeyboardInterrupt:
        sys.exit(130)  # checkpoints stay
