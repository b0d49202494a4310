"""What the page of a figure is given: drawn panels, a key, and their numbers as a table."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.config.figures import Charts, HeatMap, Landscape, Mixtures, Regret
from fedrepro.config.tables import Column, Metric, Place, Summary
from fedrepro.config.targets import FigureTarget, Run
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.measures import measure_of
from fedrepro.report.cells.tables import find_run, result_of
from fedrepro.report.drawing import charts
from fedrepro.report.drawing import curves as figures
from fedrepro.report.drawing.charts import Bar
from fedrepro.report.drawing.curves import Line, Points, Style
from fedrepro.report.pages import row_figures as scenes
from fedrepro.report.pages import table as pages
from fedrepro.report.pages.row_figures import Panel
from fedrepro.report.papers.published import Published
from fedrepro.run.results import RunRecord
from fedrepro.support.errors import UserError


@dataclass
class Drawn:
    """A figure.

    Attributes:
        caption: what is to be seen.
        key: the lines' names and styles, if panels share them.
        header, rows: the numbers behind it.
    """

    caption: str
    header: tuple[str, ...]
    panels: list[Panel] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)
    key: tuple[tuple[str, Style], ...] = ()


def figure_page(workbench: Workbench, target: FigureTarget, published: Published) -> dict[str, Any]:
    """The content of a figure's page, from its runs. Runs that are missing are holes.

    Raises:
        UserError: when a file of a run is damaged.
    """
    figure = target.figure
    match figure:
        case Charts(kind="bars"):
            drawn = _bars(workbench, target, figure)
        case Charts():
            drawn = _lines(workbench, target, figure)
        case Regret():
            drawn = _regret(workbench, target, figure)
        case HeatMap():
            drawn = _heat_map(workbench, target, figure)
        case Mixtures():
            drawn = _mixtures(workbench, target, figure)
        case Landscape():
            drawn = _landscape(workbench, target, figure)
    records = [find_run(workbench.root, run) for run in target.runs]
    return {
        "title": figure.title,
        "drawn": drawn,
        "scale": target.scale,
        "seeds": {scale: workbench.seeds(scale, target.system) for scale in SCALES},
        "records": [record for record in records if record.manifest],
        "holes": _holes(records),
        **pages.about(published, target.system, target.item, ""),
    }


def _holes(records: Iterable[RunRecord]) -> list[dict[str, str]]:
    """Runs without a result, and why."""
    return [
        {"name": f"{record.run.setting} {record.run.method}, seed {record.run.seed}",
         "why": record.why}
        for record in records
        if record.state != "finished"
    ]  # fmt: skip


def _result(
    workbench: Workbench,
    target: FigureTarget,
    setting: str,
    methods: Sequence[str],
    metric: Metric,
    summary: Summary,
) -> dict[str, Any]:
    full = f"{target.system}/{setting}"
    runs = {name: [Run(full, name, seed) for seed in target.seeds] for name in methods}
    return result_of(workbench, full, runs, measure_of(metric), summary)


def _values(result: Mapping[str, Any]) -> list[float]:
    """Those of the method that counts, one a seed."""
    return [
        run["value"]
        for run in result["runs"]
        if run["method"] == result["chosen"] and run["value"] is not None
    ]


def _distinct(places: Iterable[Place], target: FigureTarget) -> list[tuple[str, str]]:
    """(label, setting) of each panel; of places with the same stand-in one with all labels."""
    found: dict[str, list[Place]] = {}
    for place in places:
        found.setdefault(place.setting_at(target.scale), []).append(place)
    return [
        (_titled(", ".join(place.label for place in here), here[-1], target), setting)
        for setting, here in found.items()
    ]


def _bars(workbench: Workbench, target: FigureTarget, figure: Charts) -> Drawn:
    drawn = Drawn(
        "The bars are means over seeds, the thin lines go from the lowest to the highest seed.",
        ("Panel", "Setting", "Method", "Mean", "Lowest", "Highest", "Seeds"),
    )
    for row in figure.rows:
        metric, setting = row.metric or figure.metric, row.setting_at(target.scale)
        measure, found = measure_of(metric), []
        for column in figure.columns:
            methods = column.methods_at(target.scale)
            result = _result(workbench, target, setting, methods, metric, figure.summary)
            values = _values(result)
            if values:
                found.append(Bar(column.label, result["mean"], min(values), max(values)))
                numbers = (f"{value:.2f}" for value in (result["mean"], min(values), max(values)))
                drawn.rows.append((row.label, setting, column.label, *numbers, str(len(values))))
        if found:
            ends = "; ".join(f"{bar.name} {bar.value:.2f}" for bar in found)
            words = f"{measure.words} in {setting}: {ends}."
            unit = f", {measure.unit}" if measure.unit else ""
            svg = charts.bars(found, description=words)
            drawn.panels.append(Panel(f"{_titled(row.label, row, target)}{unit}", svg))
    return drawn


def _titled(label: str, place: Place, target: FigureTarget) -> str:
    """A panel's title; that of a stand-in names it, lest it be taken for what it stands for."""
    stands_in = target.scale == "demo" and place.demo
    return f"{label} ({place.demo})" if stands_in else label


