"""A surface over a plane of models: heat map, labelled contours, marked models, colour bar.

Grids of values are drawn as areas of equal shade, as few rectangles, and lines of equal value.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fedrepro.report.drawing.frame import Frame, axis
from fedrepro.report.drawing.markup import in_svg
from fedrepro.report.drawing.style import HIGH, TEXT

Point = tuple[float, float]
Segment = tuple[Point, Point]
Block = tuple[int, int, int, int, int]  # first row, row after the last, the same for columns, value

LEVELS = 8  # contours, of which no two have the same label
SIZE = 226  # pixels of the plot
BEHIND = 62  # for the colour bar
SHADES = 60
STRONGEST = 0.95  # of the upper colour
NAME = 14  # pixels, of marks

Values = Sequence[Sequence[float]]


class Grid(NamedTuple):
    """Values over a plane: where they are along both axes, and themselves [y][x]."""

    x: Sequence[float]
    y: Sequence[float]
    values: Sequence[Sequence[float]]


def areas(frame: Frame, grid: Sequence[Sequence[int]], start: Point, size: Point) -> dict[int, str]:
    """For each value of a grid, the path around its cells.

    Args:
        grid: rows from the bottom to the top.
        start: the lower left corner.
        size: of a cell.
    """
    paths: dict[int, str] = {}
    for row, above, column, end, value in blocks(grid):
        corners = ((column, row), (end, above))
        ends = (at[axis] * size[axis] + start[axis] for at in corners for axis in (0, 1))
        paths[value] = paths.get(value, "") + frame.box(*ends)
    return dict(sorted(paths.items()))


def shaded(paths: Mapping[int, str], strongest: float) -> list[str]:
    """Areas in the upper colour of surfaces, as strong as their values; 0 and less is nothing.

    Args:
        strongest: the value that would cover the ground completely.
    """
    return [
        f'<path d="{path}" fill="{HIGH}" shape-rendering="crispEdges" '
        f'fill-opacity="{shade / strongest:.3g}"/>'
        for shade, path in paths.items()
        if shade > 0
    ]


def blocks(grid: Sequence[Sequence[int]]) -> list[Block]:
    """Few rectangles of one value each that cover the grid.

    Neighbouring cells of a row are joined, then runs with the same ends in neighbouring rows.
    """
    rectangles: list[Block] = []
    growing: dict[tuple[int, int, int], int] = {}  # columns and value -> first row
    for number, row in enumerate([*grid, []]):
        starts = [at for at in range(len(row)) if not at or row[at] != row[at - 1]]
        runs = {
            (start, end, row[start])
            for start, end in zip(starts, [*starts[1:], len(row)], strict=False)
        }
        for run in growing.keys() - runs:
            rectangles.append((growing.pop(run), number, *run))
        for run in runs:
            growing.setdefault(run, number)
    return sorted(rectangles)


def contour(grid: Grid, level: float) -> list[Segment]:
    """Short lines along which values, interpolated linearly, equal ``level``.

    Squares with a corner that is not finite are skipped (marching squares).
    """
    segments: list[Segment] = []
    x, y, values = grid
    for row in range(len(y) - 1):
        for column in range(len(x) - 1):
            places = ((row, column), (row, column + 1), (row + 1, column + 1), (row + 1, column))
            corners = [((x[i], y[j]), values[j][i]) for j, i in places]
            if all(math.isfinite(value) for _, value in corners):
                segments += _in_square(corners, level)
    return segments


def _in_square(corners: Sequence[tuple[Point, float]], level: float) -> list[Segment]:
    crossings: dict[int, Point] = {}
    for side in range(4):
        (start, first), (end, second) = corners[side], corners[(side + 1) % 4]
        if (first < level) != (second < level):
            part = (level - first) / (second - first)
            x, y = (a + part * (b - a) for a, b in zip(start, end, strict=True))
            crossings[side] = x, y
    if not crossings:
        return []
    if len(crossings) == 2:
        start, end = crossings.values()
        return [(start, end)]
    # A saddle: the value in the middle decides which corners to join.
    middle = math.fsum(value for _, value in corners) / 4
    joined = (middle < level) == (corners[0][1] < level)
    pairs = ((0, 1), (2, 3)) if joined else ((3, 0), (1, 2))
    return [(crossings[first], crossings[second]) for first, second in pairs]


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
        heights = (low + number * (high - low) / (LEVELS + 1) for number in range(1, LEVELS + 1))
        values = (math.exp(height) if self.logarithmic else height for height in heights)
        rounded = {float(f"{value:.2g}") for value in values}
        return sorted(value for value in rounded if self.least < value < self.most)

    @property
    def named(self) -> list[float]:
        """The numbers beside the colour bar: its ends, and the levels that are not near them."""
        inner = [level for level in self.levels() if 0.05 < self.place(level) < 0.95]
        return [self.least, *inner, self.most]

    def _height(self, value: float) -> float:
        return math.log(max(value, 1e-12)) if self.logarithmic else value


def range_of(surfaces: Sequence[Values], logarithmic: bool) -> Range:
    """The range that covers several panels."""
    values = (value for surface in surfaces for row in surface for value in row)
    known = [value for value in values if math.isfinite(value)]
    return Range(min(known), max(known), logarithmic)


Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels


@dataclass
class Words:
    """Words on a surface that do not cover each other, with an outline."""

    frame: Frame
    taken: list[Box] = field(default_factory=list)

    def write(
        self, at: Point, words: str, shifts: Sequence[Point], size: int = NAME, must: bool = False
    ) -> str:
        """Words at the first free shift from a point, as SVG.

        Args:
            must: whether to write them at the first shift if none is free, rather than not.
        """
        free = (shift for shift in shifts if self._is_free(self._box(at, words, shift, size)))
        shift = next(free, shifts[0] if must else None)
        if shift is None:
            return ""
        self.reserve(at, words, shift, size)
        place = self.frame.x(at[0]) + shift[0], self.frame.y(at[1]) + shift[1]
        return in_svg("outlined", x=place[0], y=place[1], words=words, size=size)

    def reserve(self, at: Point, words: str, shift: Point, size: int = NAME) -> None:
        """Keep others from where these words are."""
        self.taken.append(self._box(at, words, shift, size))

    def _box(self, at: Point, words: str, shift: Point, size: int) -> Box:
        middle, base = self.frame.x(at[0]) + shift[0], self.frame.y(at[1]) + shift[1]
        half = 0.5 * max(_wide(words, size), 9)
        return middle - half, base - 0.8 * size, middle + half, base + 0.25 * size

    def _is_free(self, box: Box) -> bool:
        left, top, right, bottom = box
        return (
            self.frame.left <= left
            and right <= self.frame.left + self.frame.width
            and all(
                right < taken[0] or left > taken[2] or bottom < taken[1] or top > taken[3]
                for taken in self.taken
            )
        )


def _wide(words: str, size: int) -> float:
    return 0.58 * size * len(words)


def draw(
    grid: Grid,
    marks: Sequence[Mark],
    shared: Range,
    *,
    title: str,
    description: str,
    titles: tuple[str, str] = ("distance along the first direction", "along the second"),
) -> str:
    """Values as SVG: darker is more. ``title`` labels the colour bar."""
    step = [(ends[-1] - ends[0]) / (len(ends) - 1) for ends in grid[:2]]
    across, up = (
        axis(ends[0] - size / 2, ends[-1] + size / 2, count=4)
        for ends, size in zip(grid[:2], step, strict=True)
    )
    frame = Frame(across, up, titles[0], SIZE, SIZE, beside=titles[1], behind=BEHIND)
    shades = [
        [round(SHADES * shared.place(value)) if math.isfinite(value) else -1 for value in row]
        for row in grid.values
    ]
    paths = areas(frame, shades, (across.low, up.low), (step[0], step[1]))
    words = Words(frame)
    for mark in marks:
        words.reserve((mark.x, mark.y), " ", (0, 4))
    names = [_named(words, mark) for mark in sorted(marks, key=lambda mark: not mark.corner)]
    return frame.svg(
        [
            frame.ground,
            *shaded(paths, SHADES / STRONGEST),
            *_contours(frame, grid, shared, words),
            in_svg("signs", frame=frame, marks=marks),
            *names,
            in_svg("colour_bar", frame=frame, shared=shared, title=title, strongest=STRONGEST),
        ],
        description,
        grid=False,
    )


def _named(words: Words, mark: Mark) -> str:
    """A mark's name; names of corners are below their marks, which are near the edges."""
    side = 10 + 0.5 * _wide(mark.name, NAME)
    beside = [(0, 20), (0, -9), (side, 4.5), (-side, 4.5), (0, 34), (0, -23)]
    shifts = beside[:1] if mark.corner else beside
    return words.write((mark.x, mark.y), mark.name, shifts, must=True)


def _contours(frame: Frame, grid: Grid, shared: Range, words: Words) -> Iterator[str]:
    """Contour lines, with one label per level at a free place."""
    labels = []
    for number, level in enumerate(shared.levels()):
        segments = contour(grid, level)
        if not segments:
            continue
        yield in_svg("contour", path="".join(map(frame.path, segments)))
        # Labels rotate around the plot, so that those of neighbouring levels do not collide.
        angle = 2 * math.pi * number * 0.381966 + 0.9
        middles = (((a[0] + b[0]) / 2, (a[1] + b[1]) / 2) for a, b in segments)
        inside = (at for at in middles if _is_inside(frame, at))
        outwards = sorted(inside, key=lambda at: -at[0] * math.cos(angle) - at[1] * math.sin(angle))
        below = (0.0, 4.5)  # a label's base line, which brings its middle to its point
        written = (words.write(at, f"{level:g}", [below], TEXT) for at in outwards)
        labels.append(next(filter(None, written), ""))
    yield from labels


def _is_inside(frame: Frame, at: Point) -> bool:
    """Return True if a point is not near the edge of the plot."""
    return all(0.08 < place < 0.92 for place in (frame.across.place(at[0]), frame.up.place(at[1])))
