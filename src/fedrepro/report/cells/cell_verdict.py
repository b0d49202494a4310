"""A cell's verdict: whether our number may be compared with the printed one, and what it says.

A cell that shows no spread by itself gets one from paired seeds, other rows, or last rounds.
"""

import math
from collections.abc import Sequence

from fedrepro.config.targets import Cell, RunKey, TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.measures.base import Quantity
from fedrepro.report.cells.cell import Result, seeds_in_words, series_of
from fedrepro.report.papers.estimate import Borrowed, Estimate, Paired
from fedrepro.report.papers.published import PrintedCell, Published
from fedrepro.report.papers.verdict import TWINS, Verdict, judge
from fedrepro.run.results import find_run

Spreads = tuple[Paired | None, Borrowed | None]

# How many evaluated rounds show a spread, unless the table's number is the mean of more.
LAST = 5


def verdict_of(
    published: Published,
    printed: PrintedCell | None,
    result: Result,
    spreads: Spreads,
    incomparable: str,
) -> Verdict | None:
    """The verdict; None with nothing to compare. ``incomparable`` says why ours can't be."""
    chosen = result.runs_of_the_chosen
    diverged = [run for run in (chosen or result.runs) if run.state == "diverged"]
    if printed is not None and result.apart:
        return Verdict("not comparable", f"{result.hole}.")
    if printed is None or not (result.n or diverged):
        return None
    changed = sorted({key for run in chosen if run.value is not None for key in run.changed})
    # A diverged run counts as run; it was not the best.
    tried = {run.method for run in result.runs if run.state == "diverged"} | {*result.tried}
    if diverged:
        return Verdict("not comparable", f"Seed {diverged[0].seed} {diverged[0].why}.")
    if changed:
        in_what = ", ".join(changed)
        return Verdict("not comparable", f"The configuration has changed since, in {in_what}.")
    stale = [run for run in chosen if run.value is not None and run.stale]
    if stale:
        whose = seeds_in_words([run.seed for run in stale]).capitalize()
        return Verdict("not comparable", f"{whose}: {stale[0].stale}.")
    if len(tried) < len(result.methods):
        there, wanted = len(tried), len(result.methods)
        are = "is" if there == 1 else "are"
        why = f"The printed number is the best of {wanted}; {there} of them {are} run."
        return Verdict("not comparable", why)
    if incomparable:
        return Verdict("not comparable", incomparable, basis="not comparable")
    assert result.mean is not None
    ours = Estimate(result.n, result.mean, result.std, result.half_width)
    spread = published.systems[printed.system].spread
    return judge(printed, ours, spread, published.effect(printed), *spreads)


def other_unit(printed: PrintedCell, ours: Quantity) -> str:
    """Why a printed fraction of 1 is not compared with ours in percent; "" for other units."""
    if printed.unit != "fraction" or ours.unit not in ("%", "points"):
        return ""
    return f"It is printed as a fraction of 1 (`unit` in paper.yaml), and ours is in {ours.unit}."


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
        for index, values in group.items():
            cell = printed[index]
            assert cell is not None
            # A method is the first of its own twins, which do not count.
            if spread := Paired.of(values, [*group.values()], TWINS[cell.unit]):
                spreads[index] = spread
    return spreads


def _on_own_splits(printed: PrintedCell, result: Result, published: Published) -> bool:
    """Return True if a result has a number for each of the authors' seeds and splits."""
    splits = published.systems[printed.system].spread.own_splits
    if splits is None or printed.dataset not in splits.datasets:
        return False
    return sorted(splits.seeds) == sorted(result.by_seed)


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
            of_rounds = _of_rounds(workbench, target.cells[index], result)
            spreads[index] = max([*lent, *of_rounds], key=lambda each: each.limit)
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
