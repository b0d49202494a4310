"""Grids of values: areas of equal shade as few rectangles, and lines of equal value."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedrepro.report.drawing.frame import HIGH, Frame

Point = tuple[float, float]
Segment = tuple[Point, Point]
Block = tuple[int, int, int, int, int]  # first row, row after the last, the same for columns, value


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
