"""``fedrepro check-paper``: what is missing or doubtful in a paper's files, before training.

At scale demo, which is to take seconds, that is what it would train at full size or leave empty.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

from fedrepro.config.loading import load, require_workbench
from fedrepro.config.tables import full_name, named_settings
from fedrepro.config.targets import FigureTarget, RunKey, SearchTarget, TableTarget, Target
from fedrepro.config.workbench import Workbench
from fedrepro.cost.model import CostModel
from fedrepro.report.cells.paper_faults import faults_of, unfilled
from fedrepro.report.papers import published
from fedrepro.report.papers.paper_files import listed_in
from fedrepro.run.landed_runs import ORDER, PAPERS
from fedrepro.support.errors import UserError, bad_argument, listed, refusal
from fedrepro.workflow.checks import check_methods


def handle(arguments: argparse.Namespace) -> int:
    root = Path()
    require_workbench(root)
    ordered = [*dict.fromkeys(map(str, listed_in(root, ORDER)))]
    here = [path.name for path in sorted(PAPERS.glob("*")) if path.is_dir()]
    if arguments.system is not None and arguments.system not in {*ordered, *here}:
        wanted = f"a folder of {PAPERS}; `fedrepro init --paper NAME` writes one"
        raise bad_argument("NAME", arguments.system, wanted, here)
    names = [arguments.system] if arguments.system else ordered
    if not names:
        why = "lists no paper: `fedrepro init --paper NAME` adds one"
        raise refusal(ORDER, why, code="missing")
    lines = list(dict.fromkeys(_faults(root, names, ordered)))
    for line in lines:
        print(line)
    if not lines:
        print(f"{', '.join(names)}: nothing is missing")
    return 1 if lines else 0


def _faults(root: Path, names: list[str], ordered: list[str]) -> Iterator[str]:
    """One line each; what needs files that cannot be read is left out."""
    for name in names:
        if name not in ordered:
            yield f"{ORDER}: expected a line `- {name}`, without which no page has it"
        yield from unfilled(root, name)
    bench = papers = None
    try:
        bench = load(root)
        check_methods(bench)
    except UserError as error:
        yield str(error)
    try:
        papers = published.load(root)
    except UserError as error:
        yield str(error)
    for name in names:
        if bench and name not in bench.experiments:
            yield f"config/experiments/{name}.yaml: there is no such file"
        elif bench and papers and name in papers.systems:
            yield from faults_of(bench, papers, name)
            yield from faults_at_demo(bench, name)


SHORT = 60.0  # seconds: a run that takes less needs no small form


def faults_at_demo(workbench: Workbench, system: str) -> Iterator[str]:
    """Places whose full-size runs scale demo makes, and figures that are empty there."""
    file = workbench.files[system]
    large: dict[str, dict[RunKey, None]] = {}
    for (owner, item), target in workbench.targets("demo").items():
        if owner != system or not target.awaited:
            continue
        for place, setting in _without_demo(target):
            same = (run for run in target.runs if run.setting == setting)
            large.setdefault(place, {}).update(dict.fromkeys(same))
        if not target.runs and workbench.target(owner, item, "paper").runs:
            yield f"{file}: figures.{item}: empty at scale demo: expected a point with `demo`"
    model = CostModel(workbench, [])
    for place, runs in large.items():
        seconds = [_seconds(model, run) for run in runs]
        known = [each for each in seconds if each is not None]
        if len(known) < len(seconds) or max(known, default=0.0) > SHORT:
            takes = _in_words(math.fsum(known)) if len(known) == len(seconds) else "an unknown time"
            names = listed(list(dict.fromkeys(run.setting for run in runs)))
            why = f"scale demo trains {names}, for {takes}: expected a small setting"
            yield f"{file}: {place}.demo: missing: {why}"


def _without_demo(target: Target) -> Iterator[tuple[str, str]]:
    """The places of a target, and their settings, that are the same at scale demo as at paper."""
    if isinstance(target, TableTarget):
        for cell in target.cells:
            full = target.table.setting_of(cell.row, cell.column, "paper")
            if cell.setting == full_name(target.system, full):
                yield f"tables.{target.item}.rows.{cell.row.label}", cell.setting
    elif isinstance(target, FigureTarget):
        named = dict(named_settings(target.figure, f"figures.{target.item}"))
        for key, name in named.items():
            place, _, last = key.rpartition(".")
            if last == "setting" and named.get(f"{place}.demo", "") is None:
                yield place, f"{target.system}/{name}"
    elif isinstance(target, SearchTarget) and target.search.demo is None:
        yield f"search.{target.item}", target.setting


def _seconds(model: CostModel, run: RunKey) -> float | None:
    """The time that a run takes alone; None if unknown."""
    try:
        return model.cost(run, 0).seconds
    except UserError:  # named by another check
        return None


def _in_words(seconds: float) -> str:
    if seconds < 3600:
        return f"about {seconds / 60:.0f} minutes"
    return f"about {seconds / 3600:,.1f} hours"
