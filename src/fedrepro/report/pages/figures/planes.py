"""Planes: loss and error on the plane through three models that a run kept."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrepro.config.figures import AtHeight, Planes, View
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.drawing import planes
from fedrepro.report.drawing.planes import Grid, Mark
from fedrepro.report.pages.figures.base import Drawn, Panel, leaders, titled
from fedrepro.run.derived_files import damaged, parsed, read_derived
from fedrepro.support.printing import sentence_case

TITLES: dict[AtHeight, str] = {"loss": "loss", "error": "error, %"}
CORNERS = 3


@dataclass(frozen=True)
class Model:
    """A marked model: its place, distance off the plane, loss and accuracy."""

    name: str
    x: float
    y: float | None
    away: float
    loss: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Through:
    """The result of ``fedrepro landscape --through``: [y][x] on a plane, one row along a line."""

    x: list[float]
    y: list[float]
    loss: list[list[float | None]]
    accuracy: list[list[float | None]]
    marks: list[Model]
    samples: int
    precision: str

    def heights(self, kind: AtHeight) -> list[list[float]]:
        surface = self.loss if kind == "loss" else self.accuracy
        return [[_height(value, kind) for value in row] for row in surface]

    def of_marks(self, kind: AtHeight) -> list[float]:
        """The marked models' loss or error."""
        return [
            _height(mark.loss if kind == "loss" else mark.accuracy, kind) for mark in self.marks
        ]


def draw(workbench: Workbench, target: FigureTarget, figure: Planes) -> Drawn:
    analyses = views(workbench, target, figure)
    drawn = Drawn(
        "Darker is higher; contours join models of equal value. All panels of a quantity "
        f"share one scale{', logarithmic for the loss' if 'loss' in figure.show else ''}. "
        "Both directions are unit vectors: distances are Euclidean, between parameters. A model "
        f"off the plane is marked at its projection. {sampled(analyses)}",
        HEADER,
        rows=numbers(analyses),
    )
    for kind in figure.show:
        if not analyses:
            break
        shared = planes.range_of([each.heights(kind) for _, each in analyses], kind == "loss")
        heights = []
        for label, each in analyses:
            values = each.heights(kind)
            marks = [
                Mark(_short(mark.name, each.marks), mark.x, mark.y or 0.0, place < CORNERS)
                for place, mark in enumerate(each.marks)
            ]
            at = [*zip(marks, each.of_marks(kind), strict=True)]
            heights.append((label, {mark.name: value for mark, value in at}))
            shown = ", ".join(f"{mark.name} {value:.3g}" for mark, value in at)
            svg = planes.draw(
                Grid(each.x, each.y, values),
                marks,
                shared,
                title=TITLES[kind],
                description=f"{label}, {kind}: {shown}.",
            )
            drawn.panels.append(Panel(f"{label}: {kind}", svg))
        if said := leaders(heights, higher_is_better=False, unit="%" if kind == "error" else ""):
            drawn.say(f"By {kind} of the marked models: {said}")
    return drawn


HEADER = ("Panel", "Model", "Distance from the first", "Off the plane", "Loss", "Error, %")


def views(workbench: Workbench, target: FigureTarget, figure: Planes) -> list[tuple[str, Through]]:
    """The panels whose analysis exists; panels of the same analysis are merged, with all labels."""
    grid, panels = figure.grid_at(target.scale), dict[Path, list[View]]()
    for view in figure.panels:
        part = view.part(target.scale, grid)
        (path,) = target.analyses_in(view.setting_at(target.scale), view.method, part)
        panels.setdefault(path, []).append(view)
    analyses = []
    for path, alike in panels.items():
        label = titled("; ".join(view.label for view in alike), alike[-1], target)
        each = _read(workbench.root, path, figure.kind)
        if each:
            analyses.append((label, each))
    return analyses


def sampled(analyses: Sequence[tuple[str, Through]]) -> str:
    """The sampling of an analysis, in words."""
    sizes = dict.fromkeys((len(each.x), each.samples, each.precision) for _, each in analyses)
    words = "; ".join(
        f"{points} points along an axis, {samples} test samples, {precision}"
        for points, samples, precision in sizes
    )
    return f"{sentence_case(words)}." if words else ""


def numbers(analyses: Sequence[tuple[str, Through]]) -> list[tuple[str, ...]]:
    """A row for every marked model."""
    rows: list[tuple[str, ...]] = []
    for label, each in analyses:
        errors, losses = each.of_marks("error"), each.of_marks("loss")
        for mark, loss, error in zip(each.marks, losses, errors, strict=True):
            away = math.hypot(mark.x, mark.y or 0.0)
            places = (f"{away:.3g}", f"{mark.away:.2g}" if mark.away > 1e-3 else "0")
            rows.append((label, mark.name, *places, f"{loss:.4g}", f"{error:.2f}"))
    return rows


def _short(name: str, marks: Sequence[Model]) -> str:
    """A model's name without its round; of several global models, the round."""
    kind, _, when = name.partition(", ")
    alike = [mark for mark in marks if mark.name.partition(", ")[0] == kind]
    return (when or kind) if len(alike) > 1 else kind


def _height(value: float | None, kind: AtHeight) -> float:
    if value is None:
        return math.inf
    return float(value) if kind == "loss" else 100 * (1 - float(value))


def _read(root: Path, path: Path, kind: str) -> Through | None:
    content = read_derived(root, path)
    if content is None:
        return None
    if kind == "segments":  # a line is a plane of one row
        content |= {name: [content.get(name)] for name in ("loss", "accuracy")} | {"y": [0.0]}
    through = parsed(Through, content, path)
    shape = [len(through.x)] * len(through.y)
    is_full = all([len(row) for row in rows] == shape for rows in (through.loss, through.accuracy))
    flat = kind == "planes" and any(mark.y is None for mark in through.marks)
    if not is_full or len(through.x) < 2 or flat:
        raise damaged(path, "expected a loss and an accuracy for every point")
    return through
