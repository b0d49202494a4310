"""Compare two methods over their common settings: wins, paired differences, forest plots.

A method's page lists all others; the rows of each pair are on a page of their own.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedrepro.config.values import Scale
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import ComputedTable, Result, TableCell
from fedrepro.report.drawing import forest
from fedrepro.report.papers.estimate import Estimate


@dataclass(frozen=True)
class Meeting:
    """Two methods in one row of a table, on one metric.

    Attributes:
        data: the title of the data set that was used.
        place, address: the row in words, of a demo setting its name; and the row's address.
        scale: of the runs. Only at scale paper are they in a published setting.
        rising: whether more is better.
        ours, theirs: means over their common seeds.
        difference: ``ours`` - ``theirs``, paired by seed.
    """

    data: str
    place: str
    address: str
    metric: str
    unit: str
    scale: Scale
    rising: bool
    ours: float
    theirs: float
    difference: Estimate

    @property
    def lead(self) -> float:
        """The lead of ours; positive if ours is better."""
        return self.difference.mean if self.rising else -self.difference.mean


@dataclass(frozen=True)
class Plot:
    """The rows of one scale and metric, each with its strip, and the axis of all strips."""

    metric: str
    rising: bool
    axis: str
    rows: Sequence[tuple[Meeting, str]]


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
        return sum(each.lead > 0 for each in self.meetings if each.scale == scale)

    def met(self, scale: Scale) -> int:
        return sum(each.scale == scale for each in self.meetings)

    @property
    def plots(self) -> dict[Scale, list[Plot]]:
        """By scale and metric."""
        found: dict[Scale, dict[str, list[Meeting]]] = {}
        for scale in SHOWN:
            for each in self.meetings:
                if each.scale == scale:
                    metric = f"{each.metric}, {each.unit}" if each.unit else each.metric
                    found.setdefault(scale, {}).setdefault(metric, []).append(each)
        return {
            scale: [_plot(metric, meetings) for metric, meetings in metrics.items()]
            for scale, metrics in found.items()
        }


SHOWN: tuple[Scale, ...] = ("paper", "compact", "demo")  # in this order


def _plot(metric: str, meetings: Sequence[Meeting]) -> Plot:
    both = [(each.difference.mean, each.difference.half_width or 0.0) for each in meetings]
    rows = list(zip(meetings, forest.strips(both), strict=True))
    return Plot(metric, meetings[0].rising, forest.strips_axis(both), rows)


def compare_pages(
    workbench: Workbench, tables: Mapping[tuple[str, str], ComputedTable]
) -> dict[str, dict[str, Any]]:
    """The content of each method's page by file name, from the tables' JSON.

    A page lists the method's rivalries; :func:`pairs_of` has those with a page of their own.
    """
    found: dict[str, dict[str, list[Meeting]]] = {}
    seen: set[tuple[object, ...]] = set()
    for (system, item), table in tables.items():
        asked = workbench.table(system, item, table.scale).table
        compact = item in workbench.experiments[system].compact
        for index, row in enumerate(table.rows):
            cells = [cell for cell in table.cells if cell.row == index]
            metrics = [
                asked.metric_of(asked.rows[index], asked.columns[cell.column]).reading
                for cell in cells
            ]
            page = f"{system}/{item}.html"
            for left, mine in zip(cells, metrics, strict=True):
                for right, other in zip(cells, metrics, strict=True):
                    if left is right or mine.words != other.words:
                        continue
                    for demo in (False, True):
                        first, second = _result(left, demo), _result(right, demo)
                        # The same runs may be in several rows and tables.
                        runs = (_runs(first), _runs(second), mine.words)
                        if not first or not second or runs in seen or runs[0] == runs[1]:
                            continue
                        seen.add(runs)
                        ours, theirs = _by_seed(left, first), _by_seed(right, second)
                        seeds = sorted({*ours} & {*theirs})
                        if not seeds:
                            continue
                        names = [table.columns[cell.column].label for cell in (left, right)]
                        meeting = Meeting(
                            _data_of(workbench, first.setting),
                            first.setting.partition("/")[2] if demo else row.label,
                            f"{page}#demo" if demo else f"{page}#row-{index + 1}",
                            mine.words,
                            mine.unit,
                            "demo" if demo else "compact" if compact else "paper",
                            mine.rising,
                            Estimate.of([ours[seed] for seed in seeds]).mean,
                            Estimate.of([theirs[seed] for seed in seeds]).mean,
                            Estimate.of([ours[seed] - theirs[seed] for seed in seeds]),
                        )
                        found.setdefault(names[0], {}).setdefault(names[1], []).append(meeting)
    slugs = _slugs(found)
    pages = {}
    for name, rivals in found.items():
        rivalries = []
        for rival, meetings in rivals.items():
            pair = "/".join(sorted((slugs[name], slugs[rival])))
            rivalries.append(Rivalry(name, rival, f"{pair}.html", meetings))
        rivalries.sort(key=lambda each: (-each.met("paper"), -each.met("compact")))
        scales = [scale for scale in SHOWN if any(each.met(scale) for each in rivalries)]
        pages[slugs[name]] = {"name": name, "rivalries": rivalries, "scales": scales}
    return pages


def pairs_of(pages: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The content of each pair's page by its address, from the methods' pages.

    Differences are those of the method whose file name comes first.
    """
    return {
        rivalry.page: {"rivalry": rivalry, "files": rivalry.page.removesuffix(".html").split("/")}
        for file, content in pages.items()
        for rivalry in content["rivalries"]
        if rivalry.page.startswith(f"{file}/")
    }


def _result(cell: TableCell, demo: bool) -> Result | None:
    """Rows at a scale, without cells whose number is not from the current setting."""
    verdict = cell.verdict
    if not demo and verdict and not verdict.is_of_current_runs:
        return None
    result = cell.demo if demo else cell.paper
    return result if result and result.n else None


def _data_of(workbench: Workbench, setting: str) -> str:
    """The data that were used: of a demo setting not those of the row that it stands for."""
    return workbench.datasets[workbench.setting(setting).dataset].title


def _runs(result: Result | None) -> tuple[object, ...]:
    return (result.setting, result.chosen) if result else ()


def _by_seed(cell: TableCell, result: Result) -> dict[int, float]:
    """A result's numbers by seed.

    Without a verdict, which tells whether it is of today, only runs of today's code and
    configuration count.
    """
    return {
        run.seed: run.value
        for run in result.runs_of_the_chosen
        if run.value is not None
        and (cell.verdict or result is cell.demo or not (run.changed or run.code))
    }


def _slugs(names: Iterable[str]) -> dict[str, str]:
    """Safe, unique file names."""
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "method"
        slug, number = plain, 2
        while slug in found.values() or slug == "index":
            slug, number = f"{plain}-{number}", number + 1
        found[name] = slug
    return found
