"""Bars, matrices, and critical-difference diagrams.

These (Demšar 2006, figure 1) have mean ranks on a line, the best on the left. Bars connect methods
whose mean ranks do not differ significantly.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fedrepro.report.drawing.frame import CHARACTER, Axis, Frame, axis
from fedrepro.report.drawing.markup import in_svg
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
    rows = [*zip(drawn, places, texts, strict=True)]
    return frame.svg([in_svg("bars", frame=frame, rows=rows)], description)


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
    cells = [
        (row, column, _shade(value, least, most), fixed(value, decimals))
        for row, line in enumerate(values)
        for column, value in enumerate(line)
    ]
    parts = [in_svg("matrix", frame=frame, cells=cells, framed=sorted(framed))]
    return frame.svg(parts, description, grid=False)


def _shade(value: float | None, least: float, most: float) -> float:
    """The strength of a cell's colour; none without a value."""
    if value is None:
        return 0.0
    return 0.06 + 0.64 * ((value - least) / (most - least) if most > least else 0.0)


def diagram(ranks: MeanRanks, own: str | None, about: str) -> str:
    """One SVG.

    Args:
        own: the method to emphasise, or None.
        about: what it shows, for screen readers.
    """
    most, left = len(ranks.means), (WIDTH - SPAN) / 2

    def x(rank: float) -> float:
        return left + SPAN * (rank - 1) / (most - 1)

    half = (most + 1) // 2
    under = TOP + 12 + BETWEEN * len(ranks.groups)
    names = []
    for place, (name, rank) in enumerate(ranks.means.items()):
        first = place < half
        y = under + STEP * (place if first else most - 1 - place) + 8
        end = left - 12 if first else left + SPAN + 12
        said = {"name": name, "short": _fitting(name), "rank": rank}
        names.append({**said, "first": first, "y": y, "end": end})
    return in_svg(
        "ranks",
        ranks=ranks,
        about=about,
        width=WIDTH,
        height=under + STEP * half + 8,
        line=(left, left + SPAN),
        x=x,
        top=TOP,
        between=BETWEEN,
        names=names,
        own=own,
    )


def _fitting(text: str) -> str:
    """A label, shortened to the room beside the line and its number."""
    most = int(((WIDTH - SPAN) / 2 - 60) / CHARACTER)
    return text if len(text) <= most else f"{text[: most - 1]}…"
