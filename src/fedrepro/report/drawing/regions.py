"""Regions of classes in the plane, with points in them."""

from collections.abc import Sequence

from fedrepro.report.drawing.style import SERIES_COLOURS, SHAPES, STRONG, finish

Block = tuple[int, int, int, int, int]  # row, row behind the last, the same of columns, class


def draw(
    grid: Sequence[Sequence[int]],
    reach: float,
    points: Sequence[tuple[float, float, int]],
    *,
    description: str,
) -> str:
    """The class of every cell of a square from -reach to reach, and points (x, y, class).

    Args:
        grid: classes, rows from the bottom to the top.
    """
    import altair as alt

    size = 2 * reach / len(grid)
    classes = sorted({each for row in grid for each in row} | {each for *_, each in points})
    scale = alt.Scale(
        domain=classes, range=[SERIES_COLOURS[each % len(SERIES_COLOURS)] for each in classes]
    )
    shapes = alt.Scale(domain=classes, range=[SHAPES[each % len(SHAPES)] for each in classes])
    rows = [
        {"x": column * size - reach, "x2": end * size - reach,
         "y": row * size - reach, "y2": above * size - reach, "class": each}
        for row, above, column, end, each in blocks(grid)
    ]  # fmt: skip
    dots = [{"x": x, "y": y, "class": each} for x, y, each in points]
    sides = alt.Scale(domain=[-reach, reach], nice=False)
    axis = alt.Axis(grid=False, tickCount=5)
    x = alt.X("x:Q", title=None, scale=sides, axis=axis)
    y = alt.Y("y:Q", title=None, scale=sides, axis=axis)
    layers = [
        alt.Chart(alt.InlineData(rows))
        .mark_rect(fillOpacity=0.3, stroke=None)
        .encode(x=x, x2="x2:Q", y=y, y2="y2:Q", fill=alt.Fill("class:N", scale=scale, legend=None)),
        alt.Chart(alt.InlineData(dots))
        .mark_point(filled=True, size=14, opacity=1, stroke=STRONG, strokeWidth=0.3)
        .encode(
            x=x,
            y=y,
            fill=alt.Fill("class:N", scale=scale, legend=None),
            shape=alt.Shape("class:N", scale=shapes, legend=None),
        ),
    ]
    return finish(alt.layer(*layers).properties(width=240, height=240), description)


def blocks(grid: Sequence[Sequence[int]]) -> list[Block]:
    """Rectangles of one class that cover the grid: a drawing of few parts.

    Cells side by side are one stretch; stretches above each other that have the same ends, too.
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
    """(first column, column behind the last, class) of cells side by side."""
    starts = [column for column in range(len(row)) if not column or row[column] != row[column - 1]]
    ends = [*starts[1:], len(row)]
    return [(start, end, row[start]) for start, end in zip(starts, ends, strict=False)]
