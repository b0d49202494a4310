"""Learning curves: a panel for each row, in it a curve for each column."""

from fedrepro.config.figures import Charts
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.measures import measure_of
from fedrepro.report.drawing import curves
from fedrepro.report.pages.figures.base import Drawn, distinct_rows, key_of, result_at
from fedrepro.report.pages.figures.panel import Panel, curves_of, description_of


def draw(workbench: Workbench, target: FigureTarget, figure: Charts) -> Drawn:
    drawn = Drawn(
        "After each evaluated round: the mean over seeds, the band from the lowest to the highest.",
        ("Panel", "Setting", "Method", "Last value"),
    )
    names = [column.label for column in figure.columns]
    for title, row, metric in distinct_rows(figure.rows, target, figure.metric):
        setting = row.setting_at(target.scale)
        measure, lines = measure_of(metric), []
        for column in figure.columns:
            methods = column.methods_at(target.scale)
            result = result_at(workbench, target, setting, methods, metric, figure.summary)
            line = curves.average(column.label, curves_of(workbench.root, result, measure))
            if line:
                lines.append(line)
                drawn.rows.append((title, setting, column.label, f"{line.points[-1][1]:.2f}"))
        if lines:
            words = description_of(row.label, lines, measure, setting)
            svg = curves.draw(lines, description=words, names=names, unit=measure.unit)
            drawn.panels.append(Panel(title, svg))
    drawn.key = key_of(names)
    return drawn
