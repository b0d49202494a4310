"""The frame of a chart: two axes with their numbers and titles.

The charting library takes a tenth of a second for a chart, and a site has thousands of learning
curves; these take a hundredth of that.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedrepro.report.drawing.markup import in_svg
from fedrepro.report.drawing.style import LOW, TEXT
from fedrepro.support.printing import MINUS, THIN

LARGEST = 1.5  # the largest magnification of a chart
CHARACTER = 0.61 * TEXT  # the greatest width of a digit, as the page's font is not known


@dataclass(frozen=True)
class Axis:
    """A linear axis from ``low`` to ``high``, with labelled ticks."""

    low: float
    high: float
    ticks: Sequence[float]
    labels: Sequence[str]

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one; values outside are clipped."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


def axis(low: float, high: float, *, count: int = 5, unit: str = "", nice: bool = False) -> Axis:
    """An axis with about ``count`` round tick numbers.

    Args:
        unit: after every number; "%", or "".
        nice: whether to extend its ends to the next round number.
    """
    if not high > low:
        room = abs(low) / 20 or 1.0
        low, high = low - room, high + room
    step = _step(high - low, count)
    if nice:
        low, high = step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = [number * step for number in range(first, last + 1)]
    behind = f" {unit}" if unit else ""
    return Axis(low, high, ticks, [_written(value, step, ticks) + behind for value in ticks])


def counting(low: float, high: float) -> Axis:
    """An axis of rounds, with whole numbers only."""
    plain = axis(low, high)
    step = plain.ticks[1] - plain.ticks[0] if len(plain.ticks) > 1 else 1.0
    if step >= 1:
        return plain
    ticks = [float(number) for number in range(math.ceil(low), math.floor(high) + 1)]
    return Axis(plain.low, plain.high, ticks, [f"{tick:.0f}" for tick in ticks])


def _step(span: float, count: int) -> float:
    """1, 2 or 5 times a power of ten, for about ``count`` steps in the span."""
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    for bound, factor in ((50, 10), (10, 5), (2, 2)):
        if (raw / power) ** 2 >= bound:
            return factor * power
    return power


def _written(value: float, step: float, all_ticks: Sequence[float]) -> str:
    """A tick's number, with enough decimals to differ from its neighbours."""
    if step >= 1e5 or max(map(abs, all_ticks)) < 1e-3:
        return f"{round(value / step) * step:.3g}".replace("e+0", "e").replace("-", MINUS)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    text = f"{value:,.{decimals}f}".replace(",", THIN)
    return text.replace("-", MINUS) if float(f"{value:.{decimals}f}") else text.lstrip("-")


@dataclass(frozen=True)
class Frame:
    """The layout: a plot of ``width`` by ``height`` pixels with margins.

    Attributes:
        title: below the horizontal axis.
        least: least margin for the vertical axis's numbers, which aligns panels.
        beside: the label along the vertical axis, read upwards.
        behind: extra margin on the right, such as for a colour bar.
    """

    across: Axis
    up: Axis
    title: str
    width: int = 222
    height: int = 140
    least: float = 44.0
    beside: str = ""
    behind: float = 0.0

    @property
    def left(self) -> float:
        widest = CHARACTER * max(map(len, self.up.labels), default=0)
        return max(self.least, 8 + widest) + (18 if self.beside else 0)

    @property
    def right(self) -> float:
        """The right margin; half of the last number may extend into it."""
        last = self.across.labels[-1] if self.across.labels else ""
        return max(8.0, CHARACTER * len(last) / 2, self.behind)

    def x(self, value: float) -> float:
        return self.left + self.width * self.across.place(value)

    def y(self, value: float) -> float:
        return 8 + self.height * (1 - self.up.place(value))

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        """A line through points, as a path's attribute ``d``."""
        return "M" + "L".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)

    def box(self, x: float, y: float, x2: float, y2: float) -> str:
        """A rectangle between two corners, as a part of a path's attribute ``d``."""
        left, top, right, bottom = self.x(x), self.y(y2), self.x(x2), self.y(y)
        return f"M{left:.2f},{top:.2f}H{right:.2f}V{bottom:.2f}H{left:.2f}z"

    @property
    def ground(self) -> str:
        """The whole plot, in the lower colour of surfaces."""
        place = f'x="{self.left:.1f}" y="8" width="{self.width}" height="{self.height}"'
        return f'<rect {place} fill="{LOW}"/>'

    def svg(self, drawn: Iterable[str], description: str, *, grid: bool = True) -> str:
        """The chart: the frame, and on it ``drawn``, which is SVG.

        Args:
            description: the text for screen readers.
            grid: whether to draw grid lines at the ticks.
        """
        below = [*zip(self.across.ticks, self.across.labels, strict=True)]
        widest = CHARACTER * (1 + max((len(words) for _, words in below), default=0))
        every = math.ceil(widest * len(below) / (self.width + widest))
        return in_svg(
            "framed",
            frame=self,
            drawn="".join(drawn),
            description=description,
            grid=grid,
            below=below[:: max(every, 1)],
            largest=LARGEST,
        )
