"""The site: static pages that open from disk, without network and without scripts."""

import inspect
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from fedrepro.config import Run, TableTarget, Workbench
from fedrepro.errors import UserError
from fedrepro.files import write_atomically
from fedrepro.report import coverage, pages
from fedrepro.report.published import Published, label_of
from fedrepro.report.runs import RunRecord, landed_runs, read_run
from fedrepro.report.tables import read

SITE = Path("reports/site")
TEMPLATES = Path("reports/templates")
MINUS = "\N{MINUS SIGN}"
THIN = "\N{NARROW NO-BREAK SPACE}"


class Renderer:
    """Fills the templates and writes pages."""

    def __init__(self, root: Path) -> None:
        self.root = root
        folder = root / TEMPLATES
        if not folder.is_dir():
            raise UserError(
                f"{TEMPLATES}: there is no such folder; expected the root of a checkout"
            )
        self.environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(folder),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        self.environment.filters |= {
            "number": number, "signed": signed, "whole": whole, "size": size, "span": span,
            "prose": prose, "svg": Markup, "plain": plain, "words": words,
        }  # fmt: skip

    def write(self, page: Path, template: str, content: Mapping[str, Any]) -> Path:
        """Render ``page``, relative to the site."""
        up = "../" * (len(page.parts) - 1)
        text = self.environment.get_template(template).render(
            up=up, page=page.as_posix(), **content
        )
        path = self.root / SITE / page
        with write_atomically(path) as temporary:
            temporary.write_text(text.strip() + "\n", encoding="utf-8")
        return SITE / page

    def write_assets(self) -> None:
        for source in sorted((self.root / TEMPLATES / "assets").iterdir()):
            with write_atomically(self.root / SITE / "assets" / source.name) as temporary:
                shutil.copyfile(source, temporary)


# --- pages --------------------------------------------------------------------------------------


def write_page(workbench: Workbench, target: TableTarget, published: Published) -> Path:
    """A table's page and the pages of its runs, from the table's JSON and the run directories."""
    renderer = Renderer(workbench.root)
    table = read(workbench.root, target.path)
    content = pages.table_page(workbench, target, table, published)
    renderer.write_assets()
    write_runs(workbench, renderer, runs_of(workbench.root, table))
    page = target.page.relative_to(SITE)
    return renderer.write(page, "table.html.j2", content)


def runs_of(root: Path, table: Mapping[str, Any]) -> list[RunRecord]:
    """Every run that a table's JSON links to."""
    found = {}
    for cell in table["cells"]:
        for result in (cell["paper"], cell["demo"]):
            for run in result["runs"] if result else ():
                if run["page"]:
                    name = Run(result["setting"], run["method"], run["seed"])
                    found[run["page"]] = read_run(root, name, landed=run["landed"])
    return list(found.values())


def write_runs(workbench: Workbench, renderer: Renderer, records: Iterable[RunRecord]) -> None:
    """A page for each run. The partition's picture is drawn once for all runs that share it."""
    drawn: dict[Path, pages.HeatMap | None] = {}
    for record in records:
        partition = None
        if record.run.setting in workbench.settings:
            path = workbench.setting(record.run.setting).partition_path(record.run.seed)
            path = path.with_suffix(".json")
            if path not in drawn:
                there = (workbench.root / path).exists()
                drawn[path] = pages.draw_partition(workbench.root, path) if there else None
            partition = drawn[path]
        renderer.write(record.page, "run.html.j2", pages.run_page(record, partition))


def write_site(workbench: Workbench, published: Published, scale: str | None = None) -> Path:
    """Everything that is not a table's: start page, methods, ledger, cost, uncovered tables."""
    renderer = Renderer(workbench.root)
    renderer.write_assets()
    targets = workbench.tables(scale)
    counts = coverage.count(workbench, published)
    for system, item in published.tables:
        if (system, item) not in targets:
            content = pages.printed_page(published, system, item)
            renderer.write(Path(system, f"{item}.html"), "printed.html.j2", content)
    landed = landed_runs(workbench.root)
    write_runs(workbench, renderer, landed)
    _write_methods(workbench, renderer)
    renderer.write(Path("discrepancies.html"), "discrepancies.html.j2", _ledger(published))
    renderer.write(Path("cost.html"), "cost.html.j2", _cost(workbench, landed))
    # The start page is what the workflow waits for: it comes last.
    content = _index(workbench, published, targets, counts)
    return renderer.write(Path("index.html"), "index.html.j2", content)


