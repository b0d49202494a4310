"""Decision regions of classes in the plane, with sample points."""

from collections.abc import Sequence

from fedrepro.report.drawing.frame import Frame, axis
from fedrepro.report.drawing.style import INK, MARK_PATHS, SERIES_COLOURS, STRONG

Block = tuple[int, int, int, int, int]  # first row, row after the last, the same for columns, class


def draw(
    grid: Sequence[Sequence[int]],
    reach: float,
    points: Sequence[tuple[float, float, int | None]],
    *,
    description: str,
) -> str:
    """Draw the class of each cell of a square from -reach to reach, and points (x, y, class).

    Args:
        grid: classes, rows from the bottom to the top; empty for points alone.
        points: the class is None for points without one.
    """
    size = 2 * reach / max(len(grid), 1)
    frame = Frame(axis(-reach, reach), axis(-reach, reach), "", 240, 240)
    cells: dict[int, list[str]] = {}
    for row, above, column, end, each in blocks(grid):
        corners = (column * size - reach, row * size - reach, end * size - reach)
        cells.setdefault(each, []).append(frame.box(*corners, above * size - reach))
    dots: dict[int | None, list[str]] = {}
    for x, y, label in points:
        mark = MARK_PATHS[-1 if label is None else label % len(MARK_PATHS)]
        dots.setdefault(label, []).append(frame.path([(x, y)]) + mark)
    drawn = [
        f'<path d="{"".join(boxes)}" fill="{_colour(each)}" fill-opacity="0.3" '
        'shape-rendering="crispEdges"/>'
        for each, boxes in sorted(cells.items())
    ]
    drawn += [
        f'<path d="{"".join(marks)}" fill="{_colour(label)}" stroke="{STRONG}" stroke-width="0.3"/>'
        for label, marks in sorted(dots.items(), key=lambda each: (each[0] is None, each[0]))
    ]
    return frame.svg(drawn, description, grid=False)


def _colour(each: int | None) -> str:
    return INK if each is None else SERIES_COLOURS[each % len(SERIES_COLOURS)]


def blocks(grid: Sequence[Sequence[int]]) -> list[Block]:
    """Few rectangles of one class each that cover the grid.

    Neighbouring cells of a row are joined, then runs with the same ends in neighbouring rows.
    """
    found: list[Block] = []
    growing: dict[tuple[int, int, int], int] = {}  # columns and class -> first row
    for number, row in enumerate([*grid, []]):
        here = set(stretches(row))
        for key in growing.keys() - here:
            found.append((growing.pop(key), number, *key))
        for key in here:
            growing.setdefault(key, number)
    return sorted(found)


def stretches(row: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first column, column after the last, class) of neighbouring cells."""
    starts = [column for column in range(len(row)) if not column or row[column] != row[column - 1]]
    ends = [*starts[1:], len(row)]
    return [(start, end, row[start]) for start, end in zip(starts, ends, strict=False)]