def _lines(workbench: Workbench, target: FigureTarget, figure: Charts) -> Drawn:
    drawn = Drawn(
        "After each evaluated round: the mean over seeds, the band from the lowest to the highest.",
        ("Panel", "Setting", "Method", "Last value"),
    )
    names = [column.label for column in figure.columns]
    for row in figure.rows:
        metric, setting = row.metric or figure.metric, row.setting_at(target.scale)
        measure, lines = measure_of(metric), []
        for column in figure.columns:
            methods = column.methods_at(target.scale)
            result = _result(workbench, target, setting, methods, metric, figure.summary)
            line = figures.average(column.label, scenes.curves_of(workbench.root, result, measure))
            if line:
                lines.append(line)
                drawn.rows.append((row.label, setting, column.label, f"{line.points[-1][1]:.2f}"))
        if lines:
            words = scenes.description_of(row.label, lines, measure, setting)
            svg = figures.curves(lines, description=words, names=names, unit=measure.unit)
            drawn.panels.append(Panel(_titled(row.label, row, target), svg))
    drawn.key = _key(names)
    return drawn


def _key(names: Sequence[str]) -> tuple[tuple[str, Style], ...]:
    return tuple((name, figures.style(number)) for number, name in enumerate(names))


def _regret(workbench: Workbench, target: FigureTarget, figure: Regret) -> Drawn:
    from fedrepro.analysis.regret_of_run import regret_of

    names = ("cumulative regret", "bound")
    drawn = Drawn(
        "What the decisions of all rounds so far have cost more than the best fixed one, beside "
        "the bound that the theorem gives for that many rounds. Where clients are sampled, it is "
        "the regret of the linearised decision losses. The band goes from the lowest to the "
        "highest seed.",
        ("Setting", "Clients", "Rounds", "Regret", "Bound", "Rounds above the bound"),
        key=_key(names),
    )
    for label, setting in _distinct(figure.panels, target):
        runs = (Run(f"{target.system}/{setting}", figure.method, seed) for seed in target.seeds)
        records = [find_run(workbench.root, run) for run in runs]
        tables = [
            found.rounds
            for record in records
            if record.state == "finished" and (found := regret_of(record))
        ]
        curves: list[list[Points]] = [
            [list(zip(table["round"], table[name], strict=True)) for table in tables]
            for name in ("regret", "bound")
        ]
        lines = [
            line
            for name, points in zip(names, curves, strict=True)
            if points and (line := figures.average(name, points))
        ]
        if not lines:
            continue
        ends = [line.points[-1][1] for line in lines]
        above = sum(int((table["regret"] > table["bound"]).sum()) for table in tables)
        clients = max(int(record.manifest.get("clients", 0)) for record in records)
        shown = ", ".join(f"{name} {end:.3g}" for name, end in zip(names, ends, strict=False))
        words = f"{label}, setting {setting}: after the last round {shown}."
        svg = figures.curves(lines, description=words, names=names, unit="")
        drawn.panels.append(Panel(f"{label}, {clients} clients", svg))
        last = f"{lines[0].points[-1][0]:.0f}"
        numbers = [f"{end:.4g}" for end in ends] + [""] * (2 - len(ends))
        drawn.rows.append((setting, str(clients), last, *numbers, str(above)))
    return drawn


def _heat_map(workbench: Workbench, target: FigureTarget, figure: HeatMap) -> Drawn:
    figure = figure.at(target.scale)
    measure = measure_of(figure.metric)
    unit = f", {measure.unit}" if measure.unit else ""
    drawn = Drawn(
        f"{measure.words.capitalize()}{unit}, mean over seeds; darker is more, the best cell of a "
        "panel is framed.",
        ("Panel", figure.y.label, *(f"{figure.x.label} {value}" for value in figure.x.values)),
    )
    setting = figure.demo if target.scale == "demo" and figure.demo else figure.setting
    for panel in figure.panels:
        values = [
            [
                _result(workbench, target, setting, (name,), figure.metric, figure.summary)["mean"]
                for name in row
            ]
            for row in panel.methods
        ]
        if all(value is None for row in values for value in row):
            continue
        titles = (figure.x.label, figure.y.label)
        x, y = ([str(value) for value in axis.values] for axis in (figure.x, figure.y))
        words = f"{panel.label}: {measure.words} by {' and '.join(titles)}, in the table below."
        svg = charts.matrix(
            values, x=x, y=y, titles=titles, rising=measure.rising, description=words
        )
        drawn.panels.append(Panel(panel.label, svg))
        for name, row in zip(y, values, strict=True):
            cells = ("–" if value is None else f"{value:.2f}" for value in row)
            drawn.rows.append((panel.label, name, *cells))
    return drawn


