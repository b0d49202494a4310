"""The page of a run."""

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from fedrepro.config.metrics import ACCURACY, OfRounds
from fedrepro.measures import registry
from fedrepro.measures.base import Measure, Quantity
from fedrepro.provenance.arithmetic import of_manifest
from fedrepro.provenance.identity import flatten
from fedrepro.report.drawing import curves
from fedrepro.report.pages.answers import CellUse, answers_of, headline
from fedrepro.report.pages.figures.base import Panel, panel_of
from fedrepro.report.pages.run_charts import charts_of
from fedrepro.report.pages.run_files import commits_of
from fedrepro.report.pages.sample_sheets import sheets_of
from fedrepro.run.results import RunRecord
from fedrepro.support.names import Composition
from fedrepro.support.plugins import NONE, Folders
from fedrepro.support.printing import sentence_case

# Shown if no cell uses any.
BY_PRODUCTS = (ACCURACY, *(OfRounds(name=name) for name in ("loss", "mae", "r2", "auroc")))
# Columns of rounds.parquet that the page shows as one number, and prefixes of scores of models,
# which are drawn if a cell uses them.
SCORES = ("test_", "client_", "validation_")


def run_page(
    record: RunRecord,
    partition: SimpleNamespace | None,
    uses: Sequence[Mapping[str, str]],
    cells: Sequence[CellUse],
    given: Mapping[str, RunRecord],
    files: Sequence[SimpleNamespace] = (),
    folders: Folders = NONE,
) -> dict[str, Any]:
    """The content of a run's page: numbers that cells use, curves, manifest, cost.

    Args:
        uses: pages of the tables and figures that need it.
        cells: the table cells that use it.
        given: the runs that it took as inputs, by requirement.
        files: those that the page links to.
        folders: the folders of plug-in measures.
    """
    manifest = record.manifest
    answers = answers_of(record, cells)
    composition = manifest.get("run", {}).get("composition", record.run.method)
    headlines = headline(answers)
    drawn = {answer.use.metric.quantity.words for answer in headlines}
    quantities = (metric.quantity for metric in BY_PRODUCTS)
    by_products = [
        _chart(record, quantity) for quantity in quantities if quantity.words not in drawn
    ]
    # A run without a classifier has a column without numbers.
    charts = charts_of(record, [answer.use for answer in headlines])
    last = {
        name: values[-1]
        for name, values in record.rounds.items()
        if any(map(math.isfinite, values))
    }
    return {
        "record": record,
        "answers": answers,
        "headlines": headlines,
        "methods": list(Composition.parse(composition).names),
        "charts": charts,
        "once": not charts and any(_known_once(record, answer) for answer in headlines),
        "by_products": [panel for panel in by_products if panel],
        "further": _further(record, folders),
        "words": [
            (title_of(name, folders), measure.about)
            for name in record.rounds
            if (measure := _recorded(name, folders)) and measure.about
        ],
        "sheets": sheets_of(record),
        "last": last,
        "partition": partition,
        "uses": uses,
        "given": given,
        "configuration": list(flatten(manifest.get("run", {}))),
        "environment": [
            ("arithmetic", of_manifest(manifest)),
            *flatten({key: manifest.get(key) for key in ("executor", "device", "dtype")}),
            *flatten(manifest.get("hardware", {})),
            *((f"{name}, version", value) for name, value in flatten(manifest.get("packages", {}))),
        ],
        "commits": commits_of(manifest),
        "files": files,
    }


def _known_once(record: RunRecord, answer: SimpleNamespace) -> bool:
    """Return True if a number that cells take is known for one round only: it has no curve."""
    metric = answer.use.metric.curve.at_mix("fixed")
    return not metric.quantity.of_a_run and len(metric.quantity.series(record)) == 1


def _chart(record: RunRecord, quantity: Quantity) -> Panel | None:
    """The curve of a measure that no cell uses, or None."""
    title = sentence_case(quantity.words)
    line = curves.average(title, [quantity.series(record)])
    if not line or len(line.points) < 2:
        return None
    return panel_of(title, [line], quantity, record.run.setting)


def _further(record: RunRecord, folders: Folders) -> list[Panel]:
    """A chart of everything that the method itself recorded in evaluated rounds."""
    charts = []
    for name, values in record.rounds.items():
        if name in registry.NOT_SCORES or name.startswith(SCORES):
            continue
        title, measure = title_of(name, folders), _recorded(name, folders)
        unit, factor = (measure.unit, measure.factor) if measure else ("", 1.0)
        points = [(at, factor * y) for at, y in zip(record.rounds["round"], values, strict=True)]
        line = curves.average(title, [points])
        if line:
            end = f"{line.points[-1][1]:.4g}{f' {unit}' if unit else ''}"
            words = f"{title} by round, setting {record.run.setting}: it ends at {end}."
            charts.append(Panel(title, curves.draw([line], description=words, unit=unit)))
    return charts


def title_of(column: str, folders: Folders) -> str:
    """The title of a column of rounds.parquet: the measure's words, or the column's name."""
    measure = _recorded(column, folders)
    if measure is None:
        return sentence_case(column.replace("_", " "))
    return measure.title or sentence_case(measure.words)


def _recorded(column: str, folders: Folders) -> Measure | None:
    """The measure in a column of rounds.parquet."""
    measure = registry.find(column, "round", folders=folders)
    return measure if measure and measure.column == column else None
