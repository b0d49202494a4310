"""``fedrepro curve``: a run's rounds so far, as a curve on a terminal or as a page."""

import argparse
import math
import shutil
import sys
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from html import escape
from pathlib import Path

import fedrepro
from fedrepro.cli.arguments import requested
from fedrepro.cli.console import print_rows
from fedrepro.measures.registry import NOT_SCORES
from fedrepro.support.errors import bad_argument, refusal
from fedrepro.support.files import read_bytes, write_atomically
from fedrepro.support.terminal import say

HEIGHT = 10  # lines of the plot
LEVELS = " ▁▂▃▄▅▆▇█"
HEAD = '<!doctype html><html lang="en"><meta charset="utf-8">'
STYLE = "body{font:1rem/1.5 sans-serif;margin:2rem}td,th{padding:0 .8rem 0 0;text-align:right}"


def handle(arguments: argparse.Namespace) -> None:
    _, named = requested(arguments)
    page: Path | None = arguments.page
    if page and page.is_file() and not read_bytes(page).startswith(HEAD.encode()):
        wanted = "a new file, or an earlier page of `fedrepro curve`"
        raise bad_argument("--page", str(page), wanted)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = fedrepro.load(named.setting, named.method, named.seed)
    for warning in said:
        say(f"fedrepro: {warning.message}")
    # As `fedrepro run` reports it: where clients are scored on their own test samples, their mean.
    known = dict.fromkeys(("client_accuracy", "test_accuracy", *run.rounds.columns))
    scores = [name for name in known if name in run.rounds and name not in NOT_SCORES]
    column = next((name for name in scores if run.rounds[name].notna().any()), None)
    if column is None:
        why = (
            "no score yet: expected an evaluated round (`evaluate: every` in the setting)"
            if run.rounds.empty
            else f"{run.method} records no score"
        )
        raise refusal(run.folder, f"nothing to draw: {why}", code="missing")
    if page:
        _write_page(page, run, column, [str(warning.message) for warning in said])
        return
    rounds, values = run.rounds["round"].tolist(), run.rounds[column].tolist()
    if sys.stdout.isatty():
        print(*plotted(column.replace("_", " "), rounds, values), sep="\n")
    else:
        cells = zip(map(str, rounds), map(repr, values), strict=True)
        print_rows(("round", column), [*cells])


def _write_page(file: Path, run: "fedrepro.Run", column: str, remarks: Sequence[str]) -> None:
    """Write a page that needs no other file: remarks on the run, its curve, its rounds."""
    title = escape(f"{run.setting} {run.method}, seed {run.seed}")
    parts = [f"<h1>{title}</h1>", *(f"<p>{escape(remark)}</p>" for remark in remarks)]
    parts += [fedrepro.plot([run], of=column).svg, run.rounds.to_html(index=False, border=0)]
    head = f"{HEAD}<title>{title}</title><style>{STYLE}</style>"
    with write_atomically(file) as temporary:
        temporary.write_text("\n".join([head, *parts, "</html>\n"]), encoding="utf-8")
    say(str(file))


def plotted(name: str, rounds: Sequence[int], values: Sequence[float]) -> list[str]:
    """The lines of a plot that fits the terminal.

    Each of its columns has the last value up to its round; "×" marks those that are not finite.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    scale, edge = (high - low) or 1.0, max(len(f"{end:.4g}") for end in (low, high))
    wide = min(shutil.get_terminal_size().columns - edge - 2, rounds[-1])
    counts = (bisect_right(rounds, rounds[-1] * (place + 1) / wide) for place in range(wide))
    shown = [values[count - 1] if count else None for count in counts]
    lines = [f"{name}, {values[-1]:.4g} after round {rounds[-1]:,}"]
    for line in reversed(range(HEIGHT)):
        label = {HEIGHT - 1: f"{high:.4g}", 0: f"{low:.4g}"}.get(line, "")
        lines.append(f"{label:>{edge}} {''.join(_drawn(v, low, scale, line) for v in shown)}")
    return [*lines, f"{'':>{edge}} 1{rounds[-1]:>{max(wide - 1, 1)}}"]


def _drawn(value: float | None, low: float, scale: float, line: int) -> str:
    if value is None:
        return " "
    if not math.isfinite(value):
        return "×" if line == 0 else " "
    filled = 1 + round((value - low) / scale * (HEIGHT * 8 - 1))  # at least one eighth
    return LEVELS[min(max(filled - 8 * line, 0), 8)]
