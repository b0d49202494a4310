"""Lines of equal value on a grid, by marching squares."""

import math
from collections.abc import Sequence

Point = tuple[float, float]
Segment = tuple[Point, Point]


def contour(
    x: Sequence[float], y: Sequence[float], values: Sequence[Sequence[float]], level: float
) -> list[Segment]:
    """Short lines along which ``values`` [y][x], interpolated linearly, equal ``level``.

    Squares with a corner that is not finite are skipped.
    """
    found: list[Segment] = []
    for row in range(len(y) - 1):
        for column in range(len(x) - 1):
            around = ((row, column), (row, column + 1), (row + 1, column + 1), (row + 1, column))
            corners = [((x[i], y[j]), values[j][i]) for j, i in around]
            found += _in_square(corners, level)
    return found


def _in_square(corners: Sequence[tuple[Point, float]], level: float) -> list[Segment]:
    if not all(abs(value) < float("inf") for _, value in corners):
        return []
    crossings = {}
    for side in range(4):
        (start, first), (end, second) = corners[side], corners[(side + 1) % 4]
        if (first < level) != (second < level):
            part = (level - first) / (second - first)
            crossings[side] = tuple(a + part * (b - a) for a, b in zip(start, end, strict=True))
    if len(crossings) < 4:
        return [tuple(crossings.values())] if crossings else []  # type: ignore[list-item]
    # A saddle: the value in the middle decides which corners to join.
    middle = math.fsum(value for _, value in corners) / 4
    joined = (middle < level) == (corners[0][1] < level)
    pairs = ((0, 1), (2, 3)) if joined else ((3, 0), (1, 2))
    return [(crossings[first], crossings[second]) for first, second in pairs]  # type: ignore[misc]
