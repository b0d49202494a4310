"""A surface over a plane of models: heat, labelled contours, marked models, a colour bar."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedrepro.report.drawing.contours import Segment, contour
from fedrepro.report.drawing.style import (
    HALO,
    HIGH,
    LOW,
    ON_SURFACE,
    SHAPES,
    STRONG,
    VARIABLES,
    finish,
)

LEVELS = 8  # contours, of which no two have the same label
SIZE = 270  # pixels
SHADES = 60
STRONGEST = 0.95  # of the upper colour
# A cell of the surface, as the drawing library writes it.
CELL = re.compile(
    rf'<path d="([^"]*)" fill="{re.escape(VARIABLES[HIGH])}" fill-opacity="([\d.]+)"/>'
)

Values = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Mark:
    """A model on the plane, or its projection.

    Attributes:
        corner: whether the plane goes through it; of others the name stands above or below.
    """

    name: str
    x: float
    y: float
    corner: bool


@dataclass(frozen=True)
class Range:
    """The values that a figure's panels share: least and greatest, and whether on a log scale."""

    least: float
    most: float
    logarithmic: bool

    def place(self, value: float) -> float:
        """0 at the least, 1 at the greatest."""
        low, high, at = (self._height(each) for each in (self.least, self.most, value))
        return min(max((at - low) / (high - low), 0.0), 1.0) if high > low else 0.0

    def levels(self) -> list[float]:
        """Round numbers between the ends, at which contours are drawn."""
        low, high = self._height(self.least), self._height(self.most)
        found = []
        for number in range(1, LEVELS + 1):
            height = low + number * (high - low) / (LEVELS + 1)
            value = math.exp(height) if self.logarithmic else height
            found.append(float(f"{value:.2g}"))
        return sorted({each for each in found if self.least < each < self.most})

    def _height(self, value: float) -> float:
        return math.log(max(value, 1e-12)) if self.logarithmic else value


def range_of(surfaces: Sequence[Values], logarithmic: bool) -> Range:
    """What all of several panels lie in."""
    known = [value for values in surfaces for row in values for value in row if _known(value)]
    return Range(min(known), max(known), logarithmic)


def draw(
    x: Sequence[float],
    y: Sequence[float],
    values: Values,
    marks: Sequence[Mark],
    shared: Range,
    *,
    title: str,
    description: str,
) -> str:
    """``values`` [y][x] as SVG: darker is more. ``title`` is that of the colour bar."""
    import altair as alt

    step = [(ends[-1] - ends[0]) / (len(ends) - 1) for ends in (x, y)]
    cells = [
        {"x": x[i] - step[0] / 2, "x2": x[i] + step[0] / 2,
         "y": y[j] - step[1] / 2, "y2": y[j] + step[1] / 2,
         "share": round(STRONGEST * round(SHADES * shared.place(value)) / SHADES, 3)}
        for j, row in enumerate(values)
        for i, value in enumerate(row)
        if _known(value)
    ]  # fmt: skip
    lines, labels = _contours(x, y, values, shared)
    sides: list[dict[str, Any]] = [
        {
            "scale": alt.Scale(domain=[ends[0] - size / 2, ends[-1] + size / 2], nice=False),
            "axis": alt.Axis(grid=False, tickCount=4, format="~g"),
        }
        for ends, size in zip((x, y), step, strict=True)
    ]
    across, up = sides
    ground = [{"x": x[0] - step[0] / 2, "x2": x[-1] + step[0] / 2,
               "y": y[0] - step[1] / 2, "y2": y[-1] + step[1] / 2}]  # fmt: skip
    place: dict[str, Any] = {"x": alt.X("x:Q", **across), "y": alt.Y("y:Q", **up)}
    ends: dict[str, Any] = {**place, "x2": "x2:Q", "y2": "y2:Q"}
    rows: list[dict[str, Any]] = [
        {"x": mark.x, "y": mark.y, "text": mark.name, "number": str(number)}
        for number, mark in enumerate(marks)
    ]
    layers: list[Any] = [
        alt.Chart(alt.InlineData(ground))
        .mark_rect(fill=LOW, stroke=None)
        .encode(
            x=alt.X("x:Q", title="distance along the first direction", **across), x2="x2:Q",
            y=alt.Y("y:Q", title="along the second", **up), y2="y2:Q",
        ),
        alt.Chart(alt.InlineData(cells))
        .mark_rect(fill=HIGH, stroke=None)
        .encode(**ends, fillOpacity=alt.FillOpacity("share:Q", scale=None)),
    ]  # fmt: skip
    if lines:
        layers.append(
            alt.Chart(alt.InlineData(lines))
            .mark_rule(strokeWidth=0.8, color=ON_SURFACE, opacity=0.7)
            .encode(**ends)
        )
        layers += _text(alt, labels, place, size=13, stroke=3)
    points = alt.Chart(alt.InlineData(rows))
    shapes = alt.Scale(
        domain=[row["number"] for row in rows],
        range=[SHAPES[number % len(SHAPES)] for number in range(len(rows))],
    )
    layers.append(
        points.mark_point(
            filled=True, size=80, opacity=1, color=ON_SURFACE, stroke=HALO, strokeWidth=1.2
        ).encode(**place, shape=alt.Shape("number:N", scale=shapes, legend=None))
    )
    for row, mark in zip(rows, marks, strict=True):
        layers += _text(alt, [row], place, size=14, stroke=4, **_beside(mark, marks, x))
    main = alt.layer(*layers).properties(width=SIZE, height=SIZE)
    svg = finish(alt.hconcat(main, _bar(alt, shared, title), spacing=10), description)
    return _joined(svg)


