"""The site: static pages that open from disk, without network and without scripts."""

import inspect
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedrepro.config.targets import ComputedTarget, FigureTarget, Run, TableTarget, Target
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import computed, coverage
from fedrepro.report.cells.tables import read
from fedrepro.report.pages import figure as figure_pages
from fedrepro.report.pages import overview
from fedrepro.report.pages import row_figures as scenes
from fedrepro.report.pages import table as pages
from fedrepro.report.pages.templates import SITE, Renderer
from fedrepro.report.papers.published import Published
from fedrepro.run.results import RunRecord, landed_runs, read_run
from fedrepro.support.errors import UserError


def write_page(workbench: Workbench, target: Target, published: Published) -> Path:
    """The page of a table or figure, and the pages of its runs."""
    renderer = Renderer(workbench.root)
    page = target.page.relative_to(SITE)
    if isinstance(target, TableTarget):
        table = read(workbench.root, target.path)
        content = pages.table_page(workbench, target, table, published)
        records, template = runs_of(workbench.root, table), "table.html.j2"
    elif isinstance(target, FigureTarget):
        content = figure_pages.figure_page(workbench, target, published)
        records, template = content["records"], "figure.html.j2"
    else:
        assert isinstance(target, ComputedTarget)
        cells = computed.compute(workbench, target, published)
        content = pages.computed_page(cells, target, published)
        records, template = [], "computed.html.j2"
    renderer.write_assets()
    write_runs(workbench, published, renderer, records)
    return renderer.write(page, template, content)


def runs_of(root: Path, table: Mapping[str, Any]) -> list[RunRecord]:
    """Every run that a table's JSON links to.

    Raises:
        UserError: when one of them was deleted after the table was computed.
    """
    found = {}
    for cell in table["cells"]:
        for result in (cell["paper"], cell["demo"]):
            for run in result["runs"] if result else ():
                if run["page"]:
                    name = Run(result["setting"], run["method"], run["seed"])
                    record = read_run(root, name, landed=run["landed"])
                    if not record.manifest:
                        raise UserError(
                            f"{record.folder}: gone since its table was computed: run "
                            f"`fedrepro table {table['system']} {table['item']}` again"
                        )
                    found[run["page"]] = record
    return list(found.values())


def write_runs(
    workbench: Workbench, published: Published, renderer: Renderer, records: Iterable[RunRecord]
) -> None:
    """A page for each run. The partition's picture is drawn once for all runs that share it."""
    drawn: dict[Path, scenes.HeatMap | None] = {}
    uses = overview.tables_of_runs(workbench, published)
    for record in records:
        partition = None
        if record.run.setting in workbench.settings:
            path = workbench.setting(record.run.setting).partition_path(record.run.seed)
            path = path.with_suffix(".json")
            if path not in drawn:
                there = (workbench.root / path).exists()
                drawn[path] = scenes.draw_partition(workbench.root, path) if there else None
            partition = drawn[path]
        renderer.write(
            record.page, "run.html.j2", pages.run_page(record, partition, uses.get(record.run, []))
        )


def write_site(workbench: Workbench, published: Published, scale: str | None = None) -> Path:
    """Everything that is not a table's: start page, methods, ledger, cost, uncovered tables."""
    renderer = Renderer(workbench.root)
    renderer.write_assets()
    targets = workbench.targets(scale)
    counts = coverage.count(workbench, published)
    for system, item in published.tables:
        if (system, item) not in targets:
            content = pages.printed_page(published, system, item)
            renderer.write(Path(system, f"{item}.html"), "printed.html.j2", content)
    landed = landed_runs(workbench.root)
    own = overview.runs_with_cost(workbench)
    # Pages of this machine's runs come with their tables' pages; the rest are made here.
    without = [record for record in own if not (workbench.root / SITE / record.page).exists()]
    write_runs(workbench, published, renderer, [*landed, *without])
    _write_methods(workbench, published, renderer)
    entries = overview.ledger(published, targets)
    renderer.write(Path("discrepancies.html"), "discrepancies.html.j2", entries)
    renderer.write(
        Path("cost.html"), "cost.html.j2", overview.cost(workbench, published, own, landed)
    )
    # The start page is what the workflow waits for: it comes last.
    content = overview.start_page(workbench, published, targets, counts)
    return renderer.write(Path("index.html"), "index.html.j2", content)


def _write_methods(workbench: Workbench, published: Published, renderer: Renderer) -> None:
    """A page for each method, wrapper and server optimizer, and their list."""
    from fedrepro.cli.listing import describe_methods
    from fedrepro.methods import _registry as registry

    parts = registry.parts()
    described = describe_methods()
    used = overview.tables_of_parts(workbench, published)
    for facts in described:
        part = parts[facts["name"]]
        module = sys.modules[part.cls.__module__]
        source = part.file.read_text(encoding="utf-8")
        content = {
            "facts": facts,
            "paragraphs": (inspect.getdoc(module) or "").split("\n\n"),
            "comments": {
                name: overview.comment_on(source, name) for name in facts["hyperparameters"]
            },
            "source": source,
            "file": f"src/fedrepro/{part.file.relative_to(registry.METHODS.parent).as_posix()}"
            if part.file.is_relative_to(registry.METHODS.parent)
            else part.file.name,
            "uses": used.get(facts["name"], []),
        }
        renderer.write(Path("methods") / f"{facts['name']}.html", "method.html.j2", content)
    kinds = ("method", "wrapper", "server optimizer")
    groups = [(kind, [facts for facts in described if facts["kind"] == kind]) for kind in kinds]
    renderer.write(Path("methods/index.html"), "methods.html.j2", {"groups": groups, "used": used})
