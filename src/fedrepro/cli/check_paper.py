"""``fedrepro check-paper``: what is missing or doubtful in a paper's files, before training."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from fedrepro.config.loading import load, require_workbench
from fedrepro.cost.demo_faults import faults_at_demo
from fedrepro.report.cells.paper_faults import faults_of, unfilled
from fedrepro.report.papers import published
from fedrepro.report.papers.paper_files import listed_in
from fedrepro.run.run_archive import ORDER, PAPERS
from fedrepro.support.errors import UserError, bad_argument, refusal
from fedrepro.workflow.checks import check_methods


def handle(arguments: argparse.Namespace) -> int:
    root = Path()
    require_workbench(root)
    listed = [str(name) for name in listed_in(root, ORDER)]
    here = [path.name for path in sorted(PAPERS.glob("*")) if path.is_dir()]
    if arguments.system is not None and arguments.system not in {*listed, *here}:
        wanted = f"a folder of {PAPERS}; `fedrepro init --paper NAME` writes one"
        raise bad_argument("NAME", arguments.system, wanted, here)
    names = [arguments.system] if arguments.system else listed
    if not names:
        why = "lists no paper: `fedrepro init --paper NAME` adds one"
        raise refusal(ORDER, why, code="missing")
    lines = list(dict.fromkeys(_faults(root, names, listed)))
    for line in lines:
        print(line)
    if not lines:
        print(f"{', '.join(names)}: nothing is missing")
    return 1 if lines else 0


def _faults(root: Path, names: list[str], listed: list[str]) -> Iterator[str]:
    """One line each; what needs files that cannot be read is left out."""
    for name in names:
        if name not in listed:
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
