"""Mixtures: the scores of clients' interpolated models, by the weight between the two."""

import math

import numpy as np

from fedrepro.config.tables import Column
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.papers.superfed.kinds import Mixtures
from fedrepro.report.drawing.curves import Line
from fedrepro.report.pages.figures.base import Drawn, distinct_settings, from_to
from fedrepro.run.results import find_run


def draw(workbench: Workbench, target: FigureTarget, figure: Mixtures) -> Drawn:
    drawn = Drawn(
        "Accuracy of clients on their own test samples by the weight of the local model in "
        "the mixture: the mean over clients and seeds, with a band of one standard deviation over "
        "clients to either side.",
        ("Panel", "Setting", "Method", "At 0", "Best", "At weight", "At 1"),
        names=[column.label for column in figure.columns],
    )
    for label, setting in distinct_settings(figure.panels, target):
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
            drawn.say(
                f"{label}, {column.label}: best at weight {weight:.1f} "
                f"with {best:.2f} %, {best - ends[0]:.2f} above weight 0 and "
                f"{best - ends[3]:.2f} above 1."
            )
        if lines:
            words = from_to(lines, "from ")
            words = f"Accuracy in % by weight, {label}, setting {setting}: {words}."
            drawn.add_lines(label, lines, words, across="weight of the local model")
    return drawn


def _mixture(
    workbench: Workbench, target: FigureTarget, setting: str, column: Column
) -> Line | None:
    by_weight: dict[float, list[float]] = {}
    for method in column.methods_at(target.scale):
        for run in target.runs_in(setting, method):
            table = find_run(workbench.root, run).mixtures
            for weight, accuracy in zip(
                table.get("weight", ()), table.get("accuracy", ()), strict=True
            ):
                if math.isfinite(accuracy):  # a client without test samples has no accuracy
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
