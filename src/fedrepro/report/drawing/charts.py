"""Bars, matrices and landscapes, in the manner of :mod:`fedrepro.report.drawing.style`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedrepro.report.drawing.contours import contour
from fedrepro.report.drawing.style import HEAT, INK, SERIES_COLOURS, STRONG, finish

LEVELS = 8  # contours of a landscape


@dataclass(frozen=True)
class Bar:
    """A value over seeds, with the seeds' smallest and largest one."""

    name: str
    value: float
    low: float
    high: float


def bars(drawn: Sequence[Bar], *, description: str, decimals: int = 2) -> str:
    """Horizontal bars from zero, each with its name before it and its value behind it."""
    import altair as alt

    rows = [
        {"name": bar.name, "value": bar.value, "low": bar.low, "high": bar.high,
         "text": f"{bar.value:.{decimals}f}"}
        for bar in drawn
    ]  # fmt: skip
    most = max(max(bar.high, bar.value) for bar in drawn)
    names = [bar.name for bar in drawn]
    # The page's face may be wider than the one that the library measures labels with.
    axis = alt.Axis(ticks=False, grid=False, minExtent=9 * max(map(len, names)))
    y = alt.Y("name:N", sort=names, title=None, axis=axis)
    scale = alt.Scale(domain=[min(0.0, *(bar.low for bar in drawn)), 1.22 * most], nice=False)
    x = alt.X("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=4))
    base = alt.Chart(alt.InlineData(rows)).encode(y=y)
    layers: list[Any] = [
        base.mark_bar(fill=SERIES_COLOURS[0], fillOpacity=0.45, height=14).encode(x=x),
        base.mark_rule(strokeWidth=1.6, color=SERIES_COLOURS[0]).encode(
            x=alt.X("low:Q", title=None, scale=scale), x2="high:Q"
        ),
        base.mark_text(align="left", dx=6, fontSize=13, color=STRONG).encode(
            x=alt.X("high:Q", title=None, scale=scale), text="text:N"
        ),
    ]
    return finish(alt.layer(*layers).properties(width=250, height=24 * len(rows)), description)


def matrix(
    values: Sequence[Sequence[float | None]],
    *,
    x: Sequence[str],
    y: Sequence[str],
    titles: tuple[str, str],
    rising: bool,
    description: str,
) -> str:
    """A heat map of ``values`` [y][x] with a number in every cell; the best one is framed.

    ``titles`` are those of the horizontal and the vertical axis; ``rising`` says whether more is
    better.
    """
    import altair as alt

    known = [value for row in values for value in row if value is not None]
    least, most = min(known, default=0.0), max(known, default=0.0)
    best = most if rising else least
    rows = [
        {"x": x[column], "y": y[row], "text": "–" if value is None else f"{value:.2f}",
         "share": 0 if value is None else round(0.06 + 0.44 * _part(value, least, most), 3),
         "frame": 1.5 if value == best else 0}
        for row, line in enumerate(values)
        for column, value in enumerate(line)
    ]  # fmt: skip
    axis = alt.Axis(grid=False, ticks=False, labelAngle=0)
    base = alt.Chart(alt.InlineData(rows)).encode(
        x=alt.X("x:N", sort=list(x), title=titles[0], axis=axis),
        y=alt.Y("y:N", sort=list(y), title=titles[1], axis=axis),
    )
    cells = base.mark_rect(fill=HEAT, stroke=STRONG, strokeOpacity=1).encode(
        fillOpacity=alt.FillOpacity("share:Q", scale=None),
        strokeWidth=alt.StrokeWidth("frame:Q", scale=None),
    )
    text = base.mark_text(fontSize=13, color=STRONG).encode(text="text:N")
    sizes = {"width": 58 * len(x), "height": 34 * len(y)}
    return finish(alt.layer(cells, text).properties(**sizes), description)


def landscape(
    x: Sequence[float],
    y: Sequence[float],
    loss: Sequence[Sequence[float]],
    *,
    description: str,
) -> str:
    """The loss [y][x] on a grid: darker is higher, on a logarithmic scale, with contours."""
    import altair as alt

    heights = [[_height(value) for value in row] for row in loss]
    known = [value for row in heights for value in row if math.isfinite(value)]
    least, most = min(known), max(known)
    step = [(values[-1] - values[0]) / (len(values) - 1) for values in (x, y)]
    cells = [
        {"x": x[i] - step[0] / 2, "x2": x[i] + step[0] / 2,
         "y": y[j] - step[1] / 2, "y2": y[j] + step[1] / 2,
         "share": round(0.04 + 0.66 * _part(value, least, most), 3)}
        for j, row in enumerate(heights)
        for i, value in enumerate(row)
        if math.isfinite(value)
    ]  # fmt: skip
    lines = [
        {"x": start[0], "y": start[1], "x2": end[0], "y2": end[1]}
        for number in range(1, LEVELS + 1)
        for start, end in contour(x, y, heights, least + number * (most - least) / (LEVELS + 1))
    ]
    sides: list[dict[str, Any]] = [
        {
            "scale": alt.Scale(domain=[values[0] - size / 2, values[-1] + size / 2], nice=False),
            "axis": alt.Axis(grid=False, tickCount=5),
        }
        for values, size in zip((x, y), step, strict=True)
    ]
    across, up = sides
    layers: list[Any] = [
        alt.Chart(alt.InlineData(cells))
        .mark_rect(fill=HEAT, stroke=None)
        .encode(
            x=alt.X("x:Q", title="first direction", **across), x2="x2:Q",
            y=alt.Y("y:Q", title="second direction", **up), y2="y2:Q",
            fillOpacity=alt.FillOpacity("share:Q", scale=None),
        ),
        alt.Chart(alt.InlineData(lines or [{"x": x[0], "y": y[0], "x2": x[0], "y2": y[0]}]))
        .mark_rule(strokeWidth=0.8, color=INK)
        .encode(x="x:Q", x2="x2:Q", y="y:Q", y2="y2:Q"),
        alt.Chart(alt.InlineData([{"x": 0, "y": 0}]))
        .mark_point(shape="cross", filled=True, size=60, opacity=1, color=STRONG)
        .encode(x="x:Q", y="y:Q"),
    ]  # fmt: skip
    return finish(alt.layer(*layers).properties(width=260, height=260), description)


def _part(value: float, least: float, most: float) -> float:
    return (value - least) / (most - least) if most > least else 0.0


def _height(loss: float) -> float:
    return math.log(max(loss, 1e-12)) if math.isfinite(loss) else math.inf
