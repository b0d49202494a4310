"""Bars: a panel per row with a bar per column."""

from fedrepro.config.figures import Charts
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import Result, comparable
from fedrepro.report.drawing import charts
from fedrepro.report.drawing.charts import Bar
from fedrepro.report.pages.figures.base import (
    Drawn,
    Panel,
    in_figures,
    leaders_by_measure,
    mean_and_ends,
    results_in,
    titled,
)
from fedrepro.support.printing import decimals_for


def draw(workbench: Workbench, target: FigureTarget, figure: Charts) -> Drawn:
    drawn = Drawn(
        "Bars are means over seeds; thin lines span the lowest to the highest seed.",
        ("Panel", "Setting", "Method", "Mean", "Lowest", "Highest", "Seeds"),
    )
    means = []
    for row in figure.rows:
        quantity, drawn_bars = (row.metric or figure.metric).quantity, list[Bar]()
        results: dict[str, Result] = {}
        for shown, result in results_in(workbench, target, figure, row):
            results[shown.label] = result
            if numbers := mean_and_ends(result):
                drawn_bars.append(Bar(shown.label, *numbers))
                cells = (*in_figures(numbers), str(result.n))
                drawn.rows.append((row.label, shown.setting, shown.label, *cells))
        if drawn_bars:
            decimals = decimals_for(bar.value for bar in drawn_bars)
            listed = "; ".join(f"{bar.name} {bar.value:.{decimals}f}" for bar in drawn_bars)
            words = f"{quantity.words} in {row.setting_at(target.scale)}: {listed}."
            unit = f", {quantity.unit}" if quantity.unit else ""
            svg = charts.bars(drawn_bars, description=words, decimals=decimals)
            means.append((row.label, comparable(results), quantity))
            drawn.panels.append(Panel(f"{titled(row.label, row, target)}{unit}", svg))
    drawn.sees = leaders_by_measure(means)
    return drawn
