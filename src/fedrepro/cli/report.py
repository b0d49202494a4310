"""``fedrepro table``, ``page`` and ``site``: compute tables from runs, and render pages."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedrepro.support.terminal import say

if TYPE_CHECKING:
    from fedrepro.report.pages.method import MethodText
    from fedrepro.support.plugins import Folders


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    table = subparsers.add_parser(
        "table",
        help="compute a table from its runs",
        description="Compute the cells of a table from its runs. Cells without runs stay empty.",
        epilog="Example: fedrepro table ima table_1 --scale demo",
    )
    _add_table(table)
    table.set_defaults(handler=make_table)
    page = subparsers.add_parser(
        "page",
        help="render the page of a table or figure, and the pages of its runs",
        description="Render the page of a figure, or of a table that `fedrepro table` computed, "
        "and the pages of its runs; if these are more than 500, `fedrepro site` renders them.",
        epilog="Example: fedrepro page ima table_1 --scale demo",
    )
    _add_table(page)
    page.set_defaults(handler=make_page)
    site = subparsers.add_parser(
        "site",
        help="render the start page and all pages other than those of tables and figures",
        description="Render the start page from the tables that `fedrepro table` has computed; the "
        "pages of methods, discrepancies and cost; and the printed numbers of tables that no "
        "experiment file covers yet.",
    )
    _add_scale(site)
    site.set_defaults(handler=make_site)


def _add_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("system", metavar="SYSTEM", help="such as ima")
    parser.add_argument("item", metavar="ITEM", help="such as table_1 or figure_a1")
    _add_scale(parser)


def _add_scale(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", help="demo, compact or paper (default: from config/config.yaml)")


def make_table(arguments: argparse.Namespace) -> None:
    from fedrepro.config.loading import load
    from fedrepro.report.cells import tables
    from fedrepro.report.papers import published

    workbench = load()
    target = workbench.table(arguments.system, arguments.item, arguments.scale)
    _say(tables.write(workbench, target, published.load(workbench.root)))


def make_page(arguments: argparse.Namespace) -> None:
    from fedrepro.config.loading import load
    from fedrepro.report import site
    from fedrepro.report.pages.standalone import FOLDER, write_standalone
    from fedrepro.report.papers import published

    workbench = load()
    target = workbench.target(arguments.system, arguments.item, arguments.scale)
    page = site.write_page(workbench, target, published.load(workbench.root))
    write_standalone(workbench.root, page, FOLDER / target.system / f"{target.item}.html")
    _say(page)


def make_site(arguments: argparse.Namespace) -> None:
    from fedrepro.config.loading import load
    from fedrepro.report import site
    from fedrepro.report.papers import published

    workbench = load()
    scale = workbench.scale(arguments.scale)
    papers = published.load(workbench.root)
    _say(site.write_site(workbench, papers, described_methods(workbench.plugins), scale))


def described_methods(own: "Folders") -> "list[MethodText]":
    """The contents of the methods' pages. Here, as fedrepro.report must not import torch."""
    from fedrepro.cli.meanings import meanings_of
    from fedrepro.methods import registry
    from fedrepro.report.pages.method import MethodText

    return [
        MethodText(
            registry.describe(part),
            part.documentation,
            part.file.read_text(encoding="utf-8"),
            part.shown_file,
            registry.code_of_hooks(part),
            meanings_of(part.cls),
        )
        for part in registry.parts(own).values()
    ]


def _say(path: Path) -> None:
    say(f"wrote {path}")
