"""Fill the templates, format values in them, and write pages: of the site, or alone without it.

A page alone has no links to pages that are not there. Every page has a footer with the version, the
commit and the repository.
"""

import json
import math
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
from markupsafe import Markup, escape

import fedrepro
from fedrepro.support import checkout
from fedrepro.support.files import write_atomically
from fedrepro.support.packaged import CONFIG, ORIGIN, PACKAGE, own_or_packaged
from fedrepro.support.printing import MINUS, MISSING, THIN, counted, fixed, sentence_case
from fedrepro.support.typed_yaml import read_yaml

SITE = Path("reports/site")
TEMPLATES = Path("reports/templates")

CITATION = "CITATION.cff"
LABELS = ("repository", "source", "source code")  # of a package's URLs

ALONE = Path("results/report")  # the folder of pages without the site
STYLE = re.compile(r'<link rel="stylesheet" href="[^"]*">')
# Links to other pages; links within the page and to the web stay.
ELSEWHERE = re.compile(r'(<a\b[^>]*?) href="(?!#|[a-z]+:)[^"]*"')


class Renderer:
    """Renders templates and writes pages.

    Files survive a crash of the machine after the caller's :func:`sync_disk`: a table may have
    thousands of runs, each with a page and some files.

    Args:
        league: whether the menu has the league, as the workbench has matches.

    Attributes:
        written: the pages that were written, relative to the site.
    """

    def __init__(self, root: Path, *, league: bool = False) -> None:
        self.root, self.league = root, league
        self.written: set[Path] = set()
        self.templates = own_or_packaged(root, TEMPLATES).resolve()
        self.environment = environment(self.templates)

    def write(self, page: Path, template: str, content: Mapping[str, Any]) -> Path:
        """Render ``page``, relative to the site, and write it if it changes.

        A run's page is rendered with each of its tables.
        """
        up = "../" * (len(page.parts) - 1)
        text = self.environment.get_template(template).render(
            up=up,
            page=page.as_posix(),
            software=software(),
            # Committed results are rendered in another folder that links to its configuration.
            is_clone=(self.root / CONFIG).resolve() == ORIGIN.resolve() / CONFIG,
            has_league=self.league,
            **content,
        )
        self.write_file(page, f"{text.strip()}\n")
        self.written.add(page)
        return SITE / page

    def write_file(self, page: Path, content: str | bytes) -> None:
        """Write a file of the site if it changes; comparing is cheaper than an atomic write."""
        path = self.root / SITE / page
        # A name of a file that is no UTF-8 has surrogates.
        wanted = content.encode(errors="backslashreplace") if isinstance(content, str) else content
        if not path.is_file() or path.read_bytes() != wanted:
            with write_atomically(path, durable=False) as temporary:
                temporary.write_bytes(wanted)

    def remove_others(self, folder: Path, names: Collection[str], ours: "re.Pattern[str]") -> None:
        """Remove the files of a folder of the site whose names we give, except those named."""
        for file in (self.root / SITE / folder).glob("*"):
            if file.name not in names and ours.fullmatch(file.name) and file.is_file():
                file.unlink(missing_ok=True)

    def write_assets(self) -> None:
        for source in sorted((self.templates / "assets").iterdir()):
            self.write_file(Path("assets", source.name), source.read_bytes())


@cache
def environment(folder: Path) -> jinja2.Environment:
    """The templates of a folder; each is compiled once per process, and again after a change."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=lambda name: not (name or "").endswith(".tex.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters |= {
        "number": number, "signed": signed, "whole": whole, "size": size, "span": span,
        "prose": prose, "powers": powers, "svg": Markup, "plain": plain, "words": words,
        "figure": figure, "spelt": spelt, "sentence_case": sentence_case,
        "counted": counted,
    }  # fmt: skip
    return made


def compile_all(root: Path) -> None:
    """Compile a workbench's templates before processes are forked, so that they share them."""
    made = environment(own_or_packaged(root, TEMPLATES).resolve())
    for name in made.list_templates(extensions=["j2"]):
        with suppress(jinja2.TemplateError):  # reported when a page needs it
            made.get_template(name)


def number(value: float | None, decimals: int = 2) -> str:
    """A value with its decimals, or a dash."""
    return fixed(value, decimals).replace("-", MINUS)


def spelt(count: int) -> str:
    """A small count as a word."""
    names = "no one two three four five six seven eight nine ten eleven twelve"
    small = dict(enumerate(names.split()))
    return small.get(count, str(count))


def signed(value: float | None, decimals: int = 2) -> str:
    """A difference with its sign."""
    return MISSING if value is None else f"{value:+.{decimals}f}".replace("-", MINUS)


def figure(value: float) -> str:
    """A difference of any magnitude, with its sign; what rounding errors leave is 0."""
    size = abs(value)
    if size < 1e-9:
        text = f"{0:+.2f}"
    elif size >= 1e5:
        text = f"{value:+,.0f}".replace(",", THIN)
    else:
        decimals = 2 if size >= 0.01 else 1 - math.floor(math.log10(size))
        text = f"{value:+.{decimals}f}"
    return text.replace("-", MINUS)


def whole(value: float) -> str:
    """A count with thousands separators."""
    return f"{round(value):,}".replace(",", THIN)


def size(value: float) -> str:
    """A size in the unit that gives one to three digits before the point."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:  # which rounds to 1000
            return f"{value:.3g}{THIN}{unit}"
        value /= 1000
    return f"{value:.3g}{THIN}TB"


def span(seconds: float) -> str:
    """A duration in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.3g}{THIN}s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{seconds / 60:.3g}{THIN}min"
    hours = seconds / 3600
    return f"{f'{hours:.3g}' if hours < 999.5 else whole(hours)}{THIN}h"


def plain(value: object) -> str:
    """A configuration value in YAML notation."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def powers(text: str) -> Markup:
    """A printed number such as 3.33e+10, typeset with its power of ten."""
    typeset = re.sub(r"e[+]?(-?)0*(\d+)", rf"{THIN}·{THIN}10<sup>\1\2</sup>", str(escape(text)))
    return Markup(typeset.replace("<sup>-", f"<sup>{MINUS}"))


def words(name: str) -> str:
    """A key such as update_norm as words."""
    return name.replace("_", " ")


def prose(text: str) -> Markup:
    """A paragraph with ``code`` and `code` as HTML."""
    return Markup(re.sub(r"`{1,2}([^`]+)`{1,2}", r"<code>\1</code>", str(escape(text))))


@cache
def software() -> SimpleNamespace:
    """The version of this package, the ``commit`` of its checkout (or ""), and its repository.

    ``dirty`` says whether the code had uncommitted changes.
    """
    code = checkout.of_package() or {"commit": "", "dirty": False}
    return SimpleNamespace(version=fedrepro.__version__, repository=repository(), **code)


@cache
def repository() -> str | None:
    """The repository's URL from the package's metadata or CITATION.cff, or None."""
    try:
        said = metadata(PACKAGE.name).get_all("Project-URL") or []
    except PackageNotFoundError:
        said = []
    urls = {label.lower(): url.strip() for label, _, url in (each.partition(",") for each in said)}
    file = ORIGIN / CITATION
    cited = read_yaml(file) if file.is_file() else {}
    known = [*(urls.get(label) for label in LABELS), cited.get("repository-code")]
    return next((url.rstrip("/") for url in known if url and url.startswith("https://")), None)


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
