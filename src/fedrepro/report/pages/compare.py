"""Compare two methods over their common settings: wins, paired differences, a forest plot."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import ComputedTable, Result, TableCell
from fedrepro.report.drawing import forest
from fedrepro.report.papers.estimate import Estimate


@dataclass(frozen=True)
class Meeting:
    """Two methods in one row of a table, on one metric.

    Attributes:
        place, address: the row in words, of a demo setting its data; and the row's address.
        demo: whether the setting is the demo setting of a published one.
        rising: whether more is better.
        ours, theirs: means over their common seeds.
        difference: ``ours`` - ``theirs``, paired by seed.
    """

    place: str
    address: str
    metric: str
    unit: str
    demo: bool
    rising: bool
    ours: float
    theirs: float
    difference: Estimate

    @property
    def lead(self) -> float:
        """The lead of ours; positive if ours is better."""
        return self.difference.mean if self.rising else -self.difference.mean


@dataclass
class Rivalry:
    """A method against another one: all rows they share, and how many it wins and loses."""

    name: str
    anchor: str
    meetings: list[Meeting] = field(default_factory=list)

    def won(self, demo: bool) -> int:
        return sum(each.lead > 0 for each in self.meetings if each.demo == demo)

    def met(self, demo: bool) -> int:
        return sum(each.demo == demo for each in self.meetings)

    @property
    def plots(self) -> list[tuple[str, list[tuple[Meeting, str]]]]:
        """Rows by metric, published settings first, each with its strip."""
        found: dict[tuple[bool, str], list[Meeting]] = {}
        for each in sorted(self.meetings, key=lambda each: each.demo):
            unit = f", {each.unit}" if each.unit else ""
            found.setdefault((each.demo, f"{each.metric}{unit}"), []).append(each)
        return [
            (metric, list(zip(meetings, _strips(meetings), strict=True)))
            for (_, metric), meetings in found.items()
        ]


def _strips(meetings: Iterable[Meeting]) -> list[str]:
    estimates = [each.difference for each in meetings]
    return forest.strips([(each.mean, each.half_width or 0.0) for each in estimates])


def compare_pages(
    workbench: Workbench, tables: Mapping[tuple[str, str], ComputedTable]
) -> dict[str, dict[str, Any]]:
    """The content of each method's page by file name, from the tables' JSON."""
    found: dict[str, dict[str, list[Meeting]]] = {}
    seen: set[tuple[object, ...]] = set()
    for (system, item), table in tables.items():
        asked = workbench.table(system, item, table.scale).table
        for index, row in enumerate(table.rows):
            cells = [cell for cell in table.cells if cell.row == index]
            metrics = [
                asked.metric_of(asked.rows[index], asked.columns[cell.column]).reading
                for cell in cells
            ]
            page = f"{system}/{item}.html#row-{index + 1}"
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
                        ours, theirs = _by_seed(first), _by_seed(second)
                        seeds = sorted({*ours} & {*theirs})
                        if not seeds:
                            continue
                        names = [table.columns[cell.column].label for cell in (left, right)]
                        place = _data_of(workbench, first.setting) if demo else row.label
                        meeting = Meeting(
                            place,
                            f"{system}/{item}.html#demo" if demo else page,
                            mine.words,
                            mine.unit,
                            demo,
                            mine.rising,
                            Estimate.of([ours[seed] for seed in seeds]).mean,
                            Estimate.of([theirs[seed] for seed in seeds]).mean,
                            Estimate.of([ours[seed] - theirs[seed] for seed in seeds]),
                        )
                        found.setdefault(names[0], {}).setdefault(names[1], []).append(meeting)
    slugs = _slugs(found)
    return {
        slugs[name]: {
            "name": name,
            "rivalries": sorted(
                (Rivalry(other, slugs[other], meetings) for other, meetings in rivals.items()),
                key=lambda each: (-each.met(False), -each.met(True)),
            ),
            "addresses": slugs,
        }
        for name, rivals in found.items()
    }


def _result(cell: TableCell, demo: bool) -> Result | None:
    """Rows at a scale, without cells whose number is not from the current setting."""
    verdict = cell.verdict
    if not demo and verdict and (verdict.word, verdict.basis) == ("not comparable", None):
        return None
    result = cell.demo if demo else cell.paper
    return result if result and result.n else None


def _data_of(workbench: Workbench, setting: str) -> str:
    """The data of a demo setting, which are not those of the row that it stands for."""
    title = workbench.datasets[workbench.setting(setting).dataset].title
    return f"{title}, {setting.partition('/')[2]}"


def _runs(result: Result | None) -> tuple[object, ...]:
    return (result.setting, result.chosen) if result else ()


def _by_seed(result: Result) -> dict[int, float]:
    return {run.seed: run.value for run in result.runs_of_the_chosen if run.value is not None}


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
