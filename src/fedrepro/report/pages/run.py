"""The page of a run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedrepro.config.tables import Metric
from fedrepro.report.cells.measures import measure_of
from fedrepro.report.drawing import curves
from fedrepro.report.pages.figures.panel import Panel, description_of
from fedrepro.report.pages.row_figures import HeatMap
from fedrepro.run.results import RunRecord

METRICS_OF_A_RUN: tuple[tuple[Metric, str], ...] = (
    ("accuracy", "Test accuracy"),
    ("loss", "Test loss"),
)


def run_page(
    record: RunRecord, partition: HeatMap | None, uses: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """The content of a run's page: its manifest, its curves, what it cost, who uses it."""
    manifest = record.manifest
    charts = []
    for metric, title in METRICS_OF_A_RUN:
        measure = measure_of(metric)
        line = curves.average(title, [measure.series(record)])
        if line:
            svg = curves.draw(
                [line],
                description=description_of(title, [line], measure, record.run.setting),
                unit=measure.unit,
            )
            charts.append(Panel(title, svg))
    last = {name: values[-1] for name, values in record.rounds.items() if values}
    return {
        "record": record,
        "run": record.run,
        "charts": charts,
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


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Nested keys as dotted ones."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        elif not isinstance(value, Mapping):
            yield name, value
