"""The cells of scale paper that a run belongs to, after its end, in a line each."""

from fedrepro.config.targets import Cell, RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import tables
from fedrepro.report.cells.cell import TableCell
from fedrepro.report.papers.published import PrintedCell, Published, label_of, load
from fedrepro.report.papers.verdict import Verdict
from fedrepro.support.scoped_cache import read_once


def lines_of(workbench: Workbench, run: RunKey) -> list[str]:
    """The run's number, the printed one and the verdict, for each printed cell with the run.

    A cell that a part of a table repeats has one line.

    A verdict may depend on other cells of its table, so whole tables are computed: a second each.

    Raises:
        UserError: if the printed cells or another run's files are damaged.
    """
    every = workbench.tables("paper", only=run.setting.partition("/")[0]).values()
    targets = [target for target in every if target.table.published and run in target.runs]
    published = load(workbench.root) if targets else Published()
    lines: list[str] = []
    seen: set[PrintedCell] = set()
    with read_once():
        for target in targets:
            assert target.table.published
            label, before = label_of(target.item, target.table.published.table), frozenset(seen)
            for index, cell in enumerate(target.cells):
                printed = tables.printed_cell(target, cell, published) if _has(cell, run) else None
                if printed and printed not in before:
                    seen.add(printed)
                    ours = tables.compute(workbench, target, published).cells[index]
                    place = f"{label}, {cell.row.label}, {cell.column.label}"
                    lines.append(f"{place}: {_ours(ours, run, printed, len(cell.seeds))}")
    return lines


def _has(cell: Cell, run: RunKey) -> bool:
    return any(run in cell.runs(method) for method in (*cell.methods, *cell.rivals))


def _ours(cell: TableCell, run: RunKey, printed: PrintedCell, seeds: int) -> str:
    result = cell.result
    values = [
        each.value
        for each in result.runs
        if (each.method, each.seed) == (run.method, run.seed) and each.value is not None
    ]
    own = ", ".join(map(printed.written, values)) or "no number"
    if values and result.n == 1 < seeds:
        own += f" (1 of {seeds} seeds)"
    elif result.mean is not None and seeds > 1:
        own += f" (mean of {result.n} of {seeds} seeds: {printed.written(result.mean)})"
    return f"{own}, printed {printed.text}: {_in_words(cell.verdict, result.hole)}"


def _in_words(verdict: Verdict | None, hole: str | None) -> str:
    if verdict is None:
        return f"no verdict: {hole}"
    if verdict.word == "not comparable":
        return f"{verdict.word}: {verdict.why}"
    return f"{verdict.word}, needs {verdict.needs} seeds" if verdict.needs else verdict.word
