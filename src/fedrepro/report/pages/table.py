"""What the templates are given: each page's content as plain values."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrepro.config.tables import ClientStatistics, Metric
from fedrepro.config.targets import ComputedTarget, TableTarget
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.computed import ComputedCell
from fedrepro.report.cells.measures import measure_of
from fedrepro.report.drawing import curves as figures
from fedrepro.report.pages import row_figures as scenes
from fedrepro.report.papers.published import (
    KEYS,
    PrintedCell,
    Published,
    System,
    label_of,
    split_part,
)
from fedrepro.report.papers.verdict import COMPUTED_RULE, rule_in_words
from fedrepro.run.results import RunRecord

Json = Mapping[str, Any]


@dataclass(frozen=True)
class RowView:
    """A row of a table with its cells and figures."""

    label: str
    anchor: str
    metric: str
    unit: str
    setting: str
    demo: str | None
    cells: tuple[Json, ...]
    paper: scenes.Scene | None
    stand_in: scenes.Scene | None


def table_page(
    workbench: Workbench, target: TableTarget, table: Json, published: Published
) -> dict[str, Any]:
    """The content of a table's page, from its JSON and its runs."""
    columns = [column["label"] for column in table["columns"]]
    pairs = scenes.pairs_of(target)
    rows = []
    for index, row in enumerate(table["rows"]):
        cells = tuple(cell for cell in table["cells"] if cell["row"] == index)
        rows.append(
            RowView(
                row["label"],
                f"row-{index + 1}",
                row["metric"],
                row["unit"],
                row["setting"],
                row["demo"] if any(cell["demo"] for cell in cells) else None,
                cells,
                scenes.scene_of(workbench, target, cells, columns, pairs, "paper"),
                scenes.scene_of(workbench, target, cells, columns, pairs, "demo"),
            )
        )
    system = published.systems.get(target.system)
    key = (target.system, target.item)
    return {
        "table": table,
        "rows": rows,
        "columns": columns,
        "methods": _methods(workbench, target),
        "counts": _counts(table["cells"]),
        "rule": rule_in_words(system.spread) if system else (),
        "seeds": {scale: workbench.seeds(scale, target.system) for scale in SCALES},
        "stand_ins": sorted(
            {
                workbench.setting(row["demo"]).dataset
                for row in table["rows"]
                if row["demo"] and table["scale"] == "demo"
            }
        ),
        "doubts": [
            {"row": table["rows"][cell["row"]]["label"], "column": columns[cell["column"]]}
            | cell["printed"]
            for cell in table["cells"]
            if cell["printed"] and cell["printed"]["doubt"]
        ],
        **about(published, target.system, target.item, table["published_table"] or ""),
        "uncovered": len(published.tables.get(key, ())) - _counts(table["cells"])["printed"],
    }


def about(published: Published, system: str, item: str, table: str) -> dict[str, Any]:
    """What every page of a published table says about it."""
    return {
        "system": published.systems.get(system)
        or System.model_validate(
            {
                "system": system,
                "name": system,
                "title": system,
                "changes": "",
                "paper": "",
                "spread": {"over": "none", "source": "no paper"},
            }
        ),
        "item": item,
        "label": label_of(item, table),
        "caption": published.captions.get((system, item)),
        "notes": published.notes.get((system, split_part(item)[0]), ()),
        "discrepancies": published.discrepancies(system, item),
    }


def _counts(cells: Iterable[Json]) -> dict[str, int]:
    """Counts over cells; of columns that answer the same printed cell the first one counts."""
    cells = _answers(cells)
    words = [cell["verdict"]["word"] for cell in cells if cell["verdict"]]
    return {
        "printed": sum(cell["printed"] is not None for cell in cells),
        "computed": sum(cell["paper"]["n"] > 0 for cell in cells),
        "demo": sum(bool(cell["demo"] and cell["demo"]["n"]) for cell in cells),
        "cells": len(cells),
        "agree": words.count("agrees"),
        "differ": words.count("differs"),
        "not_comparable": words.count("not comparable"),
    }


def _answers(cells: Iterable[Json]) -> list[Json]:
    found: list[Json] = []
    seen = set()
    for cell in cells:
        name = cell["printed"] and tuple(cell["printed"][key] for key in KEYS)
        if name is None or name not in seen:
            found.append(cell)
        seen.add(name)
    return found


def _methods(workbench: Workbench, target: TableTarget) -> list[dict[str, Any]]:
    """Each column's parts, for links to the pages of methods."""
    setting = workbench.setting(target.cells[0].setting)
    found = []
    for column in target.table.columns:
        names = column.methods_at(target.scale)
        composition, _ = workbench.compose(setting, names[0])
        parts = [part.partition("@")[0] for part in composition.split("+")]
        found.append({"label": column.label, "parts": parts, "names": names})
    return found


