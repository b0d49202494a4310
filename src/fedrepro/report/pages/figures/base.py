"""The result of drawing a figure, and code that several kinds share."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from fedrepro.config.metrics import Metric
from fedrepro.config.tables import Place, Row, Summary
from fedrepro.config.targets import FigureTarget, RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import Result
from fedrepro.report.cells.tables import result_of
from fedrepro.report.drawing.style import Style, style_of
from fedrepro.report.pages.figures.panel import Panel
from fedrepro.support.grouping import grouped
from fedrepro.support.numbers import fixed
from fedrepro.support.printing import decimals_for


@dataclass
class Drawn:
    """A figure.

    Attributes:
        caption: what the figure shows.
        sees: what one sees, in a sentence with comparable numbers; "" without numbers.
        key: the lines' names and styles, if the panels share them.
        header, rows: the numbers behind it.
    """

    caption: str
    header: tuple[str, ...]
    panels: list[Panel] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)
    key: tuple[tuple[str, Style], ...] = ()
    sees: str = ""

    def say(self, sentence: str) -> None:
        """Add a sentence to what one sees."""
        self.sees = f"{self.sees} {sentence}".lstrip()


def result_at(
    workbench: Workbench,
    target: FigureTarget,
    setting: str,
    methods: Sequence[str],
    metric: Metric,
    summary: Summary,
) -> Result:
    """The number of the best method in a setting at the figure's scale."""
    full = f"{target.system}/{setting}"
    runs = {name: [RunKey(full, name, seed) for seed in target.seeds] for name in methods}
    return result_of(workbench, full, runs, metric.quantity, summary)


def in_figures(values: Collection[float | None]) -> list[str]:
    """Numbers of a row of a figure's table, with the decimals that suit them."""
    decimals = decimals_for(values)
    return [fixed(value, decimals) for value in values]


def distinct_settings(places: Iterable[Place], target: FigureTarget) -> list[tuple[str, str]]:
    """(label, setting) of each panel; settings with the same demo setting share one panel."""
    groups = grouped(places, lambda place: place.setting_at(target.scale))
    return [
        (titled(", ".join(place.label for place in here), here[-1], target), setting)
        for setting, here in groups.items()
    ]


def distinct_rows(
    rows: Sequence[Row], target: FigureTarget, metric: Metric
) -> list[tuple[str, Row, Metric]]:
    """Title, row and metric of each panel; rows with the same demo setting share one panel.

    Args:
        metric: of rows that name none.
    """
    groups = grouped(rows, lambda row: (row.setting_at(target.scale), repr(row.metric or metric)))
    return [
        (
            titled("; ".join(row.label for row in here), here[0], target),
            here[0],
            here[0].metric or metric,
        )
        for here in groups.values()
    ]


def titled(label: str, place: Place, target: FigureTarget) -> str:
    """A panel's title; at scale demo it names the demo setting, to avoid confusion."""
    stands_in = target.scale == "demo" and place.demo
    return f"{label} ({place.demo})" if stands_in else label


def symbol(name: str) -> str:
    """The symbol of a quantity whose name an experiment file spells out."""
    return {"alpha": "α", "lambda": "λ", "mu": "μ", "nu": "ν"}.get(name, name)


def key_of(names: Sequence[str]) -> tuple[tuple[str, Style], ...]:
    """The names of a chart's lines with their styles."""
    return tuple((name, style_of(number)) for number, name in enumerate(names))
