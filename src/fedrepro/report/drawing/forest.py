"""Forest plots: marks with their intervals, as strips for a table's rows or in one picture."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from fedrepro.report.drawing.frame import Axis
from fedrepro.report.drawing.style import GRID, INK, MARK_PATHS, SERIES_COLOURS

WIDTH, HEIGHT, MARGIN = 200, 18, 6


def strips(estimates: Sequence[tuple[float, float]]) -> list[str]:
    """One SVG for each (mean, half width), all on one scale with zero in the middle.

    Screen readers skip them, as the table has the numbers.
    """
    _, x = _scale_of(estimates)
    colour = SERIES_COLOURS[0]
    middle, half = HEIGHT / 2, WIDTH / 2

    return [
        f'<svg class="strip" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        f'<path d="M0,{middle:.0f}H{WIDTH}" stroke="{GRID}"/>'
        f'<path d="M{half:.0f},0V{HEIGHT}" stroke="{INK}"/>'
        f'<path d="M{x(mean - width):.1f},{middle:.0f}H{x(mean + width):.1f}" stroke="{colour}" '
        'stroke-width="2"/>'
        f'<path d="M{x(mean):.1f},{middle:.0f}{MARK_PATHS[2]}" fill="{colour}"/></svg>'
        for mean, width in estimates
    ]


def strips_axis(estimates: Sequence[tuple[float, float]]) -> str:
    """The axis of :func:`strips`: zero, and a round number on each side."""
    axis = _axis(*_scale_of(estimates))
    return f'<svg class="strip" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">{axis}</svg>'


def _axis(reach: float, x: Callable[[float], float]) -> str:
    """Zero and a round number on each side, above a line."""
    reach *= 1 + 1e-9  # .1 may be a little less
    tick = 10.0 ** math.floor(math.log10(reach))
    tick *= max(step for step in (1, 2, 5) if step * tick <= reach)
    parts = []
    for value in (-tick, 0.0, tick):
        text = f"{value:+g}".replace("-", "\N{MINUS SIGN}") if value else "0"
        parts.append(
            f'<path d="M{x(value):.1f},{HEIGHT - 4}v4" stroke="{INK}"/>'
            f'<text x="{x(value):.1f}" y="{HEIGHT - 6}" font-size="10" fill="{INK}" '
            f'text-anchor="middle">{text}</text>'
        )
    return "".join([*parts, f'<path d="M0,{HEIGHT - 0.5}H{WIDTH}" stroke="{INK}"/>'])


def _scale_of(
    estimates: Sequence[tuple[float, float]],
) -> tuple[float, Callable[[float], float]]:
    """How far strips reach on each side of zero, and the place of a value in pixels."""
    reach = max(abs(mean) + half for mean, half in estimates) or 1.0
    scale = Axis(-reach, reach, (), ())
    return reach, lambda value: MARGIN + (WIDTH - 2 * MARGIN) * scale.place(value)


Interval = tuple[float, float, float]  # low, mean, high


def forest(
    single: Sequence[Interval], overall: Interval | None, margin: float | None, about: str
) -> str:
    """One SVG: an axis, a thin line for each comparison, and their mean; zero is in the middle.

    Args:
        single: the comparisons, from above.
        margin: a band around zero that does not matter, or None.
        about: what it shows, for screen readers.
    """
    shown = [*single, *([overall] if overall else [])]
    if not shown:
        return ""
    reach = max(margin or 0.0, *(abs(end) for each in shown for end in each)) or 1.0
    scale, step = Axis(-reach, reach, (), ()), 5 if len(single) <= 24 else 2
    middle, colour, mean_of_all = WIDTH / 2, SERIES_COLOURS[0], SERIES_COLOURS[1]
    height = step * len(single) + (14 if overall else 4)

    def x(value: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * scale.place(value)

    def bar(each: Interval, y: float, colour: str, width: float) -> str:
        low, mean, high = each
        return (
            f'<path d="M{x(low):.1f},{y:.1f}H{x(high):.1f}" stroke="{colour}" '
            f'stroke-width="{width}"/><circle cx="{x(mean):.1f}" cy="{y:.1f}" '
            f'r="{1.2 * width:.1f}" fill="{colour}"/>'
        )

    box = f"0 0 {WIDTH} {height + HEIGHT}"
    parts = [
        f'<svg class="forest" viewBox="{box}" role="img" aria-label="{escape(about)}">'
        f'{_axis(reach, x)}<g transform="translate(0,{HEIGHT})">'
    ]
    if margin:
        left, right = x(-margin), x(margin)
        parts.append(
            f'<rect x="{left:.1f}" y="0" width="{right - left:.1f}" height="{height}" '
            f'fill="{GRID}"/>'
        )
    parts.append(f'<path d="M{middle:.0f},0V{height}" stroke="{INK}"/>')
    parts += [
        bar(each, 3 + step * place, colour, 1.2 if step > 2 else 0.8)
        for place, each in enumerate(single)
    ]
    if overall:
        parts.append(bar(overall, height - 6, mean_of_all, 2.5))
    return "".join([*parts, "</g></svg>"])


@dataclass(frozen=True)
class Bar:
    """A verdict with its interval.

    Attributes:
        at: low, mean, high; positive ends are as claimed.
        colour: a variable of the style sheet.
        about: what it says, for those who point at it or hear it.
        name: of its claim, in a few words.
        page: the address of its claim.
    """

    at: Interval
    colour: str
    about: str
    name: str
    page: str


def verdicts(bars: Sequence[Bar], about: str) -> str:
    """One SVG that fits a phone: a named link for each verdict; zero in the middle, and its sides.

    Args:
        bars: from above.
        about: what it shows, for screen readers.
    """
    if not bars:
        return ""
    width, step, top = 340, 22, 16
    reach = max(1.0, *(abs(end) for bar in bars for end in bar.at))
    scale, height = Axis(-reach, reach, (), ()), top + step * len(bars) + 2

    def x(value: float) -> float:
        return MARGIN + (width - 2 * MARGIN) * scale.place(value)

    words = (
        (width / 2 - 6, "end", "\N{LEFTWARDS ARROW} against the claim"),
        (width / 2 + 6, "start", "as claimed \N{RIGHTWARDS ARROW}"),
    )
    parts = [
        # Not an image, whose links a screen reader would leave out.
        f'<svg class="verdicts" viewBox="0 0 {width} {height}" role="group" '
        f'aria-label="{escape(about)}">',
        *(
            f'<text x="{place:.0f}" y="9" font-size="9" fill="{INK}" '
            f'text-anchor="{anchor}">{text}</text>'
            for place, anchor, text in words
        ),
        f'<path d="M{width / 2:.0f},0V{height}" stroke="{INK}"/>',
    ]
    for number, bar in enumerate(bars):
        low, mean, high = bar.at
        y = top + step * (number + 0.75)
        parts.append(
            f'<a href="{escape(bar.page)}" aria-label="{escape(bar.about)}">'
            f"<title>{escape(bar.about)}</title>"
            f'<text x="0" y="{y - 5:.1f}" font-size="9" fill="{INK}">{escape(bar.name)}</text>'
            f'<path d="M0,{y:.0f}H{width}" stroke="{GRID}"/>'
            f'<path d="M{x(low):.1f},{y:.0f}H{x(high):.1f}" stroke="{bar.colour}" '
            f'stroke-width="2.5"/><circle cx="{x(mean):.1f}" cy="{y:.0f}" r="3.2" '
            f'fill="{bar.colour}"/></a>'
        )
    return "".join([*parts, "</svg>"])
