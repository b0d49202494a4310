"""Compare two methods over their common settings: wins, paired differences, forest plots.

A method's page lists all others; the rows of each pair are on a page of their own.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product
from typing import Any, NamedTuple

from fedrepro.config.values import Scale
from fedrepro.config.workbench import Workbench
from fedrepro.measures.base import Quantity
from fedrepro.measures.clients import STATISTICS
from fedrepro.report.cells.cell import ComputedTable, Result, TableCell
from fedrepro.report.drawing import forest
from fedrepro.report.papers.estimate import Estimate
from fedrepro.support.grouping import grouped
from fedrepro.support.printing import decimals_for


class Entry(NamedTuple):
    """A column's number in a row of a table, on one metric.

    Attributes:
        scale: of the runs. Only at scale paper are they in a published setting.
        place, address: the row in words, of a demo setting its name; and the row's address.
        runs: their setting and method.
        by_seed: its values.
    """

    name: str
    quantity: Quantity
    scale: Scale
    place: str
    address: str
    runs: tuple[str, str | None]
    by_seed: Mapping[int, float]


@dataclass(frozen=True)
class Meeting:
    """Two methods in one row of a table, on one metric.

    Attributes:
        entry: that of ours.
        data: the title of the data set that was used.
        ours, theirs: means over their common seeds.
        difference: ``ours`` - ``theirs``, paired by seed.
    """

    entry: Entry
    data: str
    ours: float
    theirs: float
    difference: Estimate

    @property
    def metric(self) -> str:
        """The metric in words, with its unit."""
        return ", ".join(filter(None, (self.entry.quantity.words, self.entry.quantity.unit)))

    @property
    def lead(self) -> float:
        """The lead of ours; positive if ours is better."""
        return (
            self.difference.mean if self.entry.quantity.higher_is_better else -self.difference.mean
        )


@dataclass(frozen=True)
class Plot:
    """The rows of one scale and metric, each with its strip, and the axis of all strips."""

    metric: str
    higher_is_better: bool
    axis: str
    rows: Sequence[tuple[Meeting, str]]

    @property
    def of_a_tenth(self) -> bool:
        return any(STATISTICS[name].words in self.metric for name in ("worst", "best"))

    @property
    def decimals(self) -> int:
        return decimals_for(mean for row, _ in self.rows for mean in (row.ours, row.theirs))


@dataclass
class Rivalry:
    """A method against another one, over all rows that they share.

    Attributes:
        page: of the pair, relative to the folder of these pages; both directions share it.
    """

    name: str
    other: str
    page: str
    meetings: list[Meeting] = field(default_factory=list)

    def won(self, scale: Scale) -> int:
        return sum(meeting.lead > 0 for meeting in self.at(scale))

    def met(self, scale: Scale) -> int:
        return len(self.at(scale))

    def at(self, scale: Scale) -> list[Meeting]:
        return [meeting for meeting in self.meetings if meeting.entry.scale == scale]

    @property
    def plots(self) -> dict[Scale, list[Plot]]:
        """By scale and metric."""
        plots: dict[Scale, list[Plot]] = {}
        for scale in SHOWN:
            if metrics := grouped(self.at(scale), lambda meeting: meeting.metric):
                plots[scale] = [_plot(metric, group) for metric, group in metrics.items()]
        return plots


SHOWN: tuple[Scale, ...] = ("paper", "compact", "demo")  # in this order


def _plot(metric: str, meetings: Sequence[Meeting]) -> Plot:
    both = [(meeting.difference.mean, meeting.difference.half_width or 0.0) for meeting in meetings]
    rows = list(zip(meetings, forest.strips(both), strict=True))
    return Plot(metric, meetings[0].entry.quantity.higher_is_better, forest.strips_axis(both), rows)


def compare_pages(
    workbench: Workbench, tables: Mapping[tuple[str, str], ComputedTable]
) -> dict[str, dict[str, Any]]:
    """The content of each method's page by file name, from the tables' JSON.

    A page lists the method's rivalries; :func:`pair_pages` has those with a page of their own.
    """
    meetings: dict[str, dict[str, list[Meeting]]] = {}
    seen: set[tuple[object, ...]] = set()
    for entry, rival in _entries_that_meet(workbench, tables):
        # The same runs may be in several rows and tables.
        runs = (entry.runs, rival.runs, entry.quantity.words)
        seeds = sorted({*entry.by_seed} & {*rival.by_seed})
        if runs in seen or entry.runs == rival.runs:
            continue
        seen.add(runs)
        if seeds:
            meeting = _meeting(workbench, entry, rival, seeds)
            meetings.setdefault(entry.name, {}).setdefault(rival.name, []).append(meeting)
    slugs = _slugs(meetings)
    pages = {}
    for name, rivals in meetings.items():
        rivalries = []
        for rival_name, pair_meetings in rivals.items():
            pair = "/".join(sorted((slugs[name], slugs[rival_name])))
            rivalries.append(Rivalry(name, rival_name, f"{pair}.html", pair_meetings))
        rivalries.sort(key=lambda rivalry: (-rivalry.met("paper"), -rivalry.met("compact")))
        scales = [scale for scale in SHOWN if any(rivalry.met(scale) for rivalry in rivalries)]
        pages[slugs[name]] = {"name": name, "rivalries": rivalries, "scales": scales}
    return pages


def _entries_that_meet(
    workbench: Workbench, tables: Mapping[tuple[str, str], ComputedTable]
) -> Iterator[tuple[Entry, Entry]]:
    """All pairs of a row's columns on one metric and scale, in either order."""
    for (system, item), table in tables.items():
        spec, page = workbench.table(system, item, table.scale).table, f"{system}/{item}.html"
        scale: Scale = "compact" if item in workbench.experiments[system].compact else "paper"
        for index, row in enumerate(spec.rows):
            address = f"{page}#row-{index + 1}"
            columns: list[list[Entry]] = []
            for cell in (cell for cell in table.cells if cell.row == index):
                column = spec.columns[cell.column]
                head = column.label, spec.metric_of(row, column).quantity
                entries = [_entry(cell, cell.result, *head, scale, row.label, address)]
                if cell.demo:  # named by its setting
                    place = cell.demo.setting.partition("/")[2]
                    entries.append(_entry(cell, cell.demo, *head, "demo", place, f"{page}#demo"))
                columns.append([entry for entry in entries if entry])
            for left, right in permutations(columns, 2):
                for one, other in product(left, right):
                    if (one.scale, one.quantity.words) == (other.scale, other.quantity.words):
                        yield one, other