def _mixtures(workbench: Workbench, target: FigureTarget, figure: Mixtures) -> Drawn:
    names = [column.label for column in figure.columns]
    drawn = Drawn(
        "Accuracy of the clients on their own test samples by the weight of the local model in "
        "the mixture: the mean over clients and seeds, the band one standard deviation over "
        "clients to either side.",
        ("Panel", "Setting", "Method", "At 0", "Best", "At weight", "At 1"),
        key=_key(names),
    )
    for label, setting in _distinct(figure.panels, target):
        lines = []
        for column in figure.columns:
            line = _mixture(workbench, target, setting, column)
            if line is None:
                continue
            lines.append(line)
            weight, best = max(line.points, key=lambda point: point[1])
            ends = (line.points[0][1], best, weight, line.points[-1][1])
            shown = (f"{value:.{1 if number == 2 else 2}f}" for number, value in enumerate(ends))
            drawn.rows.append((label, setting, column.label, *shown))
        if lines:
            words = "; ".join(
                f"{line.name} from {line.points[0][1]:.2f} to {line.points[-1][1]:.2f}"
                for line in lines
            )
            svg = figures.curves(
                lines,
                description=f"Accuracy in % by weight, {label}, setting {setting}: {words}.",
                names=names,
                across="weight of the local model",
            )
            drawn.panels.append(Panel(label, svg))
    return drawn


def _mixture(
    workbench: Workbench, target: FigureTarget, setting: str, column: Column
) -> Line | None:
    by_weight: dict[float, list[float]] = {}
    for method in column.methods_at(target.scale):
        for seed in target.seeds:
            run = Run(f"{target.system}/{setting}", method, seed)
            table = find_run(workbench.root, run).mixtures
            for weight, accuracy in zip(
                table.get("weight", ()), table.get("accuracy", ()), strict=True
            ):
                if math.isfinite(accuracy):  # a client without test samples has none
                    by_weight.setdefault(round(weight, 6), []).append(100 * accuracy)
    if not by_weight:
        return None
    weights = sorted(by_weight)
    means = [float(np.mean(by_weight[weight])) for weight in weights]
    spreads = [float(np.std(by_weight[weight])) for weight in weights]
    return Line(
        column.label,
        list(zip(weights, means, strict=True)),
        [max(mean - std, 0.0) for mean, std in zip(means, spreads, strict=True)],
        [min(mean + std, 100.0) for mean, std in zip(means, spreads, strict=True)],
    )


def _landscape(workbench: Workbench, target: FigureTarget, figure: Landscape) -> Drawn:
    drawn = Drawn(
        "The loss of the models around the one that a run ended with, which is marked in the "
        "middle; darker is higher, on a logarithmic scale that each panel has for itself.",
        ("Method", "Directions", "Loss in the middle", "Least", "Greatest"),
    )
    setting = figure.demo if target.scale == "demo" and figure.demo else figure.setting
    for column in figure.columns:
        for method in column.methods_at(target.scale):
            run = Run(f"{target.system}/{setting}", method, target.seeds[0])
            found = _read_landscape(workbench.root, run.landscape)
            if found is None:
                continue
            x, y, loss, directions = found
            known = [value for row in loss for value in row if math.isfinite(value)]
            middle = loss[_nearest_to_zero(y)][_nearest_to_zero(x)]
            numbers = (middle, min(known), max(known))
            words = f"{column.label}: loss {numbers[0]:.3g} in the middle, {numbers[1]:.3g} to "
            svg = charts.landscape(x, y, loss, description=f"{words}{numbers[2]:.3g} around it.")
            drawn.panels.append(Panel(column.label, svg))
            shown = (f"{value:.4g}" for value in numbers)
            drawn.rows.append((column.label, directions, *shown))
    return drawn


def _nearest_to_zero(values: Sequence[float]) -> int:
    return min(range(len(values)), key=lambda index: abs(values[index]))


def _read_landscape(
    root: Path, path: Path
) -> tuple[list[float], list[float], list[list[float]], str] | None:
    """Positions x and y, the loss [y][x], and what the directions are; None if it is not there."""
    try:
        found = json.loads((root / path).read_text(encoding="utf-8"))
        x, y = ([float(value) for value in found[name]] for name in ("x", "y"))
        loss = [
            [math.inf if value is None else float(value) for value in row] for row in found["loss"]
        ]
        directions = str(found["directions"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: damaged: {error}; delete it and make it again") from None
    if min(len(x), len(y)) < 2 or [len(row) for row in loss] != [len(x)] * len(y):
        raise UserError(f"{path}: damaged: expected a loss for every x and y")
    return x, y, loss, directions
