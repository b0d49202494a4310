"""The site: static pages that open from disk and need neither network nor scripts."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrepro.config.targets import (
    ComputedTarget,
    FigureTarget,
    RunKey,
    SearchTarget,
    TableTarget,
    Target,
)
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import computed, coverage, tables
from fedrepro.report.cells.cell import ComputedTable, read_table
from fedrepro.report.cells.league import League, league_of
from fedrepro.report.cells.readings import answers_by_table
from fedrepro.report.drawing.partition import PartitionMap, draw_partition
from fedrepro.report.pages import overview
from fedrepro.report.pages.answers import cells_of_runs
from fedrepro.report.pages.claims import claims_page, findings_of, views_of
from fedrepro.report.pages.compare import compare_pages, pairs_of
from fedrepro.report.pages.downloads import (
    as_bibtex,
    as_csv,
    as_latex,
    as_png,
    has_png,
    light_colours,
    rows_as_csv,
    standalone,
)
from fedrepro.report.pages.figure import figure_page
from fedrepro.report.pages.figures.base import Drawn
from fedrepro.report.pages.inputs import inputs_of, with_inputs
from fedrepro.report.pages.league_files import write_league
from fedrepro.report.pages.method import MethodText, by_kind, method_page, stands_of
from fedrepro.report.pages.printed import computed_page, printed_page
from fedrepro.report.pages.run import run_page
from fedrepro.report.pages.run_files import write_files, write_unpaged
from fedrepro.report.pages.search import search_page
from fedrepro.report.pages.table import table_page
from fedrepro.report.pages.templates import SITE, Renderer
from fedrepro.report.papers.published import Published, split_part
from fedrepro.run.results import RunRecord, read_once, read_run, reference_runs
from fedrepro.support.errors import UserError
from fedrepro.support.files import sync_disk
from fedrepro.support.terminal import say

MANY = 500  # runs of a target; their pages take most of its time


@read_once()
def write_page(workbench: Workbench, target: Target, published: Published) -> Path:
    """The page of a table, figure or search, and the pages of its runs.

    If these are more than :data:`MANY`, their pages come with the site: each target that is made
    again would otherwise render them all.

    Raises:
        UserError: if a table has not been computed yet or a file is damaged.
    """
    renderer = Renderer(workbench.root)
    page, records = _write_page(workbench, target, published, renderer)
    renderer.write_assets()
    if len(target.runs) <= MANY:
        write_runs(workbench, published, renderer, [*records, *_given(workbench, records)])
    elif records:
        line = f"the pages of its {len(records):,} runs come with the site (`fedrepro site`)"
        say(f"fedrepro: {page}: {line}")
    sync_disk()
    return page


def _write_page(
    workbench: Workbench, target: Target, published: Published, renderer: Renderer
) -> tuple[Path, list[RunRecord]]:
    """The page of a target alone, with its downloads, and the runs that it shows."""
    page = target.page.relative_to(SITE)
    if isinstance(target, TableTarget):
        table = read_table(workbench.root, target)
        if table is None:
            raise UserError(f"{target.path}: not computed yet: run `fedrepro table`")
        content = table_page(workbench, target, table, published)
        _write_downloads(renderer, page, table, content, published)
        records, template = runs_of(workbench.root, table), "table.html.j2"
    elif isinstance(target, FigureTarget):
        content = figure_page(workbench, target, published)
        content["png"] = has_png()
        _write_figure(renderer, page, content["drawn"], png=content["png"])
        records, template = content["records"], "figure.html.j2"
    elif isinstance(target, SearchTarget):
        content = search_page(workbench, target, published)
        records, template = content["records"], "search.html.j2"
    else:
        assert isinstance(target, ComputedTarget)
        cells = computed.compute(workbench, target, published)
        words = computed.compute_words(workbench, target, published)
        parts = [
            item
            for system, item in workbench.targets()
            if system == target.system and split_part(item)[0] == target.item != item
        ]
        content = computed_page(cells, words, parts, target, published)
        records, template = [], "computed.html.j2"
    _write_bibliography(renderer, published, target.system)
    return renderer.write(page, template, content), records


def write_whole_site(
    workbench: Workbench, published: Published, methods: Sequence[MethodText], scale: str
) -> Path:
    """Every page, and the tables behind them, from the results that there are; nothing is trained.

    Results must not change meanwhile.

    Returns:
        The start page.
    """
    renderer, records = Renderer(workbench.root), dict[RunKey, RunRecord]()
    targets = workbench.targets(scale)
    with tables.computed_once():
        for target in targets.values():
            if isinstance(target, TableTarget):
                tables.write(workbench, target, published)
        for target in targets.values():
            _, shown = _write_page(workbench, target, published, renderer)
            records |= {record.run: record for record in shown}
        shown = [*records.values()]
        write_runs(workbench, published, renderer, [*shown, *_given(workbench, shown)])
        return write_site(workbench, published, methods, scale, {record.run for record in shown})


def _write_downloads(
    renderer: Renderer,
    page: Path,
    table: ComputedTable,
    content: Mapping[str, Any],
    published: Published,
) -> None:
    """A table as CSV, LaTeX and JSON, beside its page."""
    system = published.systems.get(table.system)
    columns = [*content["shown"], *content["folded"]]
    renderer.write_text(page.with_suffix(".csv"), as_csv(table))
    best = [row.best for row in content["rows"]]
    latex = as_latex(table, columns, system.paper if system else "", content["own"], best)
    renderer.write_text(page.with_suffix(".tex"), latex)
    renderer.write_text(page.with_suffix(".json"), table.to_json())
    write_unpaged(renderer, table)


def _write_figure(renderer: Renderer, page: Path, drawn: Drawn, *, png: bool) -> None:
    """A figure's panels as separate files, and its numbers, beside its page."""
    if not png:
        line = "drawn as SVG only; for PNG, `pip install '.[png]'` in the clone"
        say(f"fedrepro: {SITE / page}: {line}")
    sheet = (renderer.templates / "assets/site.css").read_text(encoding="utf-8")
    colours = light_colours(sheet)
    for number, panel in enumerate(drawn.panels, start=1):
        if panel.svg.startswith("<svg"):  # without images
            svg = standalone(panel.svg, colours)
            place = page.with_name(f"{page.stem}-{number}.svg")
            renderer.write_text(place, svg)
            if png:
                renderer.write_bytes(place.with_suffix(".png"), as_png(svg))
    if drawn.rows:
        renderer.write_text(page.with_suffix(".csv"), rows_as_csv(drawn.header, drawn.rows))


