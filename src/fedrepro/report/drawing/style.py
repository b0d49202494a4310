"""How charts look: SVG that stands in a page and takes its colours.

Colours are written as variables of the page's style sheet, so that a chart follows light and dark;
lines differ in dash and mark besides colour; sizes are left to the page.
"""

import re
from dataclasses import dataclass
from html import escape
from typing import Any

# Stand-ins that the drawing library passes through; each becomes a variable of the style sheet.
INK, GRID, HEAT, STRONG = "#010203", "#010204", "#010205", "#010206"
# Of a surface whose darker places are higher, in dark mode too: its ends, and what is drawn on it.
LOW, HIGH, ON_SURFACE, HALO = "#010207", "#010208", "#010209", "#01020a"
SERIES_COLOURS = ("#020301", "#020302", "#020303", "#020304", "#020305", "#020306")
VARIABLES = {
    INK: "var(--figure-ink)",
    GRID: "var(--figure-grid)",
    HEAT: "var(--heat)",
    STRONG: "var(--ink)",
    LOW: "var(--surface-low)",
    HIGH: "var(--surface-high)",
    ON_SURFACE: "var(--on-surface)",
    HALO: "var(--surface-halo)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES_COLOURS, 1)},
}
DASHES = ((1, 0), (6, 3), (2, 3), (9, 3, 2, 3), (4, 2), (1, 4))
SHAPES = ("circle", "triangle-up", "square", "diamond", "cross", "triangle-down")
MARK_PATHS = (  # the same shapes around the place where a path is
    "m-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0",
    "m0,-4l4,7.2h-8z",
    "m-3.2,-3.2h6.4v6.4h-6.4z",
    "m0,-4.6l4.6,4.6l-4.6,4.6l-4.6,-4.6z",
    "m-1.2,-3.6h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4v-2.4h2.4z",
    "m0,4l4,-7.2h-8z",
)


@dataclass(frozen=True)
class Style:
    """How the line of a number looks, for a key in the page."""

    colour: str
    dash: str
    mark: str


def style_of(number: int) -> Style:
    """The style of a panel's line ``number``, from 0; styles repeat after six."""
    index = number % len(SERIES_COLOURS)
    dash = " ".join(map(str, DASHES[index])) if number else "none"
    return Style(VARIABLES[SERIES_COLOURS[index]], dash, f"M0,0{MARK_PATHS[index]}")


def rendered(chart: Any) -> str:
    """The library's SVG. Not held against its schema, which takes as long as drawing: tests do."""
    import altair as alt
    import vl_convert

    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    drawn: str = vl_convert.vegalite_to_svg(chart.to_dict(validate=False), vl_version=version)
    return drawn


def finish(chart: Any, description: str) -> str:
    """Draw, and make the drawing part of a page: its size, colours and words."""
    styled = chart.configure(
        background="transparent", font="sans-serif", padding={"left": 2, "top": 4, "right": 8}
    ).configure_axis(
        labelColor=INK, titleColor=INK, domainColor=GRID, tickColor=GRID, gridColor=GRID,
        labelFontSize=13, titleFontSize=13, titleFontWeight="normal", titlePadding=6,
        labelPadding=4, tickSize=4, domain=False, gridOpacity=0.8,
    ).configure_view(stroke=None)  # fmt: skip
    svg = rendered(styled)
    # The page says what the figure is; the library's description of every axis would only be noise.
    svg = re.sub(r' (role|aria-[a-z]+)="[^"]*"', "", svg)
    svg = re.sub(r' (width|height)="\d+(\.\d+)?"', "", svg, count=2)
    svg = re.sub(r' pointer-events="none"| opacity="1"| stroke-opacity="1"', "", svg)
    svg = re.sub(r'<path class="(background|foreground)"[^>]*/>', "", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, variable)
    label = escape(description, quote=True)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
