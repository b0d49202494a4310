"""The page of a run: its numbers, curves, and images; and the runs that are inputs of others.

The latter have pages and costs, too, although no table names them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from fedrepro.config.metrics import ACCURACY, OfRounds
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.settings import ArtifactFromRun
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.measures import registry
from fedrepro.measures.base import Measure, Quantity
from fedrepro.provenance.arithmetic import of_manifest
from fedrepro.provenance.identity import flatten
from fedrepro.report.drawing import curves, sheet
from fedrepro.report.drawing.sheet import training_images
from fedrepro.report.pages.answers import CellUse, answers_of, has_mixtures, headline
from fedrepro.report.pages.figures.base import Panel, description_of, key_of, panel_of
from fedrepro.report.pages.run_files import commits_of
from fedrepro.run.results import RunRecord, find_run
from fedrepro.support.grouping import grouped
from fedrepro.support.names import Composition
from fedrepro.support.plugins import NONE, Folders
from fedrepro.support.printing import sentence_case

# Shown if no cell uses any.
BY_PRODUCTS = (ACCURACY, *(OfRounds(name=name) for name in ("loss", "mae", "r2", "auroc")))
# Columns of rounds.parquet that the page shows as one number, and prefixes of scores of models,
# which are drawn if a cell uses them.
SCORES = ("test_", "client_", "validation_")

DESK, PHONE = (900, 280), (260, 190)  # pixels of the plot, without its margins
REFERENCE = "fedavg"

SHEETS = 6  # over time; more would make the page too large
SHOWN, WIDE = 16, 4  # per round, in rows of this length
LAST, LAST_WIDE = 64, 8
CLASSES = 8  # of training images beside them, the first ones


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


def beside(record: RunRecord) -> list[RunRecord]:
    """The finished runs to compare with: the method without its wrapper, and FedAvg."""
    run = record.run
    names = dict.fromkeys((run.method.partition("+")[2], REFERENCE))
    wanted = (name for name in names if name not in ("", run.method))
    records = (find_run(record.root, RunKey(run.setting, name, run.seed)) for name in wanted)
    return [record for record in records if record.state == "finished"]


def charts_of(record: RunRecord, uses: Sequence[CellUse]) -> list[SimpleNamespace]:
    """A chart for each measure that cells take from a run, if it has a curve."""
    groups = grouped(uses, lambda use: use.metric.curve.at_mix("fixed").quantity.words)
    others = beside(record)
    charts = (_chart_of(record, others, group) for group in groups.values())
    return [chart for chart in charts if chart]


def _chart_of(
    record: RunRecord, others: Sequence[RunRecord], uses: Sequence[CellUse]
) -> SimpleNamespace | None:
    """The curve of a number that cells take, for wide and narrow windows; None without two points.

    Where cells take mixtures of clients' models that were chosen after the last round, the curve is
    at the method's own mixture, and each of these numbers is a mark at the end.
    """
    first, rounds, name = uses[0], uses[0].summary.rounds, record.run.method
    metric = first.metric.curve.at_mix("fixed")
    mixed = {
        each.metric.quantity.mixture: curves.average(
            f"{name}, {each.metric.quantity.mixture}", [each.metric.quantity.series(record)]
        )
        for each in uses
        if each.metric.quantity.mixture and has_mixtures(record)
    }
    own = curves.average(
        f"{name}, at its own mixture" if mixed else name, [metric.quantity.series(record)]
    )
    if own is None or len(own.points) < 2:
        return None
    notes = []
    if mixed:
        notes.append(
            "Mixtures were chosen once, after the last round: a mark there is a number that cells "
            "take. The curve is at the method's own mixture."
        )
    lines = [curves.smoothed(own, rounds), *filter(None, mixed.values())]
    drawn = (curves.average(run.run.method, [metric.quantity.series(run)]) for run in others)
    lines += [curves.smoothed(line, rounds) for line in drawn if line and len(line.points) > 1]
    if any(line.raw for line in lines):
        notes.append(
            f"Thick lines are means of the last {rounds} evaluated rounds, as cells take them; "
            "thin lines are the rounds."
        )
    printed = next((use for use in uses if use.printed and not use.metric.quantity.of_a_run), None)
    if printed and printed.printed and printed.printed.mean is not None:
        lines[0] = replace(lines[0], level=printed.printed.mean)
        place = f"{printed.table}, {printed.place}"
        notes.append(f"The dotted line is the printed {printed.printed.text} in {place}.")
    if first.summary.up_to:
        notes.append(f"Cells take rounds up to {first.summary.up_to} only.")
    limits = curves.bounds([lines]) if metric.quantity.same_axes else None
    if limits:
        notes.append("The axis ignores the first fifth of the rounds.")
    quantity, title = metric.quantity, sentence_case(metric.quantity.words)
    words = description_of(title, lines, quantity, record.run.setting)
    desk, phone = (
        curves.draw(lines, description=words, limits=limits, unit=quantity.unit, size=size)
        for size in (DESK, PHONE)
    )
    key = key_of([line.name for line in lines])
    return SimpleNamespace(title=title, desk=desk, phone=phone, key=key, notes=notes)


def sheets_of(record: RunRecord) -> SimpleNamespace | None:
    """The last round's images and the first few of them over time; None if the run left no images.

    Beside them ``real`` training images, a row of each class, if the data are prepared here.

    Raises:
        UserError: if a file of images is damaged.
    """
    rounds = record.rounds_with_images
    if not rounds:
        return None
    last = record.images(rounds[-1])
    height, width = last.shape[2:]
    of_last = sheet.draw(
        last[:LAST],
        LAST_WIDE,
        description=f"{len(last[:LAST])} sample images of {height} x {width} pixels after round "
        f"{rounds[-1]}.",
    )
    over_time = [
        Panel(
            f"Round {number}",
            sheet.draw(
                record.images(number)[:SHOWN],
                WIDE,
                description=f"The first {len(last[:SHOWN])} of these images after round {number}.",
            ),
        )
        for number in spread(rounds, SHEETS)
    ]
    real = training_images(record.root, record, CLASSES, LAST_WIDE)
    beside = real is not None and sheet.draw(
        real, LAST_WIDE, description=f"{len(real)} training images, {LAST_WIDE} of each class."
    )
    return SimpleNamespace(
        number=rounds[-1],
        last=of_last,
        over_time=over_time if len(rounds) > 1 else [],
        real=beside or None,
        shown=len(last[:SHOWN]),
        size=f"{height} x {width}",
    )


def spread(numbers: list[int], most: int) -> list[int]:
    """At most so many of them, evenly spaced, including the first and the last."""
    if len(numbers) <= most:
        return numbers
    places = (round(index * (len(numbers) - 1) / (most - 1)) for index in range(most))
    return [numbers[place] for place in places]


def inputs_of(workbench: Workbench, run: RunKey) -> dict[str, RunKey]:
    """The runs that a run takes as inputs, by requirement, without files and samples."""
    setting = workbench.find_setting(run.setting)
    if setting is None or not setting.inputs:
        return {}
    sources = workbench.spec_of(run).inputs
    return {need: source.key for need, source in sources.items() if isinstance(source, RunSpec)}


def are_inputs(workbench: Workbench, runs: Iterable[RunKey]) -> bool:
    """Return True if any of these runs, with any seed, is an input of another run."""
    sources = {
        (f"{setting.name.partition('/')[0]}/{source.setting}", source.method)
        for setting in workbench.settings.values()
        for source in setting.inputs.values()
        if isinstance(source, ArtifactFromRun)
    }
    return any((run.setting, run.method) in sources for run in runs)


def with_inputs(workbench: Workbench, runs: Iterable[RunKey]) -> list[RunKey]:
    """Runs, followed by all their direct and indirect inputs, each once."""
    known = dict.fromkeys(runs)
    waiting = list(known)
    while waiting:
        given = inputs_of(workbench, waiting.pop()).values()
        new = [run for run in given if run not in known]
        known.update(dict.fromkeys(new))
        waiting.extend(new)
    return list(known)
