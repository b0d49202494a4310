"""Critical-difference diagrams (Demšar 2006, figure 1): mean ranks on a line, the best on the left.

Bars connect methods whose mean ranks do not differ significantly.
"""

from html import escape

from fedrepro.report.drawing.frame import CHARACTER, GRID, INK, SERIES_COLOURS, TEXT, label
from fedrepro.report.papers.ranks import MeanRanks

WIDTH, SPAN, STEP = 760, 340, 18  # of the whole, of the line, between labels
TOP, BAR = 58, 9  # height of the line, distance of bars


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
    under = TOP + 12 + BAR * len(bars)
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
        _bar(x(ranks.means[group[0]]), x(ranks.means[group[-1]]), TOP + 8 + BAR * number)
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
