"""Bars, matrices, and critical-difference diagrams.

These (Demšar 2006, figure 1) have mean ranks on a line, the best on the left. Bars connect methods
whose mean ranks do not differ significantly.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape

from fedrepro.report.drawing.frame import CHARACTER, TEXT, Axis, Frame, axis, label, text
from fedrepro.report.drawing.style import GRID, HIGH, INK, ON_SURFACE, SERIES_COLOURS, STRONG
from fedrepro.report.papers.ranks import MeanRanks
from fedrepro.support.printing import decimals_for, fixed

WIDEST = 358  # pixels of the whole chart: keeps its text at 11 pixels or more
BAR = 24  # pixels from bar to bar

WIDTH, SPAN, STEP = 760, 340, 18  # of the whole, of the line, between labels
TOP, BETWEEN = 58, 9  # height of the line, distance of bars


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


def diagram(ranks: MeanRanks, own: str | None, about: str) -> str:
    """One SVG.

    Args:
        own: the method to emphasise, or None.
        about: what it shows, for screen readers.
    """
    names, most = [*ranks.means], len(ranks.means)
    left = (WIDTH - SPAN) / 2

    def x(rank: float) -> float:
        return left + SPAN * (rank - 1) / (most - 1)

    bars, half = ranks.groups, (most + 1) // 2
    under = TOP + 12 + BETWEEN * len(bars)
    height = under + STEP * half + 8
    ticks = "".join(f"M{x(rank):.1f},{TOP - 5}V{TOP}" for rank in range(1, most + 1))
    parts = [
        f'<svg class="ranks" role="img" aria-label="{escape(about, quote=True)}" '
        f'viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg" '
        f'font-family="sans-serif" style="max-width:{WIDTH}px">',
        f'<path d="M{left:.1f},{TOP}H{left + SPAN:.1f}{ticks}" stroke="{INK}" fill="none"/>',
        _critical(ranks, left, x(2) - x(1)),
    ]
    parts += [
        _bar(x(ranks.means[group[0]]), x(ranks.means[group[-1]]), TOP + 8 + BETWEEN * number)
        for number, group in enumerate(bars)
    ]
    labels = [label(x(rank), TOP - 10, str(rank), "middle") for rank in range(1, most + 1)]
    for place, name in enumerate(names):
        first = place < half
        y = under + STEP * (place if first else most - 1 - place) + 8
        end = left - 12 if first else left + SPAN + 12
        colour = SERIES_COLOURS[1] if name == own else GRID
        line = f"M{x(ranks.means[name]):.1f},{TOP}V{y:.1f}H{end:.1f}"
        parts.append(f'<path d="{line}" stroke="{colour}" fill="none"/>')
        mean, short = f"{ranks.means[name]:.2f}", _fitting(name)
        shown = f"{short} {mean}" if first else f"{mean} {short}"
        where = end - 5 if first else end + 5
        bold = ' font-weight="bold"' if name == own else ""
        labels.append(label(where, y + 4.5, shown, "end" if first else "start", bold))
    parts.append(f'<g fill="{INK}" font-size="{TEXT}px">{"".join(labels)}</g>')
    return "".join([*parts, "</svg>"])


def _critical(ranks: MeanRanks, left: float, step: float) -> str:
    """The critical difference as a length; one that is longer than the line ends in an arrow."""
    whole = min(ranks.critical * step, SPAN)
    arrow = "m-5,-3l5,3l-5,3" if whole < ranks.critical * step else "v-3v6"
    name = f"critical difference {ranks.critical:.2f}"
    return (
        f'<path d="M{left:.1f},19v6m0,-3h{whole:.1f}{arrow}" stroke="{INK}" fill="none"/>'
        f'<g fill="{INK}" font-size="{TEXT}px">{label(left, 12, name, "start")}</g>'
    )


def _bar(start: float, end: float, y: float) -> str:
    return f'<path d="M{start - 3:.1f},{y}H{end + 3:.1f}" stroke="{INK}" stroke-width="4"/>'


def _fitting(text: str) -> str:
    """A label, shortened to the room beside the line and its number."""
    most = int(((WIDTH - SPAN) / 2 - 60) / CHARACTER)
    return text if len(text) <= most else f"{text[: most - 1]}…"
