"""Panels, the result of drawing a figure, its summary, and code that kinds and pages share."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrepro.config.figures import Charts, Shown
from fedrepro.config.metrics import Metric
from fedrepro.config.tables import Place, Row, Summary
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.measures.base import Quantity
from fedrepro.report.cells.cell import Result
from fedrepro.report.cells.tables import result_of
from fedrepro.report.drawing import curves
from fedrepro.report.drawing.curves import Line, Points
from fedrepro.report.drawing.style import Style, style_of
from fedrepro.run.derived_files import damaged, read_derived
from fedrepro.run.results import read_run
from fedrepro.support.grouping import grouped
from fedrepro.support.printing import decimals_for, fixed

Values = Mapping[str, float]


@dataclass(frozen=True)
class Panel:
    """One small figure among several of a row."""

    title: str
    svg: str


@dataclass
class Drawn:
    """A figure.

    Attributes:
        caption: what the figure shows.
        sees: what one sees, in a sentence with comparable numbers; "" without numbers.
        header, rows: the numbers behind it.
        names: of the lines of all panels, in the order of their styles.
    """

    caption: str
    header: tuple[str, ...]
    panels: list[Panel] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)
    names: Sequence[str] = ()
    sees: str = ""

    @property
    def key(self) -> tuple[tuple[str, Style], ...]:
        """The lines' names and styles, if the panels share them."""
        return key_of(self.names)

    def add_lines(
        self, title: str, lines: Sequence[Line], description: str, **options: Any
    ) -> None:
        """Add a panel with lines; ``options`` are those of :func:`curves.draw`."""
        svg = curves.draw(lines, description=description, names=self.names, **options)
        self.panels.append(Panel(title, svg))

    def say(self, sentence: str) -> None:
        """Add a sentence to what one sees."""
        self.sees = f"{self.sees} {sentence}".lstrip()


def result_at(workbench: Workbench, target: FigureTarget, shown: Shown, summary: Summary) -> Result:
    """A number that a figure shows, over the seeds of its scale."""
    full = f"{target.system}/{shown.setting}"
    runs = {name: target.runs_in(shown.setting, name) for name in shown.methods}
    return result_of(workbench, full, runs, shown.metric.quantity, summary)


def results_in(
    workbench: Workbench, target: FigureTarget, figure: Charts, row: Row
) -> Iterator[tuple[Shown, Result]]:
    """Yields for each column of a row the cell that it shows, and its result."""
    metric = row.metric or figure.metric
    for column in figure.columns:
        setting = row.setting_for(column.label, target.scale, figure.column_settings)
        shown = Shown(column.label, metric, setting, column.methods_at(target.scale))
        yield shown, result_at(workbench, target, shown, figure.summary)


def mean_and_ends(result: Result) -> tuple[float, float, float] | None:
    """A mean over seeds, and the lowest and the highest seed; None without a number."""
    values = result.by_seed.values()
    return None if result.mean is None else (result.mean, min(values), max(values))


def with_study(
    drawn: Drawn, root: Path, study: Path | None, add: Callable[[Drawn, Any], None]
) -> Drawn:
    """A figure with what ``add`` takes from a study's file; as it is without the file.

    Raises:
        UserError: if the file is damaged.
    """
    assert study is not None
    try:
        if (content := read_derived(root, study)) is not None:
            add(drawn, content)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise damaged(study, error) from None
    return drawn


def from_to(lines: Iterable[Line], word: str = "") -> str:
    """Where each line begins and ends, after its name and a word."""
    ends = [(line.name, line.points[0][1], line.points[-1][1]) for line in lines]
    decimals = decimals_for(value for _, *values in ends for value in values)
    return "; ".join(
        f"{name} {word}{fixed(first, decimals)} to {fixed(last, decimals)}"
        for name, first, last in ends
    )


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


def curves_of(root: Path, result: Result | None, quantity: Quantity) -> list[Points]:
    """The series of each finished run of the chosen method."""
    if result is None:
        return []
    return [
        quantity.series(read_run(root, result.run_of(run), reference=run.reference))
        for run in result.runs_of_the_chosen
        if run.state == "finished"
    ]


def panel_of(
    title: str, lines: Sequence[Line], quantity: Quantity, setting: str, **options: Any
) -> Panel:
    """Learning curves as a panel; ``options`` are those of :func:`curves.draw`."""
    words = description_of(title, lines, quantity, setting)
    return Panel(title, curves.draw(lines, description=words, unit=quantity.unit, **options))


def description_of(title: str, lines: Sequence[Line], quantity: Quantity, setting: str) -> str:
    decimals = decimals_for(line.points[-1][1] for line in lines)
    ends = "; ".join(
        f"{line.name} ends at {fixed(line.points[-1][1], decimals)} {quantity.unit}".rstrip()
        for line in lines
    )
    return f"Test {quantity.words} by round, {title}, setting {setting}: {ends}."


def leaders(places: Sequence[tuple[str, Values]], higher_is_better: bool, unit: str = "") -> str:
    """Which line or bar is best, and how clearly; "" with nothing to compare.

    Args:
        places: the name of each panel or point, and the value of each of its lines or bars.
        higher_is_better: whether more is better.
        unit: of the values, or "".
    """
    ordered = [
        (place, sorted(values.items(), key=lambda item: -item[1] if higher_is_better else item[1]))
        for place, values in places
        if len(values) > 1
    ]
    if not ordered:
        return ""
    if len(ordered) == 1:
        (_, order), *_ = ordered
        (best, high), (last, low) = order[0], order[-1]
        if high == low:
            return f"All {len(order)} have {_with(high, unit)}."
        return f"{best} is best with {_with(high, unit)}, {last} last with {_with(low, unit)}."
    wins = Counter(" and ".join(_equal(order)) for _, order in ordered)
    listed = ", ".join(f"{name} in {count}" for name, count in wins.most_common())
    place, order = max(ordered, key=lambda item: _lead(item[1]))
    points = "points" if unit == "%" else unit
    clearest = f"the clearest lead is {order[0][0]}'s in {place}, {_with(_lead(order), points)}"
    return f"Of {len(ordered)} comparisons, the best is {listed}; {clearest}."


def leaders_by_measure(places: Sequence[tuple[str, Values, Quantity]], before: str = "By ") -> str:
    """:func:`leaders` for each measure of the panels, after its name."""
    sentences = []
    for measure in {quantity.words: quantity for _, _, quantity in places}.values():
        of_it = [(name, values) for name, values, each in places if each.words == measure.words]
        if said := leaders(of_it, measure.higher_is_better, measure.unit):
            sentences.append(f"{before}{measure.words}: {said}")
    return " ".join(sentences)


def _equal(order: Sequence[tuple[str, float]]) -> list[str]:
    return [name for name, value in order if value == order[0][1]]


def _lead(order: Sequence[tuple[str, float]]) -> float:
    return abs(order[0][1] - order[1][1])


def _with(value: float, unit: str) -> str:
    number = f"{value:.2f}" if 0.1 <= abs(value) < 1e5 or value == 0 else f"{value:.3g}"
    return f"{number} {unit}".rstrip()
