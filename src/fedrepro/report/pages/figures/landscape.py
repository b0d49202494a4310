"""Landscapes: the loss around the final models of runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrepro.config.figures import Landscape
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.drawing import planes
from fedrepro.report.drawing.planes import Grid, Mark
from fedrepro.report.pages.figures.base import Drawn, Panel
from fedrepro.run.derived_files import damaged, read_as


@dataclass(frozen=True)
class Surface:
    """An analysis: positions x and y, the loss [y][x] (None if not finite), directions in words."""

    x: list[float]
    y: list[float]
    loss: list[list[float | None]]
    directions: str

    @property
    def values(self) -> list[list[float]]:
        return [[math.inf if value is None else value for value in row] for row in self.loss]


def draw(workbench: Workbench, target: FigureTarget, figure: Landscape) -> Drawn:
    drawn = Drawn(
        "The loss of models around a run's final model, which is marked in the "
        "middle; darker is higher, on one logarithmic scale for all panels.",
        ("Method", "Directions", "Loss in the middle", "Least", "Greatest"),
    )
    setting = figure.demo if target.scale == "demo" and figure.demo else figure.setting
    surfaces = []
    for column in figure.columns:
        for method in column.methods_at(target.scale):
            (path,) = target.analyses_in(setting, method)
            if surface := _read_landscape(workbench.root, path):
                surfaces.append((column.label, surface))
    if not surfaces:
        return drawn
    shared = planes.range_of([surface.values for _, surface in surfaces], logarithmic=True)
    middles, greatest = {}, {}
    for label, surface in surfaces:
        x, y, loss = surface.x, surface.y, surface.values
        known = [value for row in loss for value in row if math.isfinite(value)]
        middle = loss[_nearest_to_zero(y)][_nearest_to_zero(x)]
        numbers = (middle, min(known), max(known))
        middles[label], greatest[label] = middle, numbers[2]
        words = f"{label}: loss {numbers[0]:.3g} in the middle, {numbers[1]:.3g} to "
        svg = planes.draw(
            Grid(x, y, loss),
            [Mark("", 0.0, 0.0, corner=True)],
            shared,
            title="loss",
            description=f"{words}{numbers[2]:.3g} around it.",
            titles=("first direction", "second direction"),
        )
        drawn.panels.append(Panel(label, svg))
        shown = (f"{value:.4g}" for value in numbers)
        drawn.rows.append((label, surface.directions, *shown))
    drawn.sees = _in_words(middles, greatest)
    return drawn


def _in_words(middles: Mapping[str, float], greatest: Mapping[str, float]) -> str:
    """The lowest middle, and how far the loss rises around the models."""
    low = min(middles, key=lambda name: middles[name])
    flat, steep = (extreme(greatest, key=lambda name: greatest[name]) for extreme in (min, max))
    sentence = f"The loss in the middle is least with {low}, {middles[low]:.3g}"
    if len(middles) > 1:
        high = max(middles, key=lambda name: middles[name])
        sentence += f", and greatest with {high}, {middles[high]:.3g}"
        sentence += f". Around it, the loss reaches {greatest[steep]:.3g} with {steep}"
        return f"{sentence} and no more than {greatest[flat]:.3g} with {flat}."
    return f"{sentence}; around it, the loss reaches {greatest[steep]:.3g}."


def _nearest_to_zero(values: Sequence[float]) -> int:
    return min(range(len(values)), key=lambda index: abs(values[index]))


def _read_landscape(root: Path, path: Path) -> Surface | None:
    """The file of an analysis; None without it."""
    surface = read_as(Surface, root, path)
    if surface is None:
        return None
    x, y = surface.x, surface.y
    if min(len(x), len(y)) < 2 or [len(row) for row in surface.loss] != [len(x)] * len(y):
        raise damaged(path, "expected a loss for every x and y")
    return surface
