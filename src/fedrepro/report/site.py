"""The site: static pages that open from disk and need neither network nor scripts."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from fedrepro.config.targets import (
    ComputedTarget,
    FigureTarget,
    RunKey,
    SearchTarget,
    TableTarget,
    Target,
)
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import coverage, tables
from fedrepro.report.cells.cell import ComputedTable, read_table
from fedrepro.report.cells.league import League, league_of, matches_of
from fedrepro.report.cells.readings import Readings
from fedrepro.report.pages import cost, overview
from fedrepro.report.pages.answers import CellUse, cells_of_runs
from fedrepro.report.pages.claims import ClaimView, claim_page, claims_page, views_of
from fedrepro.report.pages.compare import compare_pages, pair_pages
from fedrepro.report.pages.downloads import (
    as_bibtex,
    as_png,
    light_colours,
    rows_as_csv,
    standalone,
)
from fedrepro.report.pages.figure import figure_page
from fedrepro.report.pages.figures.base import Drawn
from fedrepro.report.pages.figures.partitions import draw_partition
from fedrepro.report.pages.league import write_league
from fedrepro.report.pages.method import InLeague, MethodText, by_kind, in_league, method_page
from fedrepro.report.pages.printed import computed_page, printed_page
from fedrepro.report.pages.run import inputs_of, run_page, with_inputs
from fedrepro.report.pages.run_files import write_files, write_unpaged
from fedrepro.report.pages.search import search_page
from fedrepro.report.pages.table import table_page, texts_of
from fedrepro.report.pages.templates import SITE, Renderer
from fedrepro.report.papers.published import Published
from fedrepro.run.results import MANIFEST, RunRecord, read_run, reference_runs
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError, refusal
from fedrepro.support.files import sync_disk
from fedrepro.support.scoped_cache import read_once
from fedrepro.support.terminal import say

MADE_BY = '<meta name="generator" content="fedrepro">'
HEAD = 2000  # characters of a page that have it
OF_SITE = ("claims", "methods")  # folders whose pages are all written with the site
OF_NO_PAPER = (*OF_SITE, "assets", "compare", "reference", "runs")
MANY = 500  # runs of a target; their pages take most of its time


@read_once()
def write_page(workbench: Workbench, target: Target, published: Published) -> Path:
    """The page of a table, figure or search, and the pages of its runs.

    If these are more than :data:`MANY`, their pages come with the site: each target that is made
    again would otherwise render them all.

    Raises:
        UserError: if a table has not been computed yet or a file is damaged.
    """
    writer = Writer(workbench, published)
    page, records = writer.target(target)
    writer.renderer.write_assets()
    if len(target.runs) <= MANY:
        writer.runs_and_inputs(records)
    elif records:
        line = f"the pages of its {len(records):,} runs come with the site (`fedrepro site`)"
        say(f"fedrepro: {page}: {line}")
    sync_disk()
    return page


def write_whole_site(
    workbench: Workbench, published: Published, methods: Sequence[MethodText], scale: str
) -> Path:
    """Every page, and the tables behind them, from the results that there are; nothing is trained.

    Results must not change meanwhile.

    Returns:
        The start page.
    """
    writer, records = Writer(workbench, published), dict[RunKey, RunRecord]()
    targets = workbench.targets(scale)
    with read_once():
        for target in targets.values():
            if isinstance(target, TableTarget):
                tables.write(workbench, target, published)
        for target in targets.values():
            records |= {record.run: record for record in writer.target(target)[1]}
        writer.runs_and_inputs([*records.values()])
        return write_site(workbench, published, methods, scale, set(records))


@read_once()
def write_site(
    workbench: Workbench,
    published: Published,
    methods: Sequence[MethodText],
    scale: str | None = None,
    written: Collection[RunKey] = (),
) -> Path:
    """All pages that belong to no table: start, methods, discrepancies, cost, uncovered tables.

    Args:
        methods: the descriptions for the pages of methods.
        written: runs whose pages are up to date.
    """
    writer = Writer(workbench, published)
    renderer, targets = writer.renderer, workbench.targets(scale)
    renderer.write_assets()
    computed_tables = {
        key: table
        for key, target in targets.items()
        if isinstance(target, TableTarget) and (table := read_table(workbench.root, target))
    }
    for system, item in published.tables:
        if (system, item) not in targets:
            content = printed_page(published, system, item)
            renderer.write(Path(system, f"{item}.html"), "printed.html.j2", content)
            writer.bibliography(system)
    reference = reference_runs(workbench.root)
    own = cost.runs_with_cost(workbench)
    known = {key for at in SCALES for key in workbench.targets(at)}
    paged = [*own, *_no_longer_needed(workbench.root, {record.run for record in own})]
    due = _without_page(workbench, published, targets.values(), paged, written)
    writer.runs([*reference, *due])
    readings = Readings(workbench, published, computed_tables)
    views = views_of(readings)
    league = league_of(workbench, computed_tables)
    if renderer.league:
        write_league(renderer, workbench, league, published.references)
    compared = compare_pages(workbench, computed_tables)
    pages = {
        "discrepancies": overview.ledger(readings, targets),
        "cost": cost.cost(workbench, published, own, reference),
        "claims": claims_page(published, views),
    }
    for name, page in pages.items():
        renderer.write(Path(f"{name}.html"), f"{name}.html.j2", page)
    writer.claims(views)
    writer.comparisons(compared)
    writer.methods(methods, league, compared)
    facts = [method.facts for method in methods]
    listed = overview.all_pages(published, targets, facts, [*reference, *own])
    text = json.dumps(listed, ensure_ascii=False).replace("</", "<\\/")
    renderer.write_file(Path("assets/pages.js"), f"window.PAGES = {text};\n")
    # The workflow waits for the start page, so write it last.
    counts = coverage.count(readings)
    content = overview.start_page(readings, targets, counts, views, workbench.scale(scale))
    start = renderer.write(Path("index.html"), "index.html.j2", content)
    for left in _left_over(workbench.root, known | {*published.tables}, renderer.written):
        say(f"fedrepro: {left}: of something that no experiment file has now: remove it")
    sync_disk()
    return start


def _left_over(
    root: Path, known: Collection[tuple[str, str]], written: Collection[Path]
) -> list[Path]:
    """The pages of tables, figures, searches, methods and claims that were renamed or deleted.

    A page in the folder of a paper may also be the reader's own.

    Args:
        known: tables, figures and searches by (system, item).
        written: the pages that the site has just written.
    """
    made = {(path.parent.name, path.stem) for path in root.glob("results/tables/*/*/*.json")}
    for page in root.glob(f"{SITE}/*/*.html"):
        system = page.parent.name
        with page.open(encoding="utf-8", errors="replace") as file:
            ours = MADE_BY in file.read(HEAD)
        stays = Path(system, page.name) in written if system in OF_SITE else system in OF_NO_PAPER
        if ours and not stays:
            made.add((system, page.stem))
    pages = (SITE / system / f"{item}.html" for system, item in sorted(made - {*known}))
    return [page for page in pages if (root / page).exists()]


def _no_longer_needed(root: Path, needed: Collection[RunKey]) -> list[RunRecord]:
    """This machine's runs that have a page, and that nothing in the experiment files needs now."""
    top = root / SITE / "runs"
    names = (page.relative_to(top).with_suffix("") for page in top.glob("*/*/*/seed*.html"))
    runs = [RunKey.parse(str(name)) for name in sorted(names) if name.name[4:].isdecimal()]
    there = (run for run in runs if run not in needed and (root / run.manifest).exists())
    return [read_run(root, run) for run in there]


