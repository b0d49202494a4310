"""Forest plots: marks with their intervals, as strips for a table's rows or in one picture."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedrepro.report.drawing.frame import Axis
from fedrepro.report.drawing.markup import in_svg
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

    @property
    def ticks(self) -> list[tuple[float, float, str]]:
        """Zero and a round number on each side, each with the place of its label."""
        reach = self.reach * (1 + 1e-9)  # .1 may be a little less
        tick = 10.0 ** math.floor(math.log10(reach))
        tick *= max(step for step in (1, 2, 5) if step * tick <= reach)
        ticks = []
        for value in (-tick, 0.0, tick):
            label = f"{value:+g}".replace("-", MINUS) if value else "0"
            edge = 3.2 * len(label)  # half of what it takes, so that it is not cut off
            ticks.append((value, min(max(self.x(value), edge), self.width - edge), label))
        return ticks


def strips(estimates: Sequence[tuple[float, float]]) -> list[str]:
    """One SVG for each (mean, half width), all on one scale with zero in the middle.

    Screen readers skip them, as the table has the numbers.
    """
    scale = _scale_of(estimates)
    return [_strip(scale, mean, half) for mean, half in estimates]


def strips_axis(estimates: Sequence[tuple[float, float]]) -> str:
    """The axis of :func:`strips`: zero, and a round number on each side."""
    return _strip(_scale_of(estimates))


def _strip(scale: Scale, mean: float | None = None, half: float = 0.0) -> str:
    return in_svg("strip", scale=scale, height=HEIGHT, mean=mean, half=half)


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
    drawn = {"scale": scale, "single": single, "overall": overall, "margin": margin}
    return in_svg("forest", **drawn, top=HEIGHT, about=about)


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
    return in_svg("verdicts", scale=scale, bars=bars, about=about)
