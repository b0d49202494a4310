"""Equations as MathML, which browsers show without a script."""

import re

from latex2mathml.converter import convert
from markupsafe import Markup, escape

from fedrepro.report.pages.templates import prose

MARK = "$$"
SYMBOLS = "Symbols: "  # begins the paragraph that explains them
# Attributes that only change how an equation looks. Others (href, style, class, id) would load or
# cover something else on the page.
LOOKS = {
    "accent", "accentunder", "border-color", "columnalign", "columnlines", "columnspacing", "depth",
    "display", "displaystyle", "fence", "form", "height", "largeop", "linebreak", "linethickness",
    "lspace", "mathbackground", "mathcolor", "mathsize", "mathvariant", "maxsize", "minsize",
    "movablelimits", "notation", "rowlines", "rowspacing", "rspace", "scriptlevel", "separator",
    "stretchy", "symmetric", "voffset", "width", "xmlns",
}  # fmt: skip


def is_equation(paragraph: str) -> bool:
    """Return True if a paragraph of a docstring is LaTeX between two ``$$``."""
    text = paragraph.strip()
    return len(text) > 2 * len(MARK) and text.startswith(MARK) and text.endswith(MARK)


def without_equations(documentation: str) -> list[str]:
    """The paragraphs of a docstring that are neither equations nor say what their symbols mean."""
    paragraphs = documentation.split("\n\n")
    return [text for text in paragraphs if not text.startswith(SYMBOLS) and not is_equation(text)]


def equations_in(paragraph: str) -> list[Markup]:
    r"""The equations of a paragraph, cut at ``\quad`` so that a narrow page can wrap them.

    One that cannot be read as LaTeX is shown as it was written.
    """
    whole = " ".join(paragraph.strip().removeprefix(MARK).removesuffix(MARK).split())
    return [_in_mathml(part, "block") for part in re.split(r",?\s*\\quad\b\s*", whole) if part]


def symbols_in(paragraph: str) -> Markup:
    """A paragraph about symbols, which are LaTeX between single ``$``."""
    parts = " ".join(paragraph.removeprefix(SYMBOLS).split()).split("$")
    return Markup("").join(
        _in_mathml(part, "inline") if place % 2 else prose(part) for place, part in enumerate(parts)
    )


def _in_mathml(latex: str, display: str) -> Markup:
    # The converter does not escape what \text contains.
    safe = latex.replace("<", r"\lt ").replace(">", r"\gt ")
    try:
        return Markup(re.sub(r"<[^<>]*>", _looks_only, convert(safe, display=display)))
    except Exception:  # its errors have no base of their own
        return Markup("<code>{}</code>").format(escape(latex))


def _looks_only(tag: re.Match[str]) -> str:
    """A tag of MathML with the attributes of LOOKS only."""
    return re.sub(r' ([^\s="]+)="[^"]*"', lambda one: one[0] if one[1] in LOOKS else "", tag[0])
