"""``fedrepro coverage`` and ``claims``: how much of the papers is computed, and what it says."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fedrepro.cli.console import print_lines, print_rows, printed_as_json
from fedrepro.config.loading import load
from fedrepro.report.cells import coverage, tables
from fedrepro.report.pages.claims import summary, views_of
from fedrepro.report.papers.leads import Word
from fedrepro.run.landed_runs import PAPERS
from fedrepro.run.results import REFERENCE
from fedrepro.support.printing import counted
from fedrepro.support.scoped_cache import read_once
from fedrepro.support.terminal import say


def show_coverage(arguments: argparse.Namespace) -> None:
    bench = load()
    for study in () if arguments.figures else coverage.missing_studies(bench):
        say(f"fedrepro: some cells need no run but are not computed yet: `fedrepro study {study}`")
    rows = (coverage.figures if arguments.figures else coverage.coverage)(bench)
    if printed_as_json(arguments, rows):
        return
    if not any(count for row in rows for count in row.values() if isinstance(count, int)):
        say(f"fedrepro: no printed number in {PAPERS}: {HOW_TO_ADD}")
        return
    if not sys.stdout.isatty():
        print_rows([*rows[0]], [[str(cell) for cell in row.values()] for row in rows])
        return
    counts = [key for key in rows[0] if key not in ("system", "table")]
    rows = [row for row in rows if any(row[key] for key in counts)]  # ours have nothing printed
    counts = [key for key in counts if any(row[key] for row in rows)]
    print_rows(
        ("table", *(SHORT.get(key, key) for key in counts)),
        [(f"{row['system']}/{row['table']}", *(str(row[key]) for key in counts)) for row in rows],
    )


HOW_TO_ADD = "`fedrepro init --with SYSTEM` brings a paper, `--paper NAME` starts one"

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
    with read_once():
        readings = tables.compute_all(bench)
        views = views_of(readings)
    cells = [cell for table in readings.tables.values() for cell in table.cells]
    runs = {key: run for cell in cells for key, run in cell.result.by_key}
    damaged = [f"{key.words}: {run.why}" for key, run in runs.items() if run.state == "damaged"]
    for first in damaged[:1]:  # which no claim counts
        say(f"fedrepro: {counted(len(damaged), 'run')} damaged (`fedrepro verify`); {first}")
    rows = [view.facts for view in views]
    if printed_as_json(arguments, rows):
        return
    if not rows:
        say(f"fedrepro: no claim in {PAPERS}/*/claims.yaml: {HOW_TO_ADD}")
        return
    print_claims(rows, summary(views))
    stale = [row for row in rows if row["compact"] == Word.NOT_COMPUTED and row["compact_why"]]
    for row in stale[:1]:
        claims = f"{counted(len(stale), 'claim')} without a verdict by small runs"
        say(f"fedrepro: {claims}; {row['claim']}: {row['compact_why']}")
    if not any((bench.root / PAPERS).glob(f"*/{REFERENCE}")):
        line = "results at scale paper that come with fedrepro are only in a clone of it"
        say(f"fedrepro: {line}")


# On one line of a terminal: nobody knows what a verdict needs by its word alone.
HEAD = "Leads are [low, high] at 95 %; what each word needs: `fedrepro claims --help`"


def print_claims(rows: Sequence[Mapping[str, Any]], counts: Mapping[str, Any]) -> None:
    """Print claims by their facts; on a terminal in short, with how many have each verdict."""
    if sys.stdout.isatty():
        print_lines([HEAD])
        header = ("claim", "says", "printed", "small runs", "paper scale")
        print_rows(header, [_in_short(row) for row in rows])
        print_lines(_counts(counts) if rows else [])
    else:
        rare = [
            key
            for key in ("compact_diverged", "compact_earlier_rule", "compact_rests_on")
            if any(row[key] for row in rows)
        ]
        keys = (
            *("claim", "says", "printed", "compact", "compact_lead", "compact_seeds", *rare),
            *("ours", "released", "lead", "seeds"),
        )
        print_rows(keys, [[str(row[key]) for key in keys] for row in rows])


def _in_short(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A claim's cells on a terminal; what is not computed is left out."""

    def said(verdict: str, lead: str, seeds: int, *more: str) -> str:
        known = "" if verdict == Word.NOT_COMPUTED else verdict
        numbers = f"{lead}, {counted(seeds, 'seed')}" if lead and seeds else ""
        return "; ".join(filter(None, (known, numbers, *more)))

    small = f"{row['compact_diverged']} diverged" if row["compact_diverged"] else ""
    rule = "setting by an earlier rule" if row["compact_earlier_rule"] else ""
    rival = f"not without {row['compact_rests_on']}" if row["compact_rests_on"] else ""
    released = "" if row["released"] == Word.NOT_COMPUTED else f"as released: {row['released']}"
    return (
        row["claim"],
        row["says"],
        row["printed"],
        "can't be tested"
        if row["compact"] == "none"
        else said(row["compact"], row["compact_lead"], row["compact_seeds"], rival, small, rule),
        said(row["ours"], row["lead"], row["seeds"], released),
    )


def _counts(counts: Mapping[str, Any]) -> list[str]:
    """How many claims have each verdict, and on how many experiments those of small runs rest."""
    printed = ", ".join(f"{word} {count}" for word, count in counts["printed"].items() if count)
    small = [
        f"{word} {count} (on {counted(counts['experiments'][word], 'experiment')})"
        for word, count in counts["compact"].items()
        if count
    ]
    small += [f"can't be tested {counts['no_compact']}"] * bool(counts["no_compact"])
    ours = ", ".join(f"{word} {count}" for word, count in counts["ours"].items() if count)
    return [
        f"Of {counted(counts['total'], 'claim')}, by the printed numbers: {printed}.",
        f"By small runs (scale compact): {', '.join(small)}.",
        f"{counts['earlier_rule']} of these rest on settings by an earlier rule (docs/compact.md).",
        f"By runs with the papers' settings (scale paper): {ours}.",
        "Claims that share runs rest on one experiment.",
    ]