def _joined(svg: str) -> str:
    """One path for all cells of a shade: a sixth of the bytes, and no seams between neighbours."""

    def join(group: re.Match[str]) -> str:
        shades: dict[str, list[str]] = {}
        for outline, shade in CELL.findall(group[0]):
            short = re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.2f}", outline)
            shades.setdefault(shade, []).append(short)
        return "".join(
            f'<path d="{"".join(outlines)}" fill="{VARIABLES[HIGH]}" fill-opacity="{shade}" '
            'shape-rendering="crispEdges"/>'
            for shade, outlines in shades.items()
        )

    return re.sub(f"(?:{CELL.pattern})+", join, svg)


def _beside(mark: Mark, marks: Sequence[Mark], x: Sequence[float]) -> dict[str, Any]:
    """Where a mark's name stands: of a corner beside it, else above the first, below others."""
    if mark.corner:
        to_the_left = mark.x > x[0] + 0.6 * (x[-1] - x[0])
        return {"align": "right", "dx": -9} if to_the_left else {"align": "left", "dx": 9}
    first = next(each for each in marks if not each.corner)
    return {"dy": -13 if mark is first else 15}


def _text(
    alt: Any, rows: Sequence[Any], place: Any, *, size: int, stroke: int, **where: Any
) -> list[Any]:
    """Words on a surface, twice: first as their own outline."""
    base = alt.Chart(alt.InlineData(rows))
    outline = {"color": HALO, "stroke": HALO, "strokeWidth": stroke, "strokeJoin": "round"}
    return [
        base.mark_text(fontSize=size, **look, **where).encode(**place, text="text:N")
        for look in (outline, {"color": ON_SURFACE})
    ]


def _contours(
    x: Sequence[float], y: Sequence[float], values: Values, shared: Range
) -> tuple[list[dict[str, float]], list[dict[str, Any]]]:
    """Rules, and one label for each level that is crossed, apart from each other."""
    lines, labels = [], []
    for number, level in enumerate(shared.levels()):
        segments = contour(x, y, values, level)
        lines += [
            {"x": start[0], "y": start[1], "x2": end[0], "y2": end[1]} for start, end in segments
        ]
        if segments:
            # Labels go round, so that those of neighbouring levels do not meet.
            angle = 2 * math.pi * number * 0.381966 + 0.9
            at = _furthest(segments, angle, (x, y))
            labels.append({"x": at[0], "y": at[1], "text": f"{level:g}"})
    return lines, labels


def _furthest(
    segments: Sequence[Segment], angle: float, sides: tuple[Sequence[float], Sequence[float]]
) -> tuple[float, float]:
    """The middle of the segment that lies furthest in a direction, not at the very edge."""
    middles = [((a[0] + b[0]) / 2, (a[1] + b[1]) / 2) for a, b in segments]
    inside = [
        each
        for each in middles
        if all(
            ends[0] + 0.08 * (ends[-1] - ends[0]) < at < ends[-1] - 0.08 * (ends[-1] - ends[0])
            for at, ends in zip(each, sides, strict=True)
        )
    ]
    return max(inside or middles, key=lambda at: at[0] * math.cos(angle) + at[1] * math.sin(angle))


def _bar(alt: Any, shared: Range, title: str) -> Any:
    """From the least to the greatest value, in the surface's colours."""
    steps = 32
    rows = [
        {"y": number / steps, "y2": (number + 1) / steps, "x": 0, "x2": 1,
         "share": round(STRONGEST * (number + 0.5) / steps, 3)}
        for number in range(steps)
    ]  # fmt: skip
    ticks = [shared.least, *shared.levels(), shared.most]
    names = [{"x": 1, "y": shared.place(value), "text": f"{value:.2g}"} for value in ticks]
    shown = [row for number, row in enumerate(names) if _apart(names, number)]
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, 1], nice=False), axis=None)
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, 3], nice=False), axis=None)
    place = {"x": x, "y": y, "x2": "x2:Q", "y2": "y2:Q"}
    base = alt.Chart(alt.InlineData(rows))
    layers = [
        base.mark_rect(fill=LOW, stroke=None).encode(**place),
        base.mark_rect(fill=HIGH, stroke=None).encode(
            **place, fillOpacity=alt.FillOpacity("share:Q", scale=None)
        ),
        alt.Chart(alt.InlineData(shown))
        .mark_text(align="left", dx=4, fontSize=13, color=STRONG)
        .encode(x=x, y=y, text="text:N"),
    ]
    heading = alt.TitleParams(
        title, fontSize=13, fontWeight="normal", color=STRONG, anchor="start", offset=8
    )
    return alt.layer(*layers).properties(width=48, height=SIZE, title=heading)


def _apart(names: Sequence[Any], number: int) -> bool:
    """Whether a label has room: the ends always have."""
    if number in (0, len(names) - 1):
        return True
    at = names[number]["y"]
    return bool(0.05 < at < 0.95)


def _known(value: float) -> bool:
    return math.isfinite(value)