def _entry(
    cell: TableCell,
    result: Result,
    column: str,
    quantity: Quantity,
    scale: Scale,
    place: str,
    address: str,
) -> Entry | None:
    """A cell's number at a scale, of runs of today's code and configuration; None without one.

    None, too, if its verdict, which a demo has not, says that it is not whole or not comparable.
    """
    verdict = None if scale == "demo" else cell.verdict
    if not result.n or (verdict and not verdict.is_of_current_runs):
        return None
    runs = (result.setting, result.chosen)
    return Entry(column, quantity, scale, place, address, runs, result.current_by_seed())


def _meeting(workbench: Workbench, entry: Entry, rival: Entry, seeds: Sequence[int]) -> Meeting:
    ours, theirs = ([side.by_seed[seed] for seed in seeds] for side in (entry, rival))
    differences = [our - their for our, their in zip(ours, theirs, strict=True)]
    # Of a demo, the data that were used, not those of the row that it stands for.
    data = workbench.datasets[workbench.setting(entry.runs[0]).dataset].title
    mean, rival_mean = (Estimate.of(values).mean for values in (ours, theirs))
    return Meeting(entry, data, mean, rival_mean, Estimate.of(differences))


def pair_pages(pages: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The content of each pair's page by its address, from the methods' pages.

    Differences are those of the method whose file name comes first.
    """
    return {
        rivalry.page: {"rivalry": rivalry, "files": rivalry.page.removesuffix(".html").split("/")}
        for file, content in pages.items()
        for rivalry in content["rivalries"]
        if rivalry.page.startswith(f"{file}/")
    }


def _slugs(names: Iterable[str]) -> dict[str, str]:
    """Safe, unique file names."""
    slugs: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "method"
        slug, number = plain, 2
        while slug in slugs.values() or slug == "index":
            slug, number = f"{plain}-{number}", number + 1
        slugs[name] = slug
    return slugs
