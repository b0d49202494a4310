"""``fedrepro table``, ``page`` and ``export``: compute tables from runs, and show them."""

import argparse
from pathlib import Path

from fedrepro.cli.arguments import new_folder, refuse_existing
from fedrepro.config.loading import load
from fedrepro.config.targets import TableTarget
from fedrepro.report import site
from fedrepro.report.cells import tables
from fedrepro.report.pages.table import appendix_of
from fedrepro.report.pages.templates import ALONE, write_standalone
from fedrepro.report.papers import published
from fedrepro.support.terminal import say
from fedrepro.workflow.graph import Graph
from fedrepro.workflow.rerun_checks import REDEFINED, note_definition, noted_definition


def make_table(arguments: argparse.Namespace) -> None:
    workbench = load()
    target = workbench.table(arguments.system, arguments.item, arguments.scale)
    definition = Graph(workbench).definition_of(target)
    _say(tables.write(workbench, target, published.load(workbench.root), definition))


def make_page(arguments: argparse.Namespace) -> None:
    workbench = load()
    target = workbench.target(arguments.system, arguments.item, arguments.scale)
    graph = Graph(workbench)
    if isinstance(target, TableTarget):  # whose page shows the computed table
        made_by: str = workbench.scale(arguments.scale)
        if noted_definition(target.path) not in (None, graph.definition_of(target)):
            say(f"{target.path}: {REDEFINED}: `fedrepro table` makes it again")
    else:
        made_by = graph.entry_of(target)
    runs = () if isinstance(target, TableTarget) else target.runs
    note_definition(workbench.root, target.page, made_by, runs)
    page = site.write_page(workbench, target, published.load(workbench.root))
    write_standalone(workbench.root, page, ALONE / target.system / f"{target.item}.html")
    _say(page)


def export(arguments: argparse.Namespace) -> None:
    workbench = load()
    target = workbench.table(arguments.system, arguments.item, arguments.scale)
    folder: Path = arguments.to or Path(f"{target.system}-{target.item}")
    refuse_existing("--to", folder)
    known = published.load(workbench.root)
    table = tables.compute(workbench, target, known)  # from the runs there are
    for cell in table.cells:
        where = f"{table.rows[cell.row].label}, {table.columns[cell.column].label}"
        for result in filter(None, (cell.result, cell.demo)):
            if result.stale or (result.note and not result.n):
                what = "not of today" if result.stale else "without a number"
                say(f"{what}: {where}: {result.note or result.stale}")
    files = appendix_of(workbench, target, known, table)
    with new_folder("--to", folder) as made:
        for name, text in files.items():
            (made / name).write_text(text, encoding="utf-8")
    _say(folder)


def _say(path: Path) -> None:
    say(f"wrote {path}")
