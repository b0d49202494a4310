"""Spreads for cells that show none by themselves: from paired seeds, other rows, last rounds."""

import math
from collections.abc import Sequence

from fedrepro.config.targets import Cell, RunKey, TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import Result
from fedrepro.report.cells.last_rounds import series_of
from fedrepro.report.papers.estimate import Borrowed, Estimate, Paired
from fedrepro.report.papers.published import PrintedCell, Published
from fedrepro.report.papers.verdict import TWINS
from fedrepro.run.results import find_run

# How many evaluated rounds show a spread, unless the table's number is the mean of more.
LAST = 5


def paired_spreads(
    workbench: Workbench,
    printed: Sequence[PrintedCell | None],
    results: Sequence[Result],
    published: Published,
) -> dict[int, Paired]:
    """For cells on the authors' seeds and splits: our method's own spread, by the cell's number.

    A method is compared with the others of its printed row and reading.
    """
    groups: dict[tuple[tuple[str, ...], bool], dict[int, list[float]]] = {}
    for index, (cell, result) in enumerate(zip(printed, results, strict=True)):
        if cell is None or workbench.surrogate_for(result.setting):
            continue
        if _on_own_splits(cell, result, published):
            released = any("@" in method for method in result.methods)
            values = [*result.by_seed.values()]
            groups.setdefault((cell.row, released), {})[index] = values
    spreads = {}
    for group in groups.values():
        for index, own in group.items():
            cell = printed[index]
            assert cell is not None
            # A method is the first of its own twins, which do not count.
            if spread := Paired.of(own, [*group.values()], TWINS[cell.unit]):
                spreads[index] = spread
    return spreads


def _on_own_splits(printed: PrintedCell, result: Result, published: Published) -> bool:
    """Return True if a result has a number for each of the authors' seeds and splits."""
    own = published.systems[printed.system].spread.own_splits
    if own is None or printed.dataset not in own.datasets:
        return False
    return sorted(own.seeds) == sorted(result.by_seed)


def borrowed_spreads(
    workbench: Workbench,
    target: TableTarget,
    printed: Sequence[PrintedCell | None],
    results: Sequence[Result],
) -> dict[int, Borrowed]:
    """For cells with one seed: the widest spread that this column shows, by the cell's number.

    It is shown by several seeds in another row on the same data set and printed metric, or by the
    run's own last rounds if they scatter more. Rounds alone lend none: they share the partition and
    the initial weights, so they need not scatter as seeds do.
    """
    spreads = {}
    for index, (cell, result) in enumerate(zip(printed, results, strict=True)):
        if cell is None or result.n != 1:
            continue
        lent = [
            Borrowed(
                other.std,
                other.n - 1,
                f"the {other.n} seeds of this column in {target.cells[at].row.label!r}",
            )
            for at, (beside, other) in enumerate(zip(printed, results, strict=True))
            if beside is not None and other.std and other.setting != result.setting
            if target.cells[at].column is target.cells[index].column
            if (beside.dataset, beside.metric) == (cell.dataset, cell.metric)
            if not workbench.surrogate_for(other.setting)
        ]
        if lent:
            own = _of_rounds(workbench, target.cells[index], result)
            spreads[index] = max([*lent, *own], key=lambda each: each.limit)
    return spreads


def _of_rounds(workbench: Workbench, cell: Cell, result: Result) -> list[Borrowed]:
    """The spread of a run's last evaluated rounds; empty if fewer than three have a number."""
    assert result.chosen is not None
    (seed,) = result.by_seed
    record = find_run(workbench.root, RunKey(result.setting, result.chosen, seed))
    series = series_of(record, cell.metric.quantity, cell.summary)
    values = [
        value for _, value in series[-max(LAST, cell.summary.rounds) :] if math.isfinite(value)
    ]
    if len(values) < 3:
        return []
    std = Estimate.of(values).std or 0.0
    return [Borrowed(std, len(values) - 1, f"its own last {len(values)} evaluated rounds")]