def _without_page(
    workbench: Workbench,
    published: Published,
    targets: Iterable[Target],
    own: Sequence[RunRecord],
    written: Collection[RunKey],
) -> list[RunRecord]:
    """This machine's runs whose pages are not made with their tables' pages.

    Nor is a page that names other tables and cells than those that show its run now, or that shows
    an earlier result of it, whose manifest is beside it.
    """
    root = workbench.root
    many = {run for target in targets if len(target.runs) > MANY for run in target.runs}
    many.difference_update(written)
    shown_in = _shown_in(workbench, published, {record.run for record in own})

    def is_due(run: RunRecord) -> bool:
        page = root / SITE / run.page
        try:
            shown = (page.with_suffix("") / MANIFEST).read_bytes()
            current = shown == (root / run.folder / MANIFEST).read_bytes()
            current &= shown_in(run.run).mark in page.read_text(encoding="utf-8")
        except OSError:
            current = False
        return run.run in many or not current

    return [run for run in own if is_due(run)]


class _ShownIn(NamedTuple):
    """Where a run is shown: the pages of tables and figures, and cells of tables."""

    pages: list[dict[str, str]]
    cells: list[CellUse]

    @property
    def mark(self) -> str:
        """A digest that changes with the words of a run's page on them, not with its numbers."""
        cells = [
            (use.place, use.address, use.metric.quantity.words, use.seeds, use.demo)
            for use in self.cells
        ]
        return checksummed_json.digest_of([self.pages, cells])


