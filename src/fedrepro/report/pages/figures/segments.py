"""Segments: loss and error along the line through two models that a run kept."""

import math

from fedrepro.config.figures import Planes
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.drawing.curves import Line
from fedrepro.report.pages.figures.base import Drawn
from fedrepro.report.pages.figures.planes import HEADER, TITLES, numbers, sampled, views


def draw(workbench: Workbench, target: FigureTarget, figure: Planes) -> Drawn:
    analyses = views(workbench, target, figure)
    drawn = Drawn(
        "Loss and error of (1 - x) times the first model plus x times the second. Vertical "
        f"lines at 0 and 1 mark the two models. {sampled(analyses)}",
        (HEADER[0], HEADER[1], "At", "Off the line", *HEADER[4:]),
        rows=numbers(analyses),
    )
    for kind in figure.show:
        for label, analysis in analyses:
            points = [
                (at, value)
                for at, value in zip(analysis.x, analysis.heights(kind)[0], strict=True)
                if math.isfinite(value)
            ]
            if not points:
                continue
            first, second = (mark.name for mark in analysis.marks[:2])
            ends = analysis.of_marks(kind)
            top = max((value for at, value in points if 0 <= at <= 1), default=math.nan)
            rise = top - max(ends[:2])
            drawn.say(
                f"{label}: between the models, the {kind} rises to "
                f"{top:.3g}, {abs(rise):.2g} {'above' if rise > 0 else 'below'} the higher end."
            )
            words = f"{label}: {kind} {ends[0]:.3g} at {first}, {ends[1]:.3g} at {second}."
            unit = "%" if kind == "error" else ""
            line = Line(kind, points, begins=(0.0, 1.0))
            across = f"0: {first}, 1: {second}"
            drawn.add_lines(f"{label}: {TITLES[kind]}", [line], words, unit=unit, across=across)
    return drawn
