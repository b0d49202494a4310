"""Heat maps: a number as a function of two hyperparameters."""

from fedrepro.config.figures import HeatMap
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import best_of, comparable
from fedrepro.report.drawing import charts
from fedrepro.report.pages.figures.base import Drawn, Panel, leaders, result_at, symbol
from fedrepro.support.printing import decimals_for, fixed, sentence_case


def draw(workbench: Workbench, target: FigureTarget, figure: HeatMap) -> Drawn:
    shown = iter(figure.shown(target.scale))
    figure = figure.at(target.scale)
    quantity = figure.metric.quantity
    unit = f", {quantity.unit}" if quantity.unit else ""
    titles = (symbol(figure.x.label), symbol(figure.y.label))
    drawn = Drawn(
        f"{sentence_case(quantity.words)}{unit}, mean over seeds; darker is more, and the best "
        "cell of a panel among those with every seed is framed.",
        ("Panel", titles[1], *(f"{titles[0]} {value}" for value in figure.x.values)),
    )
    for panel in figure.panels:
        results = [
            [result_at(workbench, target, next(shown), figure.summary) for _ in row]
            for row in panel.methods
        ]
        values = [[result.mean for result in row] for row in results]
        if all(value is None for row in values for value in row):
            continue
        decimals = decimals_for(value for row in values for value in row)
        x, y = ([str(value) for value in axis.values] for axis in (figure.x, figure.y))
        words = f"{panel.label}: {quantity.words} by {' and '.join(titles)}, in the table below."
        # Means over fewer seeds are not comparable.
        means = {
            (down, across): cell.mean
            for down, row in enumerate(results)
            for across, cell in enumerate(row)
            if cell.mean is not None and cell.n == len(target.seeds)
        }
        framed = best_of(means, quantity.higher_is_better)
        svg = charts.matrix(values, x=x, y=y, titles=titles, framed=framed, description=words)
        drawn.panels.append(Panel(panel.label, svg))
        named = {
            f"{titles[1]} {down}, {titles[0]} {across}": result
            for down, row in zip(y, results, strict=True)
            for across, result in zip(x, row, strict=True)
        }
        if said := leaders(
            [(panel.label, comparable(named))], quantity.higher_is_better, quantity.unit
        ):
            drawn.say(f"{panel.label}: {said}")
        for name, row in zip(y, values, strict=True):
            drawn.rows.append((panel.label, name, *(fixed(value, decimals) for value in row)))
    return drawn
