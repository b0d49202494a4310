"""The page of a run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedrepro.config.tables import Metric
from fedrepro.report.cells.measures import Measure, measure_of
from fedrepro.report.drawing import curves
from fedrepro.report.pages.answers import CellUse, answers_of, headline
from fedrepro.report.pages.figures.panel import Panel, description_of
from fedrepro.report.pages.row_figures import HeatMap
from fedrepro.run.results import RunRecord

BY_PRODUCTS: tuple[Metric, ...] = ("accuracy", "loss")  # shown where no cell asks for them


def run_page(
    record: RunRecord,
    partition: HeatMap | None,
    uses: Sequence[Mapping[str, str]],
    cells: Sequence[CellUse],
) -> dict[str, Any]:
    """The content of a run's page: what cells take from it, its curves, its manifest, its cost.

    Args:
        uses: pages of tables and figures that need it.
        cells: those of tables.
    """
    manifest = record.manifest
    answers = answers_of(record, cells)
    composition = manifest.get("run", {}).get("composition", record.run.method)
    headlines = headline(answers)
    charts = [_chart(record, answer.measure) for answer in headlines]
    asked = {answer.measure.words for answer in headlines}
    others = [measure_of(metric) for metric in BY_PRODUCTS]
    by_products = [_chart(record, measure) for measure in others if measure.words not in asked]
    last = {name: values[-1] for name, values in record.rounds.items() if values}
    return {
        "record": record,
        "run": record.run,
        "answers": answers,
        "headlines": headlines,
        "methods": [part.partition("@")[0] for part in composition.split("+")],
        "charts": [panel for panel in charts if panel],
        "by_products": [panel for panel in by_products if panel],
        "last": last,
        "partition": partition,
        "uses": uses,
        "configuration": list(flatten(manifest.get("run", {}))),
        "environment": [
            *flatten({key: manifest.get(key) for key in ("executor", "device", "dtype")}),
            *flatten(manifest.get("hardware", {})),
            *((f"{name}, version", value) for name, value in flatten(manifest.get("packages", {}))),
        ],
        "files": list(manifest.get("files", {}).items()),
    }


def _chart(record: RunRecord, measure: Measure) -> Panel | None:
    """A measure's curve; None without one."""
    title = measure.words[0].upper() + measure.words[1:]
    line = curves.average(title, [measure.series(record)])
    if not line or len(line.points) < 2:
        return None
    description = description_of(title, [line], measure, record.run.setting)
    return Panel(title, curves.draw([line], description=description, unit=measure.unit))


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Nested keys as dotted ones."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        elif not isinstance(value, Mapping):
            yield name, value
