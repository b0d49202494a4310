"""Forest plots: marks with their intervals, as strips for a table's rows or in one picture."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from fedrepro.report.drawing.frame import Axis, text
from fedrepro.report.drawing.style import GRID, INK, MARK_PATHS, SERIES_COLOURS
from fedrepro.support.printing import MINUS

WIDTH, HEIGHT, MARGIN = 200, 18, 6
Interval = tuple[float, float, float]  # low, mean, high
Mark = Literal["dot", "square", "ring"]


@dataclass(frozen=True)
class Scale:
    """A horizontal scale with zero in the middle.

    Attributes:
        reach: how far it goes on each side.
        width: in pixels.
    """

    reach: float
    width: int = WIDTH

    def x(self, value: float) -> float:
        place = Axis(-self.reach, self.reach, (), ()).place(value)
        return MARGIN + (self.width - 2 * MARGIN) * place

    def span(self, low: float, high: float, y: float, colour: str, width: float) -> str:
        """A line from one value to another."""
        path = f"M{self.x(low):.1f},{y:g}H{self.x(high):.1f}"
        return f'<path d="{path}" stroke="{colour}" stroke-width="{width}"/>'

    def interval(
        self, at: Interval, y: float, colour: str, width: float, radius: float, mark: Mark = "dot"
    ) -> str:
        """An interval with a mark at its mean."""
        low, mean, high = at
        x, round_ = self.x(mean), f'cy="{y:g}" r="{radius:.1f}"'
        corner = f'x="{x - radius:.1f}" y="{y - radius:.1f}"'
        marks = {
            "dot": f'<circle cx="{x:.1f}" {round_} fill="{colour}"/>',
            "square": f'<rect {corner} width="{2 * radius:.1f}" height="{2 * radius:.1f}" '
            f'fill="{colour}"/>',
            "ring": f'<circle cx="{x:.1f}" {round_} fill="var(--paper)" stroke="{colour}" '
            f'stroke-width="1.4"/>',
        }
        return self.span(low, high, y, colour, width) + marks[mark]

    def zero(self, height: float) -> str:
        return f'<path d="M{self.width / 2:.0f},0V{height}" stroke="{INK}"/>'

    def axis(self) -> str:
        """Zero and a round number on each side, above a line."""
        reach = self.reach * (1 + 1e-9)  # .1 may be a little less
        tick = 10.0 ** math.floor(math.log10(reach))
        tick *= max(step for step in (1, 2, 5) if step * tick <= reach)
        parts = []
        for value in (-tick, 0.0, tick):
            label = f"{value:+g}".replace("-", MINUS) if value else "0"
            parts.append(f'<path d="M{self.x(value):.1f},{HEIGHT - 4}v4" stroke="{INK}"/>')
            edge = 3.2 * len(label)  # half of what it takes, so that it is not cut off
            place = min(max(self.x(value), edge), self.width - edge)
            parts.append(text(place, HEIGHT - 6, label, size=10))
        return "".join([*parts, f'<path d="M0,{HEIGHT - 0.5}H{self.width}" stroke="{INK}"/>'])


def strips(estimates: Sequence[tuple[float, float]]) -> list[str]:
    """One SVG for each (mean, half width), all on one scale with zero in the middle.

    Screen readers skip them, as the table has the numbers.
    """
    scale, colour, middle = _scale_of(estimates), SERIES_COLOURS[0], HEIGHT // 2
    return [
        _strip(
            f'<path d="M0,{middle}H{WIDTH}" stroke="{GRID}"/>{scale.zero(HEIGHT)}'
            f"{scale.span(mean - half, mean + half, middle, colour, 2)}"
            f'<path d="M{scale.x(mean):.1f},{middle}{MARK_PATHS[2]}" fill="{colour}"/>'
        )
        for mean, half in estimates
    ]


def strips_axis(estimates: Sequence[tuple[float, float]]) -> str:
    """The axis of :func:`strips`: zero, and a round number on each side."""
    return _strip(_scale_of(estimates).axis())


def _strip(content: str) -> str:
    box = f"0 0 {WIDTH} {HEIGHT}"
    return f'<svg class="strip" viewBox="{box}" aria-hidden="true">{content}</svg>'


def _scale_of(estimates: Sequence[tuple[float, float]]) -> Scale:
    return Scale(max(abs(mean) + half for mean, half in estimates) or 1.0)


def forest(
    single: Sequence[Interval], overall: Interval | None, margin: float | None, about: str
) -> str:
    """One SVG: an axis, a thin line for each comparison, and their mean; zero is in the middle.

    Args:
        single: the comparisons, from above.
        margin: a band around zero that does not matter, or None.
        about: the text for screen readers.
    """
    shown = [*single, *([overall] if overall else [])]
    if not shown:
        return ""
    scale = Scale(max(margin or 0.0, *(abs(end) for ends in shown for end in ends)) or 1.0)
    step, thin = (5, 1.2) if len(single) <= 24 else (2, 0.8)
    height = step * len(single) + (14 if overall else 4)
    parts = [scale.zero(height)]
    if margin:
        left, right = scale.x(-margin), scale.x(margin)
        size = f'width="{right - left:.1f}" height="{height}"'
        parts.insert(0, f'<rect x="{left:.1f}" y="0" {size} fill="{GRID}"/>')
    parts += [
        scale.interval(at, 3 + step * place, SERIES_COLOURS[0], thin, 1.2 * thin)
        for place, at in enumerate(single)
    ]
    if overall:
        parts.append(scale.interval(overall, height - 6, SERIES_COLOURS[1], 2.5, 3))
    return (
        f'<svg class="forest" viewBox="0 0 {WIDTH} {height + HEIGHT}" role="img" '
        f'aria-label="{escape(about)}">{scale.axis()}'
        f'<g transform="translate(0,{HEIGHT})">{"".join(parts)}</g></svg>'
    )


@dataclass(frozen=True)
class Bar:
    """A verdict with its interval.

    Attributes:
        at: low, mean, high; positive ends are as claimed.
        colour: a variable of the style sheet.
        about: a sentence for those who point at it or hear it.
        name: of its claim, in a few words.
        page: the address of its claim.
        mark: at the mean, which tells colours apart for those who see none.
        rival: low, mean, high of the comparison that decides, drawn thin below; or None.
    """

    at: Interval
    colour: str
    about: str
    name: str
    page: str
    mark: Mark = "dot"
    rival: Interval | None = None


def verdicts(bars: Sequence[Bar], about: str) -> str:
    """One SVG that fits a phone: a named link for each verdict; zero in the middle, and its sides.

    Args:
        bars: from above.
        about: the text for screen readers.
    """
    if not bars:
        return ""
    ends = [end for bar in bars for end in (*bar.at, *(bar.rival or ()))]
    scale = Scale(max(1.0, *map(abs, ends)), width=340)
    step, top, middle = 22, 16, scale.width / 2
    height = top + step * len(bars) + 2
    parts = [
        text(middle - 6, 9, "\N{LEFTWARDS ARROW} against the claim", anchor="end", size=9),
        text(middle + 6, 9, "as claimed \N{RIGHTWARDS ARROW}", anchor="start", size=9),
        scale.zero(height),
    ]
    for number, bar in enumerate(bars):
        y = top + step * (number + 0.75)
        parts.append(
            f'<a href="{escape(bar.page)}" aria-label="{escape(bar.about)}">'
            f"<title>{escape(bar.about)}</title>"
            f"{text(0, y - 5, bar.name, anchor='start', size=9)}"
            f'<path d="M0,{y:.0f}H{scale.width}" stroke="{GRID}"/>'
            f"{scale.interval(bar.at, round(y), bar.colour, 2.5, 3.2, bar.mark)}"
        )
        if bar.rival:
            parts.append(scale.interval(bar.rival, round(y) + 5, bar.colour, 1.0, 1.8, bar.mark))
        parts.append("</a>")
    # Not an image, whose links a screen reader would leave out.
    box = f'viewBox="0 0 {scale.width} {height}"'
    content = "".join(parts)
    return f'<svg class="verdicts" {box} role="group" aria-label="{escape(about)}">{content}</svg>'
