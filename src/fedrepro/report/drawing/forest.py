"""A forest plot as strips for the rows of a table: a mark and its interval."""

from collections.abc import Sequence

from fedrepro.report.drawing.frame import Axis
from fedrepro.report.drawing.style import GRID, INK, MARK_PATHS, SERIES_COLOURS

WIDTH, HEIGHT, MARGIN = 200, 18, 6


def strips(estimates: Sequence[tuple[float, float]]) -> list[str]:
    """One SVG for each (mean, half width), all on one scale with zero in the middle.

    Screen readers skip them, as the table has the numbers.
    """
    reach = max(abs(mean) + half for mean, half in estimates) or 1.0
    scale = Axis(-reach, reach, (), ())
    colour = SERIES_COLOURS[0]
    middle, half = HEIGHT / 2, WIDTH / 2

    def x(value: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * scale.place(value)

    return [
        f'<svg class="strip" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        f'<path d="M0,{middle:.0f}H{WIDTH}" stroke="{GRID}"/>'
        f'<path d="M{half:.0f},0V{HEIGHT}" stroke="{INK}"/>'
        f'<path d="M{x(mean - width):.1f},{middle:.0f}H{x(mean + width):.1f}" stroke="{colour}" '
        'stroke-width="2"/>'
        f'<path d="M{x(mean):.1f},{middle:.0f}{MARK_PATHS[2]}" fill="{colour}"/></svg>'
        for mean, width in estimates
    ]