def _shown_in(
    workbench: Workbench, published: Published, wanted: set[RunKey]
) -> Callable[[RunKey], _ShownIn]:
    pages = overview.tables_of_runs(workbench, published, wanted)
    cells = cells_of_runs(workbench, published, wanted)
    return lambda run: _ShownIn(pages.get(run, []), cells.get(run, []))


class Writer:
    """Writes pages of a workbench's site, each with what it links to."""

    def __init__(self, workbench: Workbench, published: Published) -> None:
        self.workbench, self.published = workbench, published
        self.renderer = Renderer(workbench.root, league=bool(matches_of(workbench)))

    def target(self, target: Target) -> tuple[Path, list[RunRecord]]:
        """The page of a target with its downloads, and the runs that it shows."""
        workbench, published = self.workbench, self.published
        page = target.page.relative_to(SITE)
        content: Mapping[str, Any]
        if isinstance(target, TableTarget):
            table = read_table(workbench.root, target)
            if table is None:
                raise refusal(target.path, "not computed yet: run `fedrepro table`", code="missing")
            template, content = "table.html.j2", table_page(workbench, target, table, published)
            self._table_downloads(page, target, table)
        elif isinstance(target, FigureTarget):
            template, content = "figure.html.j2", figure_page(workbench, target, published)
            self._figure_downloads(page, content["drawn"], png=content["png"])
        elif isinstance(target, SearchTarget):
            template, content = "search.html.j2", search_page(workbench, target, published)
        else:
            assert isinstance(target, ComputedTarget)
            template, content = "computed.html.j2", computed_page(workbench, target, published)
        self.bibliography(target.system)
        return self.renderer.write(page, template, content), content["records"]

    def _table_downloads(self, page: Path, target: TableTarget, table: ComputedTable) -> None:
        """Write a table as CSV, LaTeX and JSON, beside its page."""
        texts = texts_of(target, table, self.published)
        for ending, text in {**texts, ".json": table.to_json()}.items():
            self.renderer.write_file(page.with_suffix(ending), text)
        write_unpaged(self.renderer, table)

    def _figure_downloads(self, page: Path, drawn: Drawn, *, png: bool) -> None:
        """Write a figure's panels as separate files, and its numbers, beside its page."""
        renderer = self.renderer
        if not png:
            line = "drawn as SVG only; for PNG, `pip install '.[png]'` in the clone"
            say(f"fedrepro: {SITE / page}: {line}")
        sheet = (renderer.templates / "assets/site.css").read_text(encoding="utf-8")
        colours = light_colours(sheet)
        files: dict[str, str | bytes] = {}
        panels: set[str] = set()  # a PNG of one may be the user's, where none is drawn
        for number, panel in enumerate(drawn.panels, start=1):
            if panel.svg.startswith("<svg"):  # without images
                name, svg = f"{page.stem}-{number}", standalone(panel.svg, colours)
                files |= {f"{name}.svg": svg} | ({f"{name}.png": as_png(svg)} if png else {})
                panels |= {f"{name}.svg", f"{name}.png"}
        if drawn.rows:
            files[f"{page.stem}.csv"] = rows_as_csv(drawn.header, drawn.rows)
        for name, content in files.items():
            renderer.write_file(page.with_name(name), content)
        ours = re.compile(rf"{re.escape(page.stem)}(-\d+\.(svg|png)|\.csv)")
        renderer.remove_others(page.parent, panels | {*files}, ours)

    def bibliography(self, system: str) -> None:
        if reference := self.published.references.of_paper(system):
            key, work = reference
            self.renderer.write_file(Path(system, f"{system}.bib"), as_bibtex(key, work.fields))

    def runs_and_inputs(self, records: Sequence[RunRecord]) -> None:
        """Write pages of runs and, before them, of the inputs of this machine's runs."""
        own = [record.run for record in records if not record.reference]
        inputs = with_inputs(self.workbench, own)[len(own) :]
        made = (read_run(self.workbench.root, run) for run in inputs)
        self.runs([*records, *(record for record in made if record.manifest)])

    def runs(self, records: Sequence[RunRecord]) -> None:
        """Write a page for each run. Runs with the same partition share its picture."""
        workbench = self.workbench
        drawn = cache(partial(draw_partition, workbench.root))
        wanted = {record.run for record in records}
        shown_in = _shown_in(workbench, self.published, wanted)
        for record in records:
            run, partition = record.run, None
            if setting := workbench.find_setting(run.setting):
                partition = drawn(setting.partition_path(run.seed).with_suffix(".json"))
            inputs: dict[str, RunRecord] = {}
            with suppress(UserError):  # of a run that nothing needs, whose method has lost an input
                for need, source in inputs_of(workbench, run).items():
                    inputs[need] = read_run(workbench.root, source)
            shown = shown_in(run)
            # Without it, a call that is killed between these files and their page is made good.
            (workbench.root / SITE / record.page).unlink(missing_ok=True)
            files = write_files(self.renderer, record)
            content = {
                **run_page(record, partition, *shown, inputs, files, workbench.plugins),
                "mark": shown.mark,
            }
            self.renderer.write(record.page, "run.html.j2", content)

    def claims(self, views: Sequence[ClaimView]) -> None:
        """Write a page for each claim: what authors need to check the verdict, and to object."""
        for view in views:
            system = self.published.systems[view.claim.system]
            content = claim_page(self.workbench, system, view, views)
            page = Path("claims", f"{view.claim.anchor}.html")
            self.renderer.write(page, "claim.html.j2", content)

    def comparisons(self, compared: Mapping[str, Mapping[str, Any]]) -> None:
        """Write a page for each method beside all others, for each two methods, and their list."""
        for file, content in compared.items():
            self.renderer.write(Path("compare", f"{file}.html"), "compare.html.j2", content)
        for address, content in pair_pages(compared).items():
            self.renderer.write(Path("compare", address), "pair.html.j2", content)
        self.renderer.write(Path("compare/index.html"), "compares.html.j2", {"pages": compared})

    def methods(
        self,
        methods: Sequence[MethodText],
        league: League,
        compared: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Write a page for each method, wrapper and server optimizer, and the list of them."""
        used = overview.tables_of_parts(self.workbench, self.published)
        standings = in_league(self.workbench, league.played)
        files = {content["name"]: f"{file}.html" for file, content in compared.items()}
        for method in methods:
            name = method.facts["name"]
            page, standing = Path("methods", f"{name}.html"), standings.get(name, InLeague())
            key, work = self.published.references.of_method(name) or ("", None)
            if work:
                self.renderer.write_file(page.with_suffix(".bib"), as_bibtex(key, work.fields))
            content = method_page(method, used.get(name, []), work, standing, files)
            self.renderer.write(page, "method.html.j2", content)
        listed = {"groups": by_kind(methods), "used": used}
        self.renderer.write(Path("methods/index.html"), "methods.html.j2", listed)
