"""How charts look: SVG inside a page, with the page's colours.

Colours are variables of the page's style sheet, so that charts follow light and dark mode; lines
differ in dash and mark as well as colour; the page decides sizes.
"""

from dataclasses import dataclass

TEXT = 13  # pixels, as in the charting library's charts
INK, GRID, STRONG = "var(--figure-ink)", "var(--figure-grid)", "var(--ink)"
# A surface, darker where it is higher, in dark mode too: its end colours, and that of marks on it.
LOW, HIGH = "var(--surface-low)", "var(--surface-high)"
ON_SURFACE, HALO = "var(--on-surface)", "var(--surface-halo)"
SERIES_COLOURS = tuple(f"var(--series-{number})" for number in range(1, 7))
DASHES = ((1, 0), (6, 3), (2, 3), (9, 3, 2, 3), (4, 2), (1, 4))
MARK_PATHS = (  # around the position of a path
    "m-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0",
    "m0,-4l4,7.2h-8z",
    "m-3.2,-3.2h6.4v6.4h-6.4z",
    "m0,-4.6l4.6,4.6l-4.6,4.6l-4.6,-4.6z",
    "m-1.2,-3.6h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4v-2.4h2.4z",
    "m0,4l4,-7.2h-8z",
)


@dataclass(frozen=True)
class Style:
    """The style of a line by its number, for a page's key."""

    colour: str
    dash: str
    mark: str


def style_of(number: int) -> Style:
    """The style of a panel's line ``number``, from 0; styles repeat after six."""
    index = number % len(SERIES_COLOURS)
    dash = " ".join(map(str, DASHES[index])) if number else "none"
    return Style(SERIES_COLOURS[index], dash, f"M0,0{MARK_PATHS[index]}")
