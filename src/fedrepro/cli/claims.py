"""``fedrepro coverage`` and ``claims``: how much of the papers is computed, and what it says."""

import argparse
import json
import sys

from fedrepro.cli.console import print_rows
from fedrepro.config.loading import load
from fedrepro.report.cells import coverage, tables
from fedrepro.report.pages.claims import views_of
from fedrepro.report.papers import published
from fedrepro.run.results import REFERENCE
from fedrepro.run.run_archive import PAPERS
from fedrepro.support.terminal import say


def show_coverage(arguments: argparse.Namespace) -> None:
    bench = load()
    for study in () if arguments.figures else coverage.missing_studies(bench):
        say(f"fedrepro: some cells need no run but are not computed yet: `fedrepro study {study}`")
    rows = (coverage.figures if arguments.figures else coverage.coverage)(bench)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    keys = [key for key in rows[0] if not sys.stdout.isatty() or any(row[key] for row in rows)]
    header = [SHORT.get(key, key) if sys.stdout.isatty() else key for key in keys]
    print_rows(header, [[str(row[key]) for key in keys] for row in rows])


# Short headers, so that nine columns of numbers fit on a terminal.
SHORT = {
    "targets": "target",
    "computed": "done",
    "not_comparable": "not comparable",
    "arithmetic_agree": "sums_agree",
    "arithmetic_differ": "sums_differ",
}


def show_claims(arguments: argparse.Namespace) -> None:
    bench = load()
    papers = published.load(bench.root)
    targets = bench.tables("paper")
    with tables.computed_once():
        found = {key: tables.compute(bench, target, papers) for key, target in targets.items()}
        rows = [view.facts for view in views_of(bench, papers, found)]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    diverged = ["compact_diverged"] if any(row["compact_diverged"] for row in rows) else []
    header = (
        "claim", "says", "printed", "compact", "compact_lead", "compact_seeds", *diverged, "ours",
        "released", "lead", "seeds",
    )  # fmt: skip
    print_rows(header, [[str(row[key]) for key in header] for row in rows])
    if not rows:
        line = "no paper is in this workbench: `fedrepro init --with SYSTEM` brings its claims"
        say(f"fedrepro: {line}")
    elif not any((bench.root / PAPERS).glob(f"*/{REFERENCE}")):
        line = "results at scale paper that come with fedrepro are only in a clone of it"
        say(f"fedrepro: {line}")
