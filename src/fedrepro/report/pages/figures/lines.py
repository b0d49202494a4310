"""Learning curves: a panel per row with a curve per column."""

from collections.abc import Sequence
from dataclasses import replace

from fedrepro.config.figures import Charts
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.methods.facts import late_wrapper_of
from fedrepro.report.cells.cell import Result, comparable
from fedrepro.report.drawing import curves
from fedrepro.report.pages.figures.base import (
    Drawn,
    curves_of,
    description_of,
    distinct_rows,
    in_figures,
    leaders_by_measure,
    results_in,
)


def draw(workbench: Workbench, target: FigureTarget, figure: Charts) -> Drawn:
    smooth = figure.smooth if figure.kind == "lines" else 1
    drawn = Drawn(
        "After each evaluated round: the mean over seeds; the band spans the lowest to the highest."
        if smooth < 2
        else f"The mean over the last {smooth} evaluated rounds; the thin line shows the rounds "
        "themselves; the mean over seeds.",
        ("Panel", "Setting", "Method", "Last value"),
        names=[column.label for column in figure.columns],
    )
    marked, ends = False, []
    for title, row, metric in distinct_rows(figure.rows, target, figure.metric):
        measure, lines, results = metric.quantity, [], dict[str, Result]()
        for shown, result in results_in(workbench, target, figure, row):
            line = curves.average(shown.label, curves_of(workbench.root, result, measure))
            results[shown.label] = result
            if line:
                full = f"{target.system}/{shown.setting}"
                begins = averaging_begins(workbench, full, shown.methods)
                marked |= bool(begins)
                lines.append(replace(curves.smoothed(line, smooth), begins=begins))
                last = in_figures([line.points[-1][1]])
                drawn.rows.append((title, shown.setting, shown.label, *last))
        if lines:
            words = description_of(row.label, lines, measure, row.setting_at(target.scale))
            drawn.add_lines(title, lines, words, unit=measure.unit, starts=True)
            means = comparable(results)
            at_end = {line.name: line.points[-1][1] for line in lines if line.name in means}
            ends.append((title, at_end, measure))
    drawn.sees = leaders_by_measure(ends, "At the end, by ")
    if marked:
        drawn.caption += (
            " A vertical line marks t_s, the round at which averaging of models begins."
        )
    return drawn


def averaging_begins(workbench: Workbench, setting: str, methods: Sequence[str]) -> list[float]:
    """The first rounds, from 1, of wrappers that start later than the method that they wrap."""
    rounds, begins = workbench.setting(setting).rounds, []
    for method in methods:
        composition, values = workbench.composition_of(workbench.setting(setting), method)
        wrapper = late_wrapper_of(composition, workbench.plugins)
        start = values.get(wrapper, {}).get("start")
        if isinstance(start, float):
            begins.append(int(start * rounds + 1e-9) + 1.0)
    return begins