def computed_page(
    cells: Sequence[ComputedCell], target: ComputedTarget, published: Published
) -> dict[str, Any]:
    """The content of the page of a table that needs no runs."""
    by_printed = {cell.printed: cell for cell in cells}
    printed = list(by_printed)
    grids = []
    if isinstance(target.spec, ClientStatistics):
        grids.append({"metric": "What clients hold", **_grid(printed, lambda cell: cell.metric)})
    else:
        for metric in dict.fromkeys(cell.metric for cell in printed):
            chosen = [cell for cell in printed if cell.metric == metric]
            grids.append({"metric": metric_in_words(metric), **_grid(chosen)})
    for grid in grids:
        grid["rows"] = [
            (key, {column: by_printed[cell] for column, cell in row.items()})
            for key, row in grid["rows"]
        ]
    words = [cell.verdict.word for cell in cells if cell.verdict]
    return {
        "title": target.spec.title,
        "grids": grids,
        "counts": {
            "printed": len(cells),
            "computed": len(words),
            "agree": words.count("agrees"),
            "differ": words.count("differs"),
        },
        "rule": COMPUTED_RULE,
        "doubted": [cell for cell in printed if cell.doubt],
        **about(published, target.system, target.item, printed[0].table if printed else ""),
    }


def metric_in_words(metric: str) -> str:
    return METRICS.get(metric, metric.replace("_", " "))


def printed_page(published: Published, system: str, item: str) -> dict[str, Any]:
    """The content of the page of a published table that no experiment file covers yet."""
    cells = published.tables[system, item]
    printed = cells[0].table if cells else item.removeprefix("table_")
    grids = []
    for metric in dict.fromkeys(cell.metric for cell in cells):
        chosen = [cell for cell in cells if cell.metric == metric]
        grids.append({"metric": metric_in_words(metric), **_grid(chosen)})
    words = published.words.get((system, item), ())
    return {
        "grids": grids,
        "words": words,
        "word_columns": list(dict.fromkeys(word.metric for word in words)),
        "word_rows": list(dict.fromkeys(word.setting for word in words)),
        "printed": len(cells),
        "doubted": [cell for cell in cells if cell.doubt],
        **about(published, system, item, printed),
    }


METRICS_OF_A_RUN: tuple[tuple[Metric, str], ...] = (
    ("accuracy", "Test accuracy"),
    ("loss", "Test loss"),
)
METRICS = {
    "acc1": "Top-1 accuracy, %",
    "acc5": "Top-5 accuracy, %",
    "ece": "Expected calibration error",
    "mce": "Maximum calibration error",
    "fid": "Fréchet inception distance",
    "avg": "Average over clients, %",
    "worst": "Worst client, %",
    "worst10": "Worst 10 % of clients, %",
    "best": "Best client, %",
    "best10": "Best 10 % of clients, %",
    "gini_x100": "Gini coefficient × 100",
    "accuracy_parity_gap": "Accuracy parity gap, points",
    "mean_last10_rounds_top1_accuracy_pct": "Accuracy, mean of the last ten rounds, %",
    "server_test_accuracy_pct": "Server model, test accuracy, %",
    "ensemble_test_accuracy_pct": "Ensemble, test accuracy, %",
    "ensemble_test_loss": "Ensemble, test loss",
    "rounds_to_target": "Rounds to the target accuracy",
    "acc_target_pct": "Target accuracy, %",
    "speedup_vs_FMA": "Speed-up over plain averaging",
    "cdf_response": "Response of the distribution function",
    "loss": "Loss",
    "num_parameters": "Parameters",
    "size_MB": "Size, MB",
}


def _grid(
    cells: Sequence[PrintedCell],
    column_of: Callable[[PrintedCell], str] = lambda cell: cell.method,
) -> dict[str, Any]:
    """Cells as rows of (data set, setting) and columns, by default of methods."""
    columns = list(dict.fromkeys(column_of(cell) for cell in cells))
    settings = {cell.setting: re.split(r"\s*[,;]\s*", cell.setting) for cell in cells}
    shared = [
        part
        for part in next(iter(settings.values()))
        if len(settings) > 1 and all(part in parts for parts in settings.values())
    ]
    rows: dict[tuple[str, str], dict[str, PrintedCell]] = {}
    for cell in cells:
        own = ", ".join(part for part in settings[cell.setting] if part not in shared)
        rows.setdefault((cell.dataset, own), {})[column_of(cell)] = cell
    return {"columns": columns, "rows": list(rows.items()), "shared": shared}


def run_page(
    record: RunRecord, partition: scenes.HeatMap | None, uses: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """The content of a run's page: its manifest, its curves, what it cost, who uses it."""
    manifest = record.manifest
    charts = []
    for metric, title in METRICS_OF_A_RUN:
        measure = measure_of(metric)
        line = figures.average(title, [measure.series(record)])
        if line:
            svg = figures.curves(
                [line],
                description=scenes.description_of(title, [line], measure, record.run.setting),
                unit=measure.unit,
            )
            charts.append(scenes.Panel(title, svg))
    last = {name: values[-1] for name, values in record.rounds.items() if values}
    return {
        "record": record,
        "run": record.run,
        "charts": charts,
        "last": last,
        "partition": partition,
        "uses": uses,
        "configuration": list(flatten(manifest.get("run", {}))),
        "environment": [
            *flatten({key: manifest.get(key) for key in ("executor", "device", "dtype")}),
            *flatten(manifest.get("hardware", {})),
            *((f"{name}, version", value) for name, value in flatten(manifest.get("packages", {}))),
        ],
        "files": list(manifest.get("files", {}).items()),
    }


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Nested keys as dotted ones."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        elif not isinstance(value, Mapping):
            yield name, value
