"""``fedrepro table``, ``page`` and ``site``: compute tables from runs, and render pages."""

import argparse
from pathlib import Path

from fedrepro.config.loading import load
from fedrepro.report import site
from fedrepro.report.cells import tables
from fedrepro.report.pages.standalone import FOLDER, write_standalone
from fedrepro.report.papers import published
from fedrepro.support.terminal import say


def make_table(arguments: argparse.Namespace) -> None:
    workbench = load()
    target = workbench.table(arguments.system, arguments.item, arguments.scale)
    _say(tables.write(workbench, target, published.load(workbench.root)))


def make_page(arguments: argparse.Namespace) -> None:
    workbench = load()
    target = workbench.target(arguments.system, arguments.item, arguments.scale)
    page = site.write_page(workbench, target, published.load(workbench.root))
    write_standalone(workbench.root, page, FOLDER / target.system / f"{target.item}.html")
    _say(page)


def _say(path: Path) -> None:
    say(f"wrote {path}")
