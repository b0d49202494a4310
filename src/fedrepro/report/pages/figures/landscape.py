"""Landscapes: the loss around the final models of runs."""

import math
from collections.abc import Sequence
from pathlib import Path

from fedrepro.config.figures import Landscape
from fedrepro.config.targets import FigureTarget, RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.report.drawing import planes
from fedrepro.report.drawing.planes import Mark
from fedrepro.report.pages.figures.base import Drawn, damaged
from fedrepro.report.pages.figures.panel import Panel
from fedrepro.run.made import read_made


def draw(workbench: Workbench, target: FigureTarget, figure: Landscape) -> Drawn:
    drawn = Drawn(
        "The loss of models around a run's final model, which is marked in the "
        "middle; darker is higher, on a logarithmic scale per panel.",
        ("Method", "Directions", "Loss in the middle", "Least", "Greatest"),
    )
    setting = figure.demo if target.scale == "demo" and figure.demo else figure.setting
    for column in figure.columns:
        for method in column.methods_at(target.scale):
            run = RunKey(f"{target.system}/{setting}", method, target.seeds[0])
            found = _read_landscape(workbench.root, run.analysis("landscapes"))
            if found is None:
                continue
            x, y, loss, directions = found
            known = [value for row in loss for value in row if math.isfinite(value)]
            middle = loss[_nearest_to_zero(y)][_nearest_to_zero(x)]
            numbers = (middle, min(known), max(known))
            words = f"{column.label}: loss {numbers[0]:.3g} in the middle, {numbers[1]:.3g} to "
            svg = planes.draw(
                x,
                y,
                loss,
                [Mark("", 0.0, 0.0, corner=True)],
                planes.range_of([loss], logarithmic=True),
                title="loss",
                description=f"{words}{numbers[2]:.3g} around it.",
                titles=("first direction", "second direction"),
            )
            drawn.panels.append(Panel(column.label, svg))
            shown = (f"{value:.4g}" for value in numbers)
            drawn.rows.append((column.label, directions, *shown))
    return drawn


def _nearest_to_zero(values: Sequence[float]) -> int:
    return min(range(len(values)), key=lambda index: abs(values[index]))


def _read_landscape(
    root: Path, path: Path
) -> tuple[list[float], list[float], list[list[float]], str] | None:
    """Positions x and y, the loss [y][x], and the directions in words; None without an analysis."""
    found = read_made(root, path)
    if found is None:
        return None
    try:
        x, y = ([float(value) for value in found[name]] for name in ("x", "y"))
        loss = [
            [math.inf if value is None else float(value) for value in row] for row in found["loss"]
        ]
        directions = str(found["directions"])
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from None
    if min(len(x), len(y)) < 2 or [len(row) for row in loss] != [len(x)] * len(y):
        raise damaged(path, "expected a loss for every x and y")
    return x, y, loss, directions
