"""Bars: a panel per row with a bar per column."""

from fedrepro.config.figures import Charts
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import Result, comparable
from fedrepro.report.drawing import charts
from fedrepro.report.drawing.charts import Bar
from fedrepro.report.drawing.summary_sentences import leaders_by_measure
from fedrepro.report.pages.figures.base import Drawn, in_figures, result_at, titled
from fedrepro.report.pages.figures.panel import Panel
from fedrepro.support.printing import decimals_for


def draw(workbench: Workbench, target: FigureTarget, figure: Charts) -> Drawn:
    drawn = Drawn(
        "Bars are means over seeds; thin lines span the lowest to the highest seed.",
        ("Panel", "Setting", "Method", "Mean", "Lowest", "Highest", "Seeds"),
    )
    means = []
    for row in figure.rows:
        metric, drawn_bars = row.metric or figure.metric, list[Bar]()
        results: dict[str, Result] = {}
        quantity = metric.quantity
        for column in figure.columns:
            setting = row.setting_for(column.label, target.scale, figure.column_settings)
            methods = column.methods_at(target.scale)
            result = result_at(workbench, target, setting, methods, metric, figure.summary)
            results[column.label] = result
            values = result.by_seed.values()
            if result.mean is not None:
                ends = min(values), max(values)
                drawn_bars.append(Bar(column.label, result.mean, *ends))
                numbers = in_figures((result.mean, *ends))
                drawn.rows.append((row.label, setting, column.label, *numbers, str(len(values))))
        if drawn_bars:
            decimals = decimals_for(bar.value for bar in drawn_bars)
            shown = "; ".join(f"{bar.name} {bar.value:.{decimals}f}" for bar in drawn_bars)
            words = f"{quantity.words} in {row.setting_at(target.scale)}: {shown}."
            unit = f", {quantity.unit}" if quantity.unit else ""
            svg = charts.bars(drawn_bars, description=words, decimals=decimals)
            means.append((row.label, comparable(results), quantity))
            drawn.panels.append(Panel(f"{titled(row.label, row, target)}{unit}", svg))
    drawn.sees = leaders_by_measure(means)
    return drawn