def _write_bibliography(renderer: Renderer, published: Published, system: str) -> None:
    if reference := published.references.of_paper(system):
        key, work = reference
        renderer.write_text(Path(system, f"{system}.bib"), as_bibtex(key, work.fields))


def runs_of(root: Path, table: ComputedTable) -> list[RunRecord]:
    """Every run that a table's JSON links to."""
    found = {}
    results = (result for cell in table.cells for result in (cell.paper, cell.demo) if result)
    for result in results:
        for run in result.runs:
            if run.page and run.page not in found:
                record = read_run(root, result.run_of(run), reference=run.reference)
                found[run.page] = record
    return list(found.values())


def _given(workbench: Workbench, records: Sequence[RunRecord]) -> list[RunRecord]:
    """The inputs of this machine's runs: they are made before these runs."""
    own = [record.run for record in records if not record.reference]
    runs = with_inputs(workbench, own)[len(own) :]
    return [record for run in runs if (record := read_run(workbench.root, run)).manifest]


def write_runs(
    workbench: Workbench, published: Published, renderer: Renderer, records: Sequence[RunRecord]
) -> None:
    """A page for each run. Runs with the same partition share its picture."""
    drawn: dict[Path, PartitionMap | None] = {}
    wanted = {record.run for record in records}
    uses = overview.tables_of_runs(workbench, published, wanted)
    cells = cells_of_runs(workbench, published, wanted)
    for record in records:
        partition = None
        if record.run.setting in workbench.settings:
            path = workbench.setting(record.run.setting).partition_path(record.run.seed)
            path = path.with_suffix(".json")
            if path not in drawn:
                there = (workbench.root / path).exists()
                drawn[path] = draw_partition(workbench.root, path) if there else None
            partition = drawn[path]
        given = {
            need: read_run(workbench.root, run)
            for need, run in inputs_of(workbench, record.run).items()
        }
        needed, asked = uses.get(record.run, []), cells.get(record.run, [])
        files = write_files(renderer, record)
        content = run_page(record, partition, needed, asked, given, files, workbench.plugins)
        renderer.write(record.page, "run.html.j2", content)


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
    renderer = Renderer(workbench.root)
    renderer.write_assets()
    targets = workbench.targets(scale)
    found = {
        key: table
        for key, target in targets.items()
        if isinstance(target, TableTarget) and (table := read_table(workbench.root, target))
    }
    counts = coverage.count(workbench, published, found)
    for system, item in published.tables:
        if (system, item) not in targets:
            content = printed_page(published, system, item)
            renderer.write(Path(system, f"{item}.html"), "printed.html.j2", content)
            _write_bibliography(renderer, published, system)
    reference = reference_runs(workbench.root)
    own = overview.runs_with_cost(workbench)
    # Pages of this machine's runs are made with their tables' pages; the rest are made here.
    many = {run for target in targets.values() if len(target.runs) > MANY for run in target.runs}
    many.difference_update(written)
    left = [
        record
        for record in own
        if record.run in many or not (workbench.root / SITE / record.page).exists()
    ]
    write_runs(workbench, published, renderer, [*reference, *left])
    by_table = answers_by_table(workbench, found, published)
    entries = overview.ledger(published, targets, by_table)
    renderer.write(Path("discrepancies.html"), "discrepancies.html.j2", entries)
    renderer.write(
        Path("cost.html"), "cost.html.j2", overview.cost(workbench, published, own, reference)
    )
    views = views_of(workbench, published, found)
    league = league_of(workbench, found)
    claims = {
        **claims_page(published, views),
        "findings": findings_of(views),
        "league": bool(league.played),
    }
    if league.played:
        write_league(renderer, league)
    renderer.write(Path("claims.html"), "claims.html.j2", claims)
    compared = compare_pages(workbench, found)
    for file, content in compared.items():
        renderer.write(Path("compare", f"{file}.html"), "compare.html.j2", content)
    for address, content in pairs_of(compared).items():
        renderer.write(Path("compare", address), "pair.html.j2", content)
    _write_methods(workbench, published, renderer, methods, league, compared)
    renderer.write(Path("compare/index.html"), "compares.html.j2", {"pages": compared})
    runs = [*reference, *own]
    listed = overview.all_pages(published, targets, [method.facts for method in methods], runs)
    text = json.dumps(listed, ensure_ascii=False).replace("</", "<\\/")
    renderer.write_text(Path("assets/pages.js"), f"window.PAGES = {text};\n")
    # The workflow waits for the start page, so write it last.
    content = overview.start_page(
        workbench, published, targets, found, counts, claims, by_table, workbench.scale(scale)
    )
    start = renderer.write(Path("index.html"), "index.html.j2", content)
    sync_disk()
    return start


def _write_methods(
    workbench: Workbench,
    published: Published,
    renderer: Renderer,
    methods: Sequence[MethodText],
    league: League,
    compared: Mapping[str, Mapping[str, Any]],
) -> None:
    """A page for each method, wrapper and server optimizer, and the list of them."""
    used = overview.tables_of_parts(workbench, published)
    stands, labels, left_out = stands_of(workbench, league.played)
    files = {content["name"]: f"{file}.html" for file, content in compared.items()}
    for method in methods:
        name = method.facts["name"]
        reference = published.references.of_method(name)
        content = method_page(
            method,
            used.get(name, []),
            reference[1] if reference else None,
            stands.get(name, ()),
            {label: files[label] for label in labels.get(name, ()) if label in files},
            left_out.get(name, {}),
        )
        renderer.write(Path("methods") / f"{name}.html", "method.html.j2", content)
    listed = {"groups": by_kind(methods), "used": used}
    renderer.write(Path("methods/index.html"), "methods.html.j2", listed)
