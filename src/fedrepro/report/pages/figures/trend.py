"""Trends: a measure as a function of one quantity, a line per method."""

from fedrepro.config.figures import Shown, Trend
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import Result, comparable
from fedrepro.report.drawing.curves import Line
from fedrepro.report.pages.figures.base import (
    Drawn,
    from_to,
    in_figures,
    leaders,
    mean_and_ends,
    result_at,
    symbol,
)
from fedrepro.support.printing import counted, sentence_case

Point = tuple[float, tuple[float, float, float]]  # place, and mean, lowest and highest seed


def draw(workbench: Workbench, target: FigureTarget, figure: Trend) -> Drawn:
    quantity = figure.metric.quantity
    seeds = len(target.seeds)
    several = "the mean over seeds; the band spans lowest to highest"
    spread = several if seeds > 1 else "a single seed"
    drawn = Drawn(
        f"{sentence_case(quantity.words)} over the rounds of the table's summary: {spread}.",
        ("Panel", "Value", "Setting", "Method", "Mean", "Lowest", "Highest", "Seeds"),
        names=figure.lines,
    )
    results: dict[str, dict[str, Result]] = {}
    settings = [one.setting_at(target.scale) for panel in figure.panels for one in panel.points]
    if left_out := settings.count(None):
        of = counted(len(settings), "point")
        drawn.caption += f" Left out: {left_out} of {of}, which have no small setting."
    for panel in figure.panels:
        points_of: dict[str, list[Point]] = {name: [] for name in figure.lines}
        for point in panel.points:
            setting = point.setting_at(target.scale)
            if setting is None:
                continue
            for name, method in zip(figure.lines, point.methods, strict=True):
                shown = Shown(name, figure.metric, setting, (method,))
                result = result_at(workbench, target, shown, figure.summary)
                numbers = mean_and_ends(result)
                if numbers is None:
                    continue
                points_of[name].append((point.at, numbers))
                results.setdefault(f"{panel.label}, {point.at:g}", {})[name] = result
                cells = (*in_figures(numbers), str(result.n))
                drawn.rows.append((panel.label, f"{point.at:g}", setting, method, *cells))
        lines = [_line(name, sorted(points), seeds) for name, points in points_of.items() if points]
        if lines:
            words = f"{quantity.words} by {panel.x}, {panel.label}: {from_to(lines)}."
            across = symbol(panel.x)
            drawn.add_lines(panel.label, lines, words, unit=quantity.unit, across=across)
    means = [(place, comparable(those)) for place, those in results.items()]
    drawn.sees = leaders(means, quantity.higher_is_better, quantity.unit)
    return drawn


def _line(name: str, points: list[Point], seeds: int) -> Line:
    means = [(at, values[0]) for at, values in points]
    if seeds < 2:
        return Line(name, means)
    return Line(name, means, [each[1] for _, each in points], [each[2] for _, each in points])
