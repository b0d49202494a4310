"""Decision regions of classes in the plane, with sample points."""

from collections.abc import Sequence

from fedrepro.report.drawing.frame import INK, MARK_PATHS, SERIES_COLOURS, STRONG, Frame, axis
from fedrepro.report.drawing.surface import areas


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
    dots: dict[int, str] = {}
    for x, y, label in points:
        mark = MARK_PATHS[-1 if label is None else label % len(MARK_PATHS)]
        number = len(SERIES_COLOURS) if label is None else label % len(SERIES_COLOURS)
        dots[number] = dots.get(number, "") + frame.path([(x, y)]) + mark
    colours = (*SERIES_COLOURS, INK)
    drawn = [
        f'<path d="{path}" fill="{SERIES_COLOURS[label % len(SERIES_COLOURS)]}" '
        'fill-opacity="0.3" shape-rendering="crispEdges"/>'
        for label, path in areas(frame, grid, (-reach, -reach), (size, size)).items()
    ]
    drawn += [
        f'<path d="{path}" fill="{colours[number]}" stroke="{STRONG}" stroke-width="0.3"/>'
        for number, path in sorted(dots.items())
    ]
    return frame.svg(drawn, description, grid=False)
