"""Learning curves: lines over seeds, their mean and range, and the chart of one panel."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedrepro.report.drawing.style import DASHES, SERIES_COLOURS, SHAPES, finish

Points = Sequence[tuple[float, float]]
MARKS = 7  # per line, so that a line can be told without its colour


@dataclass(frozen=True)
class Line:
    """One learning curve: the mean over seeds, and the range if there are several.

    Attributes:
        points: (round, value).
        low, high: the seeds' smallest and largest value at each point, or empty.
        level: a printed value to compare with, drawn as a thin horizontal line.
        raw: what ``points`` are the smoothed line of, drawn thin beneath it.
        begins: where something begins, such as a moving average: vertical lines.
    """

    name: str
    points: Points
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    level: float | None = None
    raw: Points = ()
    begins: Sequence[float] = ()


def draw(
    lines: Sequence[Line],
    *,
    description: str,
    names: Sequence[str] = (),
    limits: tuple[float, float] | None = None,
    unit: str = "%",
    across: str = "round",
) -> str:
    """Learning curves of one panel, as SVG.

    ``description`` is what a reader who can't see the figure is told; ``names`` are all lines'
    names in the order that decides their styles (default: these lines'); ``limits`` are those of
    the vertical axis, when several panels share it; ``across`` is what the horizontal one counts.
    """
    import altair as alt

    if limits:
        lines = [cut(line, limits[0]) for line in lines]
    order = list(names or [line.name for line in lines])
    marked = [row for line in lines for row in _marks(line)]
    rows = [row for line in lines for row in _rows(line)]
    ranges = [row for line in lines if line.low for row in _rows(line)]
    levels = [
        {"series": line.name, "value": line.level} for line in lines if line.level is not None
    ]
    indices = [number % len(SERIES_COLOURS) for number in range(len(order))]
    domain = list(limits) if limits else alt.Undefined
    first = min(0.0, *(line.points[0][0] for line in lines))
    last = max(line.points[-1][0] for line in lines)
    x = alt.X(
        "round:Q",
        title=across,
        scale=alt.Scale(domain=[first, last], nice=False),
        axis=alt.Axis(tickCount=5, format="d" if across == "round" else "~g"),
    )
    y = alt.Y(
        "value:Q",
        title=None,
        scale=alt.Scale(domain=domain, zero=False, nice=not limits),
        # The page's face may be wider than the one that the library measures labels with.
        axis=alt.Axis(
            tickCount=5, minExtent=44, labelExpr=f"datum.label + '{' %' if unit == '%' else ''}'"
        ),
    )
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=order, range=[SERIES_COLOURS[index] for index in indices]),
        legend=None,
    )
    dash = alt.StrokeDash(
        "series:N",
        scale=alt.Scale(domain=order, range=[list(DASHES[index]) for index in indices]),
        legend=None,
    )
    shape = alt.Shape(
        "series:N",
        scale=alt.Scale(domain=order, range=[SHAPES[index] for index in indices]),
        legend=None,
    )
    layers: list[Any] = []
    if levels:
        layers.append(
            alt.Chart(alt.InlineData(levels))
            .mark_rule(strokeWidth=1, strokeDash=[1, 3], opacity=0.9)
            .encode(y=y, color=colour)
        )
    raw = [row for line in lines for row in _rows(Line(line.name, line.raw))]
    if raw:
        layers.append(
            alt.Chart(alt.InlineData(raw))
            .mark_line(strokeWidth=0.8, opacity=0.45)
            .encode(x=x, y=y, color=colour)
        )
    begins = [{"series": line.name, "round": place} for line in lines for place in line.begins]
    if begins:
        layers.append(
            alt.Chart(alt.InlineData(begins))
            .mark_rule(strokeWidth=1.2, strokeDash=[4, 3])
            .encode(x=x, color=colour)
        )
    if ranges:
        layers.append(
            alt.Chart(alt.InlineData(ranges))
            .mark_area(opacity=0.16)
            .encode(x=x, y=y.title(None), y2="high:Q", fill=colour_fill(alt, order, indices))
            .transform_calculate(value="datum.low")
        )
    layers.append(
        alt.Chart(alt.InlineData(rows))
        .mark_line(strokeWidth=1.8, interpolate="linear")
        .encode(x=x, y=y, color=colour, strokeDash=dash)
    )
    layers.append(
        alt.Chart(alt.InlineData(marked))
        .mark_point(filled=True, opacity=1, size=34)
        .encode(x=x, y=y, color=colour, shape=shape)
    )
    chart = alt.layer(*layers).properties(width=270, height=170)
    return finish(chart, description)


def colour_fill(alt: Any, order: Sequence[str], indices: Sequence[int]) -> Any:
    """The fill of a range, in its line's colour."""
    colours = [SERIES_COLOURS[index] for index in indices]
    return alt.Fill("series:N", scale=alt.Scale(domain=list(order), range=colours), legend=None)


def bounds(panels: Sequence[Sequence[Line]]) -> tuple[float, float] | None:
    """Limits of a vertical axis that all panels share, rounded outwards to a multiple of five.

    The first fifth of the rounds, in which all methods rise from chance, does not count: it would
    squeeze what comes after it.
    """
    values = []
    for line in (line for lines in panels for line in lines):
        settled = [index for index, (number, _) in enumerate(line.points) if late(line, number)]
        values += [line.points[index][1] for index in settled]
        values += [ends[index] for ends in (line.low, line.high) if ends for index in settled]
        values += [line.level] if line.level is not None else []
    if not values:
        return None
    low, high = 5 * math.floor(min(values) / 5), 5 * math.ceil(max(values) / 5)
    return (low, high) if high > low else (low - 5, high + 5)


def late(line: Line, number: float) -> bool:
    """Whether a round lies behind the first fifth of a line's rounds."""
    return number > line.points[-1][0] / 5


def cut(line: Line, low: float) -> Line:
    """The line without its points under ``low``, which only its first rounds have."""
    kept = [index for index, (_, value) in enumerate(line.points) if value >= low]
    return replace(
        line,
        points=[line.points[index] for index in kept],
        low=[max(line.low[index], low) for index in kept] if line.low else (),
        high=[line.high[index] for index in kept] if line.high else (),
    )


def average(name: str, runs: Sequence[Points], level: float | None = None) -> Line | None:
    """The mean of several seeds' curves over the rounds that all have; None without a point."""
    by_round: dict[float, list[float]] = {}
    for points in runs:
        for number, value in points:
            if math.isfinite(value):
                by_round.setdefault(number, []).append(value)
    shared = sorted(number for number, values in by_round.items() if len(values) == len(runs))
    if not shared:
        return None
    points = [(number, math.fsum(by_round[number]) / len(runs)) for number in shared]
    if len(runs) == 1:
        return Line(name, points, level=level)
    low = [min(by_round[number]) for number in shared]
    high = [max(by_round[number]) for number in shared]
    return Line(name, points, low, high, level)


def smoothed(line: Line, rounds: int) -> Line:
    """The mean over at most so many of the last points, over the raw line; without its range."""
    if rounds < 2:
        return line
    values = [value for _, value in line.points]
    points = []
    for index, (number, _) in enumerate(line.points):
        last = values[max(0, index + 1 - rounds) : index + 1]
        points.append((number, math.fsum(last) / len(last)))
    return replace(line, points=points, low=(), high=(), raw=line.points)


def _rows(line: Line) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    for index, (number, value) in enumerate(line.points):
        row = {"series": line.name, "round": number, "value": _short(value)}
        if line.low:
            row |= {"low": _short(line.low[index]), "high": _short(line.high[index])}
        rows.append(row)
    return rows


def _marks(line: Line) -> list[Mapping[str, Any]]:
    """A few points of a line, the last one among them; of a short line, all."""
    last = len(line.points) - 1
    marks = len(line.points) if len(line.points) <= 2 * MARKS else MARKS
    chosen = sorted({round(last * number / max(marks - 1, 1)) for number in range(marks)})
    rows = _rows(Line(line.name, line.points))
    return [rows[index] for index in chosen]


def _short(value: float) -> float:
    """Three decimals, or of what is below 1 four digits."""
    return round(value, 3) if abs(value) >= 1 else float(f"{value:.4g}")
