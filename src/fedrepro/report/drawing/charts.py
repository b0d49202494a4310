"""Bars and matrices."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fedrepro.report.drawing.frame import CHARACTER, Axis, Frame, axis, text
from fedrepro.report.drawing.style import HIGH, ON_SURFACE, SERIES_COLOURS, STRONG
from fedrepro.support.printing import decimals_for, fixed

WIDEST = 358  # pixels of the whole chart: keeps its text at 11 pixels or more
BAR = 24  # pixels from bar to bar


@dataclass(frozen=True)
class Bar:
    """A mean over seeds, with the lowest and the highest seed."""

    name: str
    value: float
    low: float
    high: float


def bars(drawn: Sequence[Bar], *, description: str, decimals: int = 2) -> str:
    """Horizontal bars from zero, each with its name on the left and its value on the right."""
    names = [bar.name for bar in drawn]
    places = [number + 0.5 for number in range(len(drawn))]
    texts = [fixed(bar.value, decimals) for bar in drawn]
    behind = 10 + CHARACTER * max(map(len, texts))
    room = 8 + CHARACTER * max(map(len, names))
    most = max(0.0, *(max(bar.high, bar.value) for bar in drawn))
    frame = Frame(
        axis(min(0.0, *(min(bar.low, bar.value) for bar in drawn)), most, count=4),
        Axis(len(drawn), 0, places, names),
        "",
        max(100, round(WIDEST - room - behind)),
        BAR * len(drawn),
        behind=behind,
    )
    colour, parts = SERIES_COLOURS[0], []
    for place, bar, number in zip(places, drawn, texts, strict=True):
        y, end = frame.y(place), frame.x(max(bar.high, bar.value))
        box = frame.box(min(0.0, bar.value), place + 0.3, max(0.0, bar.value), place - 0.3)
        ends = f"M{frame.x(bar.low):.1f},{y:.1f}H{frame.x(bar.high):.1f}"
        parts.append(
            f'<path d="{box}" fill="{colour}" fill-opacity="0.45"/>'
            f'<path d="{ends}" stroke="{colour}" stroke-width="1.6"/>'
            f"{text(end + 6, y + 4.5, number, anchor='start', fill=STRONG)}"
        )
    return frame.svg(parts, description)


def matrix(
    values: Sequence[Sequence[float | None]],
    *,
    x: Sequence[str],
    y: Sequence[str],
    titles: tuple[str, str],
    framed: Collection[tuple[int, int]],
    description: str,
) -> str:
    """A heat map of ``values`` [y][x] with a number in every cell.

    Args:
        titles: of the horizontal and the vertical axis.
        framed: the cells (y, x) that are framed.
    """
    known = [value for row in values for value in row if value is not None]
    least, most = min(known, default=0.0), max(known, default=0.0)
    decimals = decimals_for(known)
    across = [number + 0.5 for number in range(len(x))]
    down = [number + 0.5 for number in range(len(y))]
    frame = Frame(
        Axis(0, len(x), across, x),
        Axis(len(y), 0, down, y),
        titles[0],
        min(58, 280 // len(x)) * len(x),
        34 * len(y),
        least=24.0,
        beside=titles[1],
    )
    parts, frames = [frame.ground], []
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            share = 0.0 if value is None else 0.06 + 0.64 * _part(value, least, most)
            box = frame.box(column, row + 1, column + 1, row)
            place = frame.x(column + 0.5), frame.y(row + 0.5) + 4.5
            parts.append(f'<path d="{box}" fill="{HIGH}" fill-opacity="{share:.3g}"/>')
            parts.append(text(*place, fixed(value, decimals), fill=ON_SURFACE))
            if (row, column) in framed:
                outline = f'stroke="{ON_SURFACE}" stroke-width="1.5"'
                frames.append(f'<path d="{box}" fill="none" {outline}/>')
    return frame.svg([*parts, *frames], description, grid=False)


def _part(value: float, least: float, most: float) -> float:
    return (value - least) / (most - least) if most > least else 0.0
