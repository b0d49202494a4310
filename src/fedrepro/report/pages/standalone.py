"""Pages without the rest of the site: without links to pages that are not there."""

import re
from pathlib import Path

from fedrepro.support.files import write_atomically

FOLDER = Path("results/report")
STYLE = re.compile(r'<link rel="stylesheet" href="[^"]*">')
# Links to other pages; links within the page and to the web stay.
ELSEWHERE = re.compile(r'(<a\b[^>]*?) href="(?!#|[a-z]+:)[^"]*"')


def write_standalone(root: Path, page: Path, target: Path) -> None:
    """Write ``target`` from a rendered page of the site; both paths are relative to ``root``."""
    html = (root / page).read_text(encoding="utf-8")
    css = (root / page).parents[1] / "assets/site.css"
    with write_atomically(root / target) as temporary:
        temporary.write_text(standalone(html, css.read_text(encoding="utf-8")), encoding="utf-8")


def without_dead_links(root: Path, page: Path) -> None:
    """Take out a page's links to pages of the site that are not there; ``page`` is relative."""
    path = root / page
    html = path.read_text(encoding="utf-8")

    def kept(link: re.Match[str]) -> str:
        target = link[0].rpartition('href="')[2].rstrip('"').partition("#")[0]
        return link[0] if (path.parent / target).exists() else link[1]

    with write_atomically(path) as temporary:
        temporary.write_text(ELSEWHERE.sub(kept, html), encoding="utf-8")


def standalone(html: str, css: str) -> str:
    """The page with ``css`` as its style sheet."""
    styled = STYLE.sub(lambda _: f"<style>\n{css}</style>", html)
    return ELSEWHERE.sub(r"\1", styled)
