"""What the templates are given: each page's content as plain values."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrepro.config import Run, TableTarget, Workbench
from fedrepro.errors import UserError
from fedrepro.report import figures
from fedrepro.report.figures import Line, Points, Style
from fedrepro.report.published import PrintedCell, Published, System, label_of
from fedrepro.report.runs import RunRecord, read_run
from fedrepro.report.tables import COLUMN, FACTOR, UNIT
from fedrepro.report.verdict import rule_in_words

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Panel:
    """One small figure among several of a row."""

    title: str
    svg: str


@dataclass(frozen=True)
class Curves:
    """All learning curves of a row: panels that share axes and a key."""

    panels: tuple[Panel, ...]
    key: tuple[tuple[str, Style], ...]
    seeds: int
    levels: bool


@dataclass(frozen=True)
class HeatMap:
    """How samples are shared out in a setting."""

    svg: str
    partition: str
    seed: int
    summary: str
    most: int


@dataclass(frozen=True)
class Scene:
    """The figures of a row at one scale."""

    setting: str
    curves: Curves | None
    heat_map: HeatMap | None


@dataclass(frozen=True)
class RowView:
    """A row of a table with its cells and figures."""

    label: str
    anchor: str
    setting: str
    demo: str | None
    cells: tuple[Json, ...]
    paper: Scene | None
    stand_in: Scene | None


def table_page(
    workbench: Workbench, target: TableTarget, table: Json, published: Published
) -> dict[str, Any]:
    """The content of a table's page, from its JSON and its runs."""
    columns = [column["label"] for column in table["columns"]]
    pairs = _pairs(target)
    rows = []
    for index, row in enumerate(table["rows"]):
        cells = tuple(cell for cell in table["cells"] if cell["row"] == index)
        rows.append(
            RowView(
                row["label"],
                f"row-{index + 1}",
                row["setting"],
                row["demo"] if any(cell["demo"] for cell in cells) else None,
                cells,
                _scene(workbench, target, cells, columns, pairs, "paper"),
                _scene(workbench, target, cells, columns, pairs, "demo"),
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
        "seeds": {"demo": workbench.seeds("demo"), "paper": workbench.seeds("paper")},
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
        "notes": published.notes.get((system, item), ()),
        "discrepancies": published.discrepancies(system, item),
    }


def _counts(cells: Iterable[Json]) -> dict[str, int]:
    cells = list(cells)
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


# --- figures ------------------------------------------------------------------------------------


def _pairs(target: TableTarget) -> list[list[tuple[int, str]]]:
    """Which columns share a panel: a method and the same method in a wrapper.

    Returns:
        For each panel (column, name of the line); the first is the plain method.
    """
    names = [column.methods_at("paper") for column in target.table.columns]
    plain = {methods: index for index, methods in enumerate(names)}
    wrapped: dict[int, list[tuple[int, str]]] = {}
    for index, methods in enumerate(names):
        heads = {method.partition("+")[0] for method in methods}
        rests = tuple(method.partition("+")[2] for method in methods)
        if len(heads) == 1 and rests in plain:
            wrapper = heads.pop()
            name = f"with {wrapper.upper() if len(wrapper) < 5 else wrapper}"
            wrapped.setdefault(plain[rests], []).append((index, name))
    if wrapped:
        taken = {index for pairs in wrapped.values() for index, _ in pairs}
        return [
            [(index, "alone"), *wrapped.get(index, [])]
            for index in range(len(names))
            if index not in taken
        ]
    labels = [column.label for column in target.table.columns]
    if len(labels) == 1:
        return [[(0, labels[0])]]
    return [[(0, labels[0]), (index, "this method")] for index in range(1, len(labels))]


def _scene(
    workbench: Workbench,
    target: TableTarget,
    cells: Sequence[Json],
    columns: Sequence[str],
    pairs: Sequence[Sequence[tuple[int, str]]],
    scale: str,
) -> Scene | None:
    """A row's figures; None where nothing was run at this scale."""
    results = {cell["column"]: cell[scale] for cell in cells if cell[scale]}
    if not any(run["page"] for result in results.values() for run in result["runs"]):
        return None
    setting = next(iter(results.values()))["setting"]
    metric = target.table.metric
    panels: list[tuple[str, list[Line]]] = []
    seeds = 0
    for pair in pairs:
        lines = []
        for column, name in pair:
            runs = _curves_of(workbench.root, results.get(column), metric)
            seeds = max(seeds, len(runs))
            printed = next((cell["printed"] for cell in cells if cell["column"] == column), None)
            level = printed["mean"] if printed and scale == "paper" else None
            line = figures.average(name, runs, level) if runs else None
            if line:
                lines.append(line)
        if lines:
            panels.append((columns[_titled(pair)], lines))
    names = list(dict.fromkeys(name for pair in pairs for _, name in pair))
    limits = figures.bounds([lines for _, lines in panels]) if metric == "accuracy" else None
    drawn = tuple(
        Panel(
            title,
            figures.curves(
                lines,
                description=_description(title, lines, metric, setting),
                names=names,
                limits=limits,
                unit=UNIT[metric],
            ),
        )
        for title, lines in panels
    )
    key = tuple((name, figures.style(number)) for number, name in enumerate(names))
    levels = any(line.level is not None for _, lines in panels for line in lines)
    curves = Curves(drawn, key, seeds, levels) if drawn else None
    return Scene(setting, curves, _heat_map(workbench, setting, results))


def _titled(pair: Sequence[tuple[int, str]]) -> int:
    """The column that names a panel: the plain method, or the one held against the first."""
    return pair[0][0] if pair[0][1] == "alone" else pair[-1][0]


def _curves_of(root: Path, result: Json | None, metric: str) -> list[Points]:
    if not result or not result["chosen"]:
        return []
    found = []
    for run in result["runs"]:
        if run["method"] == result["chosen"] and run["state"] == "finished":
            name = Run(result["setting"], run["method"], run["seed"])
            found.append(points_of(read_run(root, name, landed=run["landed"]), metric))
    return found


def points_of(record: RunRecord, metric: str) -> Points:
    """(round, value in printed units) of a run."""
    rounds = record.rounds.get("round", [])
    values = record.rounds.get(COLUMN[metric], [])
    return [(number, FACTOR[metric] * value) for number, value in zip(rounds, values, strict=False)]


def _description(title: str, lines: Sequence[Line], metric: str, setting: str) -> str:
    ends = "; ".join(
        f"{line.name} ends at {line.points[-1][1]:.2f} {UNIT[metric]}".rstrip() for line in lines
    )
    return f"Test {metric} by round, {title}, setting {setting}: {ends}."


def _heat_map(workbench: Workbench, setting: str, results: Mapping[int, Json]) -> HeatMap | None:
    """The partition of the first seed that was run, if its histogram is there."""
    runs = (run for result in results.values() for run in result["runs"])
    seeds = sorted({run["seed"] for run in runs if run["page"]})
    for seed in seeds:
        path = workbench.setting(setting).partition_path(seed).with_suffix(".json")
        if (workbench.root / path).exists():
            return draw_partition(workbench.root, path)
    return None


def draw_partition(root: Path, path: Path) -> HeatMap:
    """A partition's histogram as a picture and a sentence.

    Raises:
        UserError: when the file is damaged.
    """
    try:
        histogram = json.loads((root / path).read_text(encoding="utf-8"))
        counts: list[list[int]] = histogram["train"]
        sizes = [sum(row) for row in counts]
        held = [sum(count > 0 for count in row) for row in counts]
        name, seed = str(histogram["name"]), int(histogram["seed"])
        classes = len(counts[0])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise UserError(f"{path}: damaged: {error}") from None
    spread = _span(min(sizes), max(sizes))
    summary = (
        f"{len(counts)} clients hold {spread} training samples each (median "
        f"{statistics.median(sizes):.0f}), of {_span(min(held), max(held))} of {classes} classes."
    )
    svg = figures.heat_map(counts, description=f"Samples of each class at each client. {summary}")
    return HeatMap(svg, name, seed, summary, max(max(row) for row in counts))


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


# --- other pages --------------------------------------------------------------------------------


def printed_page(published: Published, system: str, item: str) -> dict[str, Any]:
    """The content of the page of a published table that no experiment file covers yet."""
    cells = published.tables[system, item]
    printed = cells[0].table if cells else item.removeprefix("table_")
    grids = []
    for metric in dict.fromkeys(cell.metric for cell in cells):
        chosen = [cell for cell in cells if cell.metric == metric]
        grids.append({"metric": METRICS.get(metric, metric.replace("_", " ")), **_grid(chosen)})
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


def _grid(cells: Sequence[PrintedCell]) -> dict[str, Any]:
    """Cells as rows of (data set, setting) and columns of methods."""
    methods = list(dict.fromkeys(cell.method for cell in cells))
    rows: dict[tuple[str, str], dict[str, PrintedCell]] = {}
    for cell in cells:
        rows.setdefault((cell.dataset, cell.setting), {})[cell.method] = cell
    return {"methods": methods, "rows": list(rows.items())}


def run_page(record: RunRecord, partition: HeatMap | None) -> dict[str, Any]:
    """The content of a run's page: its manifest, its curves, what it cost."""
    manifest = record.manifest
    charts = []
    for metric, title in (("accuracy", "Test accuracy"), ("loss", "Test loss")):
        line = figures.average(title, [points_of(record, metric)])
        if line:
            svg = figures.curves(
                [line],
                description=_description(title, [line], metric, record.run.setting),
                unit=UNIT[metric],
            )
            charts.append(Panel(title, svg))
    last = {name: values[-1] for name, values in record.rounds.items() if values}
    return {
        "record": record,
        "run": record.run,
        "charts": charts,
        "last": last,
        "partition": partition,
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
