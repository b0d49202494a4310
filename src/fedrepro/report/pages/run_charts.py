"""The curve of a number on a run's page, with FedAvg's curve and the printed number."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

from fedrepro.config.targets import RunKey
from fedrepro.report.drawing import curves
from fedrepro.report.pages.answers import CellUse, has_mixtures
from fedrepro.report.pages.figures.base import description_of, key_of
from fedrepro.run.results import RunRecord, find_run
from fedrepro.support.grouping import grouped
from fedrepro.support.printing import sentence_case

DESK, PHONE = (900, 280), (260, 190)  # pixels of the plot, without its margins
REFERENCE = "fedavg"


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
