"""A page by itself, for reports that hold single files: with its style, without links to others."""

import re
from pathlib import Path

from fedrepro.support.files import write_atomically

FOLDER = Path("results/report")
STYLE = re.compile(r'<link rel="stylesheet" href="[^"]*">')
# Other pages; what is on the page itself or on the web stays a link.
ELSEWHERE = re.compile(r'(<a\b[^>]*?) href="(?!#|[a-z]+:)[^"]*"')


def write_alone(root: Path, page: Path, target: Path) -> None:
    """Write ``target`` from a rendered page of the site; both are relative to ``root``."""
    html = (root / page).read_text(encoding="utf-8")
    css = (root / page).parents[1] / "assets/site.css"
    with write_atomically(root / target) as temporary:
        temporary.write_text(alone(html, css.read_text(encoding="utf-8")), encoding="utf-8")


def alone(html: str, css: str) -> str:
    """The page with ``css`` for its stylesheet."""
    styled = STYLE.sub(lambda _: f"<style>\n{css}</style>", html)
    return ELSEWHERE.sub(r"\1", styled)
