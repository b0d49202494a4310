"""A surface over a plane of models: heat map, labelled contours, marked models, colour bar."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from fedrepro.report.drawing.contours import Segment, contour
from fedrepro.report.drawing.frame import TEXT, Frame, axis
from fedrepro.report.drawing.regions import blocks
from fedrepro.report.drawing.style import (
    HALO,
    HIGH,
    LOW,
    MARK_PATHS,
    ON_SURFACE,
    STRONG,
)

LEVELS = 8  # contours, of which no two have the same label
SIZE = 226  # pixels of the plot
BEHIND = 62  # for the colour bar
SHADES = 60
STRONGEST = 0.95  # of the upper colour
NAME = 14  # pixels, of marks
BELOW = (0.0, 4.5)  # a label's base line, which brings its middle to its point

Values = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Mark:
    """A model on the plane, or its projection.

    Attributes:
        corner: whether it defines the plane; the names of others are above or below them.
    """

    name: str
    x: float
    y: float
    corner: bool


@dataclass(frozen=True)
class Range:
    """The range of values that a figure's panels share, and whether the scale is logarithmic."""

    least: float
    most: float
    logarithmic: bool

    def place(self, value: float) -> float:
        """0 at the lowest value, 1 at the highest."""
        low, high, at = (self._height(each) for each in (self.least, self.most, value))
        return min(max((at - low) / (high - low), 0.0), 1.0) if high > low else 0.0

    def levels(self) -> list[float]:
        """Round numbers in the range, at which contours are drawn."""
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
    """The range that covers several panels."""
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
    titles: tuple[str, str] = ("distance along the first direction", "along the second"),
) -> str:
    """``values`` [y][x] as SVG: darker is more. ``title`` labels the colour bar."""
    step = [(ends[-1] - ends[0]) / (len(ends) - 1) for ends in (x, y)]
    across, up = (
        axis(ends[0] - size / 2, ends[-1] + size / 2, count=4)
        for ends, size in zip((x, y), step, strict=True)
    )
    frame = Frame(across, up, titles[0], SIZE, SIZE, beside=titles[1], behind=BEHIND)
    shades = [
        [round(SHADES * shared.place(value)) if _known(value) else -1 for value in row]
        for row in values
    ]
    cells: dict[int, list[str]] = {}
    for row, above, column, end, shade in blocks(shades):
        left, right = (x[0] + (at - 0.5) * step[0] for at in (column, end))
        low, high = (y[0] + (at - 0.5) * step[1] for at in (row, above))
        cells.setdefault(shade, []).append(frame.box(left, low, right, high))
    surface = [
        f'<path d="{"".join(boxes)}" fill="{HIGH}" shape-rendering="crispEdges" '
        f'fill-opacity="{STRONGEST * shade / SHADES:.3g}"/>'
        for shade, boxes in sorted(cells.items())
        if shade > 0
    ]
    signs = [_sign(frame, mark, number) for number, mark in enumerate(marks)]
    taken = [_around(frame, mark.x, mark.y, " ", (0, 4)) for mark in marks]
    names = [_named(frame, mark, taken) for mark in sorted(marks, key=lambda each: not each.corner)]
    lines = _contours(frame, x, y, values, shared, taken)
    drawn = [frame.ground, *surface, *lines, *signs, *names]
    return frame.svg([*drawn, _bar(frame, shared, title)], description, grid=False)


Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels


def _sign(frame: Frame, mark: Mark, number: int) -> str:
    shape = MARK_PATHS[number % len(MARK_PATHS)]
    at = frame.path([(mark.x, mark.y)])
    return f'<path d="{at}{shape}" fill="{ON_SURFACE}" stroke="{HALO}" stroke-width="1.2"/>'


def _named(frame: Frame, mark: Mark, taken: list[Box]) -> str:
    """A mark's name at a free place, which is then taken; nothing if there is none.

    Names of corners are below their marks, which are near the edges.
    """
    side = 10 + 0.5 * _wide(mark.name, NAME)
    beside = [(0, 20), (0, -9), (side, 4.5), (-side, 4.5), (0, 34), (0, -23)]
    places = [(_around(frame, mark.x, mark.y, mark.name, shift), shift) for shift in beside]
    free = [each for each in places if _is_free(frame, each[0], taken)]
    box, shift = places[0] if mark.corner else [*free, places[0]][0]
    taken.append(box)
    return _text(frame, mark.x, mark.y, mark.name, NAME, shift)


