"""Which number each table cell takes from a run."""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from fedrepro.config.metrics import Metric
from fedrepro.config.tables import Summary
from fedrepro.config.targets import RunKey, TableTarget
from fedrepro.config.values import SCALES
from fedrepro.config.workbench import Workbench
from fedrepro.measures.base import Reading
from fedrepro.report.cells.tables import value_of
from fedrepro.report.papers.published import Published, label_of
from fedrepro.run.results import RunRecord


def anchor_of(row: int, column: int) -> str:
    """The id of a cell on its table's page; both count from 0."""
    return f"row-{row + 1}-{column + 1}"


@dataclass(frozen=True)
class CellUse:
    """One cell that uses a run.

    Attributes:
        table, page: the table's name, and its page's address relative to the site's root.
        place, address: the cell in words, and its address.
        metric, rounds: the number that it takes, and over how many last evaluated rounds, up to and
            including round ``up_to``.
        seeds: the seeds in its mean.
        demo: whether the run only has the cell's demo setting.
    """

    table: str
    page: str
    place: str
    address: str
    metric: Metric
    rounds: int
    up_to: int | None
    seeds: tuple[int, ...]
    demo: bool


@dataclass(frozen=True)
class AnsweredCell:
    """A number of a run, and the cells of one table that use it.

    Attributes:
        rounds, up_to: as in :class:`CellUse`.
        value: in printed units; None if the run has no such number.
        seed: which of the cells' seeds the run has, in words.
    """

    table: str
    page: str
    places: tuple[tuple[str, str], ...]
    measure: Reading
    rounds: int
    up_to: int | None
    value: float | None
    seed: str
    demo: bool


def cells_of_runs(
    workbench: Workbench,
    published: Published,
    wanted: AbstractSet[RunKey],
    only: str | None = None,
) -> dict[RunKey, list[CellUse]]:
    """Each run in ``wanted`` -> the cells that use it, at either scale.

    Args:
        only: look at the tables of this system.
    """
    found: dict[RunKey, dict[tuple[str, bool], CellUse]] = {}
    for scale in SCALES:
        for target in workbench.tables(scale, only).values():
            if not wanted.isdisjoint(target.runs):
                for use, runs in _uses(target, published):
                    for run in wanted & set(runs):
                        found.setdefault(run, {})[use.address, use.demo] = use
    return {run: list(uses.values()) for run, uses in found.items()}


def _uses(target: TableTarget, published: Published) -> Iterable[tuple[CellUse, list[RunKey]]]:
    system = published.systems.get(target.system)
    printed = target.table.published.table if target.table.published else ""
    name = system.name if system else target.system
    page = target.page.relative_to("reports/site").as_posix()
    for index, cell in enumerate(target.cells):
        row, column = divmod(index, len(target.table.columns))
        use = CellUse(
            table=f"{name}, {label_of(target.item, printed)}",
            page=page,
            place=f"{cell.row.label}, {cell.column.label}",
            address=f"{page}#{anchor_of(row, column)}",
            metric=target.table.metric_of(cell.row, cell.column),
            rounds=target.table.summary.rounds,
            up_to=target.table.summary.up_to,
            seeds=cell.seeds,
            demo=target.scale == "demo" and cell.row.demo is not None,
        )
        yield use, [run for method in cell.methods for run in cell.runs(method)]


def answers_of(record: RunRecord, uses: Sequence[CellUse]) -> list[AnsweredCell]:
    """The numbers that cells take from a run; published settings come first."""
    groups: dict[tuple[bool, str, str, int, int, tuple[int, ...]], list[CellUse]] = {}
    for use in uses:
        # Not its words alone: mixtures of one measure share them.
        metric = f"{use.metric.reading.words} {use.metric!r}"
        key = use.demo, use.page, metric, use.rounds, use.up_to or 0, use.seeds
        groups.setdefault(key, []).append(use)
    found = []
    for (demo, page, _, rounds, up_to, seeds), same in sorted(
        groups.items(), key=lambda item: item[0]
    ):
        measure = same[0].metric.reading
        found.append(
            AnsweredCell(
                table=same[0].table,
                page=page,
                places=tuple((use.place, use.address) for use in same),
                measure=measure,
                rounds=rounds,
                up_to=up_to or None,
                value=value_of(record, measure, Summary(rounds=rounds, up_to=up_to or None)),
                seed=_seed(record.run.seed, seeds),
                demo=demo,
            )
        )
    return found


def _seed(seed: int, seeds: tuple[int, ...]) -> str:
    if len(seeds) == 1:
        return f"seed {seed}, the only one"
    return f"seed {seed} of {', '.join(map(str, seeds))}"


def headline(answers: Iterable[AnsweredCell]) -> list[AnsweredCell]:
    """Each number once, however many tables take it."""
    distinct: dict[tuple[str, int, int | None], AnsweredCell] = {}
    for answer in answers:
        if answer.value is not None:
            key = answer.measure.words, answer.rounds, answer.up_to
            distinct.setdefault(key, answer)
    return list(distinct.values())
