"""Learning curves of runs as SVG."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedrepro.report.drawing import curves
from fedrepro.report.pages import downloads, templates
from fedrepro.support.errors import UserError, bad_value, refusal
from fedrepro.support.packaged import own_or_packaged

if TYPE_CHECKING:
    import pandas as pd

    from fedrepro.api.runs import Run


def sketch(run: "Run") -> tuple[str, str]:
    """A run's curve of accuracy as a small SVG, and its end in words.

    Raises:
        UserError: if it has none.
    """
    column = score_of(iter([run]))
    line = line_of(run.method, [run], column)
    number, value = line.points[-1]
    end = f"{column.replace('_', ' ')} {value:.4g} after round {number}"
    return coloured(drawn([line], column), 1.0), end


def lines_of(
    named: "Mapping[str, Sequence[Run]]", column: str
) -> tuple[list[curves.Line], list[str]]:
    """The learning curves of groups, and the names of those that diverged before their first point.

    Raises:
        UserError: if a group has no curve for another reason, or if none has one.
    """
    lines, gone = [], []
    for name, group in named.items():
        try:
            lines.append(line_of(name, group, column))
        except UserError:
            if len(named) == 1 or not all(run.diverged_at for run in group):
                raise
            gone.append(f"{name}{_divergence(group)}, not drawn")
    if not lines:
        why = f"{column}: all runs diverged before they had any"
        raise refusal("fedrepro", why, column, code="missing")
    return lines, gone


def line_of(name: str, group: "Sequence[Run]", column: str) -> curves.Line:
    """A group's learning curve, named with what diverged in it.

    A seed that diverged before its first point is left out: it has no round to average.

    Raises:
        UserError: if no round has a value of all other seeds.
    """
    by_run = [(run, points_of(run, column)) for run in group]
    out = [run.seed for run, points in by_run if run.diverged_at and not points]
    kept = [points for run, points in by_run if points or not run.diverged_at]
    named = name + _divergence(group, out if kept else ())
    line = curves.average(named, kept)
    if line is None:
        why = f"{named}: {column}: its seeds have no common round with it"
        raise refusal("fedrepro", why, column, code="missing")
    return line


def points_of(run: "Run", column: str) -> curves.Points:
    """A run's finite values by round, up to the one in which it diverged."""
    return [
        (number, value)
        for number, value in zip(run.rounds["round"], column_of(run, column), strict=True)
        if math.isfinite(value) and (run.diverged_at is None or number < run.diverged_at)
    ]


def _divergence(group: "Sequence[Run]", out: Collection[int] = ()) -> str:
    """Which seeds of a group diverged, and are left ``out``, to follow its name; or ""."""
    diverged = [
        f"seed {run.seed} in round {run.diverged_at}{', left out' * (run.seed in out)}"
        for run in group
        if run.diverged_at
    ]
    return f" (diverged: {', '.join(diverged)})" if diverged else ""


def drawn(lines: Sequence[curves.Line], column: str) -> str:
    """An SVG of learning curves, whose description says where each one ends."""
    title = column.replace("_", " ")
    ends = ", ".join(f"{line.name} ends at {line.points[-1][1]:.4g}" for line in lines)
    return curves.draw(lines, description=f"{title} by round: {ends}.", unit="", beside=title)


def coloured(svg: str, scale: float) -> str:
    """A chart with the site's light colours."""
    style = own_or_packaged(Path(), templates.TEMPLATES) / "assets/site.css"
    colours = downloads.light_colours(style.read_text(encoding="utf-8"))
    return downloads.standalone(svg, colours, scale)


def as_png(svg: str) -> bytes:
    """A chart as PNG.

    Raises:
        UserError: if the extra ``png`` is not installed.
    """
    if not downloads.has_png():
        why = "not installed: save as .svg, or add the extra `png`"
        raise refusal("vl-convert-python", why, code="missing")
    return downloads.as_png(svg)


def score_of(runs: "Iterator[Run]") -> str:
    """The name of an accuracy that all runs have, or else of a loss."""
    tables = [run.rounds for run in runs]
    for name in ("test_accuracy", "client_accuracy", "test_loss"):
        if all(name in table and table[name].notna().any() for table in tables):
            return name
    why = "runs: they have no score in common: choose a column with `of`"
    raise refusal("fedrepro", why, "runs")


def column_of(run: "Run", name: str) -> "pd.Series[float]":
    known = list(map(str, run.rounds))
    if not isinstance(name, str) or name not in known:
        raise bad_value("fedrepro", "of", name, f"one of {', '.join(known)}", known)
    return run.rounds[name]