def _index(
    workbench: Workbench,
    published: Published,
    targets: Mapping[tuple[str, str], TableTarget],
    counts: Mapping[tuple[str, str], Counter[str]],
) -> dict[str, Any]:
    systems = []
    keys = [*published.tables, *(key for key in targets if key not in published.tables)]
    for name, system in published.systems.items():
        tables = []
        for key in keys:
            if key[0] == name:
                tables.append(_table_state(workbench, published, targets.get(key), key, counts))
        whole = sum((counts.get(key, Counter()) for key in keys if key[0] == name), Counter())
        systems.append({"about": system, "tables": tables, "counts": whole})
    everything = sum(counts.values(), Counter())
    own = [
        _table_state(workbench, published, target, key, counts)
        for key, target in targets.items()
        if key[0] not in published.systems
    ]
    scale = next(iter(targets.values())).scale if targets else workbench.config.scale
    return {"systems": systems, "own": own, "counts": everything, "scale": scale}


def _table_state(
    workbench: Workbench,
    published: Published,
    target: TableTarget | None,
    key: tuple[str, str],
    counts: Mapping[tuple[str, str], Counter[str]],
) -> dict[str, Any]:
    cells = published.tables.get(key, ())
    caption = published.captions.get(key)
    printed = cells[0].table if cells else key[1].removeprefix("table_")
    demo = None
    if target and target.scale == "demo" and (workbench.root / target.path).exists():
        results = [cell["demo"] for cell in read(workbench.root, target.path)["cells"]]
        there = [result for result in results if result]
        demo = {"run": sum(result["n"] > 0 for result in there), "cells": len(there)}
    title = caption.title if caption else (target.table.title if target else "")
    return {
        "label": label_of(key[1], printed if key in published.tables else ""),
        "title": title,
        "page": f"{key[0]}/{key[1]}.html",
        "covered": target is not None,
        "counts": counts.get(key, Counter()),
        "doubted": sum(bool(cell.doubt) for cell in cells),
        "demo": demo,
    }


def _ledger(published: Published) -> dict[str, Any]:
    groups = []
    for name, system in published.systems.items():
        entries = [entry for entry in published.ledger if entry.system == name]
        groups.append({"about": system, "entries": entries})
    return {"groups": groups, "total": len(published.ledger), "label_of": _label_in(published)}


def _label_in(published: Published) -> Any:
    tables = {key: cells[0].table for key, cells in published.tables.items() if cells}

    def label(system: str, item: str) -> str:
        return label_of(item, tables.get((system, item), ""))

    return label


def _cost(workbench: Workbench, landed: Iterable[RunRecord]) -> dict[str, Any]:
    """What runs took, measured by themselves; per table and per setting and method."""
    records: dict[Path, RunRecord] = {}
    tables = []
    for scale in ("paper", "demo"):
        for target in workbench.tables(scale).values():
            here = [read_run(workbench.root, run) for run in target.runs]
            here = [record for record in here if record.timing]
            records |= {record.folder: record for record in here}
            if here:
                tables.append({"target": target, "scale": scale, **_sum(here), "runs": len(here),
                               "wanted": len(target.runs)})  # fmt: skip
    reference = [record for record in landed if record.timing]
    groups: dict[tuple[str, str, bool], list[RunRecord]] = {}
    for record in [*reference, *records.values()]:
        groups.setdefault((record.run.setting, record.run.method, record.landed), []).append(record)
    rows = [
        {"setting": setting, "method": method, "landed": is_landed, "records": group, **_sum(group)}
        for (setting, method, is_landed), group in groups.items()
    ]
    return {
        "tables": tables,
        "rows": rows,
        "reference": _sum(reference) | {"runs": len(reference)} if reference else None,
    }