def _around(
    frame: Frame, x: float, y: float, text: str, shift: tuple[float, float], size: int = NAME
) -> Box:
    """The box that words take up, with their middle shifted from a point."""
    middle, base = frame.x(x) + shift[0], frame.y(y) + shift[1]
    half = 0.5 * max(_wide(text, size), 9)
    return middle - half, base - 0.8 * size, middle + half, base + 0.25 * size


def _wide(text: str, size: int) -> float:
    return 0.58 * size * len(text)


def _is_free(frame: Frame, box: Box, taken: Sequence[Box]) -> bool:
    left, top, right, bottom = box
    if left < frame.left or right > frame.left + frame.width:
        return False
    return all(
        right < other[0] or left > other[2] or bottom < other[1] or top > other[3]
        for other in taken
    )


def _text(
    frame: Frame, x: float, y: float, text: str, size: int, shift: tuple[float, float]
) -> str:
    """Words on a surface, with an outline."""
    place = f'x="{frame.x(x) + shift[0]:.1f}" y="{frame.y(y) + shift[1]:.1f}" text-anchor="middle"'
    outline = f'stroke="{HALO}" stroke-width="3" stroke-linejoin="round"'
    return (
        f'<text {place} font-size="{size}px" fill="{ON_SURFACE}" {outline} '
        f'paint-order="stroke">{escape(text)}</text>'
    )


def _contours(
    frame: Frame,
    x: Sequence[float],
    y: Sequence[float],
    values: Values,
    shared: Range,
    taken: list[Box],
) -> list[str]:
    """Contour lines, with one label per level at a free place."""
    lines, labels = [], []
    for number, level in enumerate(shared.levels()):
        segments = contour(x, y, values, level)
        if segments:
            path = "".join(frame.path(segment) for segment in segments)
            lines.append(
                f'<path class="contour" d="{path}" fill="none" opacity="0.7" '
                f'stroke="{ON_SURFACE}" stroke-width="0.8"/>'
            )
            # Labels rotate around the plot, so that those of neighbouring levels do not collide.
            angle = 2 * math.pi * number * 0.381966 + 0.9
            for at in _furthest(segments, angle, (x, y)):
                box = _around(frame, *at, f"{level:g}", BELOW, TEXT)
                if _is_free(frame, box, taken):
                    taken.append(box)
                    labels.append(_text(frame, *at, f"{level:g}", TEXT, BELOW))
                    break
    return [*lines, *labels]


def _furthest(
    segments: Sequence[Segment], angle: float, sides: tuple[Sequence[float], Sequence[float]]
) -> list[tuple[float, float]]:
    """Midpoints of the segments, sorted by distance in a direction, without those at the edge."""
    middles = [((a[0] + b[0]) / 2, (a[1] + b[1]) / 2) for a, b in segments]
    inside = [
        each
        for each in middles
        if all(
            ends[0] + 0.08 * (ends[-1] - ends[0]) < at < ends[-1] - 0.08 * (ends[-1] - ends[0])
            for at, ends in zip(each, sides, strict=True)
        )
    ]
    return sorted(inside, key=lambda at: -at[0] * math.cos(angle) - at[1] * math.sin(angle))


def _bar(frame: Frame, shared: Range, title: str) -> str:
    """The colour bar, to the right of the plot, from the lowest to the highest value."""
    steps, wide = 32, 12
    left, top = frame.left + frame.width + 10, 24.0
    tall = frame.height - 16.0
    cells = [
        f'<rect x="{left:.1f}" y="{top + tall * (1 - (number + 1) / steps):.2f}" width="{wide}" '
        f'height="{tall / steps:.2f}" fill="{HIGH}" shape-rendering="crispEdges" '
        f'fill-opacity="{STRONGEST * (number + 0.5) / steps:.3g}"/>'
        for number in range(steps)
    ]
    ticks = [shared.least, *shared.levels(), shared.most]
    places = [shared.place(value) for value in ticks]
    names = [
        f'<text x="{left + wide + 4:.1f}" y="{top + tall * (1 - place) + 4.5:.1f}">'
        f"{value:.2g}</text>"
        for number, (value, place) in enumerate(zip(ticks, places, strict=True))
        if number in (0, len(ticks) - 1) or 0.05 < place < 0.95
    ]
    ground = f'<rect x="{left:.1f}" y="{top}" width="{wide}" height="{tall}" '
    return (
        f'{ground}fill="{LOW}"/>{"".join(cells)}'
        f'<g fill="{STRONG}" font-size="{TEXT}px"><text x="{left:.1f}" y="14">'
        f"{escape(title)}</text>{''.join(names)}</g>"
    )


def _known(value: float) -> bool:
    return math.isfinite(value)