def _sum(records: list[RunRecord]) -> dict[str, Any]:
    gpu = [record for record in records if str(record.manifest.get("device", ""))[:4] == "cuda"]
    return {
        "wall": sum(float(record.timing.get("wall_seconds", 0)) for record in records),
        "cpu": sum(float(record.timing.get("cpu_seconds", 0)) for record in records),
        "gpu": sum(float(record.timing.get("wall_seconds", 0)) for record in gpu),
        "memory": max(float(record.timing.get("peak_memory_bytes", 0)) for record in records),
        "speed": sum(float(record.timing.get("rounds_per_second", 0)) for record in records)
        / len(records),
        "devices": sorted({str(record.manifest.get("device", "unknown")) for record in records}),
    }


def _write_methods(workbench: Workbench, renderer: Renderer) -> None:
    """A page for each method, wrapper and server optimizer, and their list."""
    from fedrepro import registry
    from fedrepro.commands.listing import describe_methods

    parts = registry.parts()
    described = describe_methods()
    used = _uses(workbench)
    for facts in described:
        part = parts[facts["name"]]
        module = sys.modules[part.cls.__module__]
        source = part.file.read_text(encoding="utf-8")
        content = {
            "facts": facts,
            "paragraphs": (inspect.getdoc(module) or "").split("\n\n"),
            "comments": {name: _comment(source, name) for name in facts["hyperparameters"]},
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


def _comment(source: str, field: str) -> str:
    """The comment behind a hyperparameter's line: its meaning, or its symbol in the paper."""
    found = re.search(rf"^    {re.escape(field)}\s*:[^#\n]*#\s*(.+)$", source, re.MULTILINE)
    return found[1].strip() if found else ""


def _uses(workbench: Workbench) -> dict[str, list[dict[str, str]]]:
    """Part -> the tables that have it in a column."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for (system, item), target in workbench.tables("paper").items():
        printed = target.table.published.table if target.table.published else ""
        use = {
            "page": f"{system}/{item}.html",
            "label": f"{system.upper() if len(system) < 4 else system}, {label_of(item, printed)}",
            "title": target.table.title,
        }
        for cell in target.cells:
            for method in cell.methods:
                composition, _ = workbench.compose(workbench.setting(cell.setting), method)
                for part in composition.split("+"):
                    found.setdefault(part.partition("@")[0], {})[use["page"]] = use
    return {part: list(uses.values()) for part, uses in found.items()}


# --- how values are written ---------------------------------------------------------------------


def number(value: float | None, decimals: int = 2) -> str:
    """A value with its decimals, or a dash."""
    return "–" if value is None else f"{value:.{decimals}f}".replace("-", MINUS)


def signed(value: float | None, decimals: int = 2) -> str:
    """A difference with its sign."""
    return "–" if value is None else f"{value:+.{decimals}f}".replace("-", MINUS)


def whole(value: float) -> str:
    """A count with its thousands apart."""
    return f"{round(value):,}".replace(",", THIN)


def size(value: float) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g}{THIN}{unit}"
        value /= 1000
    return f"{value:.3g}{THIN}TB"


def span(seconds: float) -> str:
    """A duration in the two units that matter."""
    if seconds < 100:
        return f"{seconds:.3g}{THIN}s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{seconds / 60:.3g}{THIN}min"
    return f"{seconds / 3600:.3g}{THIN}h"


def plain(value: object) -> str:
    """A configuration's value as the YAML files write it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def words(name: str) -> str:
    """A key such as update_norm as words."""
    return name.replace("_", " ")


def prose(text: str) -> Markup:
    """A paragraph with ``code`` and `code` marked up."""
    return Markup(re.sub(r"`{1,2}([^`]+)`{1,2}", r"<code>\1</code>", str(escape(text))))
