"""Test the papers' claims on the tables of scale compact (docs/compact.md)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fedrepro.config.metrics import RoundsTo
from fedrepro.config.tables import Table
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import ComputedTable, TableCell, kinds_of_machine
from fedrepro.report.cells.findings import CompactPair, Finding, Side, finding_of
from fedrepro.report.cells.tables import rounds_of_both
from fedrepro.report.papers.claim import (
    OTHERS,
    Claim,
    CompactSelector,
    CompactTest,
    patterns_of,
    star_in,
)
from fedrepro.report.papers.leads import Word
from fedrepro.report.papers.published import CLAIMS, Unit
from fedrepro.run.run_archive import PAPERS
from fedrepro.support.errors import bad_value, refusal

CENTRAL = "central"  # a reference that no claim is about


def judge_compact(
    workbench: Workbench,
    claim: Claim,
    tables: Mapping[tuple[str, str], ComputedTable],
    margin: float | None,
) -> Finding | None:
    """Test a claim on the compact runs; None if its entry says why none can.

    None also in a workbench without the paper's compact tables.

    Args:
        tables: the computed ones.
        margin: how small a mean lead does not matter, or None.

    Raises:
        UserError: if claims.yaml names a table, row or column that there is not.
    """
    test, experiment = claim.compact, workbench.experiments.get(claim.system)
    if isinstance(test, str) or experiment is None or not experiment.compact:
        return None
    pairs = list(pairs_of(workbench, claim, test))
    table = experiment.compact[test.table]
    computed = tables.get((claim.system, test.table))
    known = values_of(workbench, computed) if computed else []

    def side(place: int) -> Side:
        label = _label(table, place)
        if computed is None:
            return Side(label, {})
        cell = computed.cells[place]
        values = known[place]
        return Side(label, values, cell.result.diverged, not values and _is_impossible(cell))

    sides = [(side(pair.left), side(pair.right)) for pair in pairs]
    cells = workbench.table(claim.system, test.table, "compact").cells
    unit = cells[pairs[0].left].metric.quantity.unit
    kind: Unit = "percent" if unit == "%" else "own"
    finding = finding_of(claim, pairs, sides, margin, kind, compact=True)
    judged = [place for row in finding.comparisons for place in (row.pair.left, row.pair.right)]
    both = [cells[place] for place in judged]
    runs = frozenset((cell.setting, cell.methods) for cell in both)
    unit = "points" if unit == "%" else unit
    cells_of_both = [computed.cells[place] for place in judged] if computed else []
    if finding.word == Word.NOT_COMPUTED and computed is not None:
        stale = {run.stale for cell in cells_of_both for run in cell.result.runs if run.stale}
        finding = replace(
            finding, why=f"Its small runs do not count: {min(stale)}." if stale else ""
        )
    machines = kinds_of_machine(cells_of_both)
    return replace(finding, item=test.table, unit=unit, runs=runs, machines=machines)


def _label(table: Table, place: int) -> str:
    """A cell's column, and its row if there are several."""
    row, column = divmod(place, len(table.columns))
    label = table.columns[column].label
    return f"{label} ({table.rows[row].label})" if len(table.rows) > 1 else label


def pairs_of(workbench: Workbench, claim: Claim, test: CompactTest) -> Iterator[CompactPair]:
    """The comparisons of a claim at scale compact.

    Raises:
        UserError: as :func:`judge_compact`, and if there are none.
    """
    known = workbench.experiments[claim.system].compact
    file, key = PAPERS / claim.system / CLAIMS, f"{claim.name}.compact"
    if test.table not in known:
        wanted = f"a table of config/compact/{claim.system}.yaml"
        raise bad_value(file, f"{key}.table", test.table, wanted, known)
    table = known[test.table]
    _check(table, test.left, file, f"{key}.left")
    _check(table, test.right, file, f"{key}.right")
    cells = [
        {"row": row.label, "column": column.label} for row in table.rows for column in table.columns
    ]
    references = [column.label for column in table.columns if column.method == CENTRAL]
    places = list(test.left.pairs_with(test.right, cells, references))
    if not places:
        raise refusal(file, f"{key}: matches no cells", key)
    for left, right in places:
        one, other = cells[left], cells[right]
        words = _compared(one, other, one_column=len(table.columns) == 1)
        rival = other["column"] if one["column"] != other["column"] else other["row"]
        yield CompactPair(left, right, words, rival)


def _compared(left: Mapping[str, str], right: Mapping[str, str], *, one_column: bool) -> str:
    """Two cells in words: first the row or column that they share, then what differs."""
    if left["row"] == right["row"]:
        return f"{left['row']}: {left['column']} against {right['column']}"
    if left["column"] == right["column"]:
        words = f"{left['row']} against {right['row']}"
        return words if one_column else f"{left['column']}: {words}"
    one, other = (f"{cell['column']}, {cell['row']}" for cell in (left, right))
    return f"{one} against {other}"


def _check(table: Table, selector: CompactSelector, file: object, key: str) -> None:
    """Reject labels that a table does not have."""
    rows, columns = ([head.label for head in heads] for heads in (table.rows, table.columns))
    for kind, wanted, labels in (
        ("row", selector.row, rows),
        ("column", selector.column, columns),
    ):
        for pattern in patterns_of(wanted):
            matches = any(star_in(pattern, label) is not None for label in labels)
            if not matches and (kind, pattern) != ("column", OTHERS):
                expected = f"the label of a {kind} of its table"
                raise bad_value(file, f"{key}.{kind}", pattern, expected, labels)


def values_of(workbench: Workbench, table: ComputedTable) -> list[dict[int, float]]:
    """For each cell of a compact table, the numbers by seed that a claim counts.

    A speed-up divides two numbers of rounds, and a run that never reached the target counts as all
    its rounds in each: the seeds in which only the wrapper arrives are those that it helps most.
    """
    target = workbench.table(table.system, table.item, "compact")
    values = []
    for cell, computed in zip(target.cells, table.cells, strict=True):
        is_of_rounds = isinstance(cell.metric, RoundsTo)
        last = float(workbench.setting(cell.setting).rounds) if is_of_rounds else None
        both = rounds_of_both(workbench, cell)
        if both is None:
            values.append(computed.result.current_by_seed(last))
            continue
        own, rival = (result.current_by_seed(last) for result in both)
        values.append({seed: rival[seed] / own[seed] for seed in own if seed in rival})
    return values


def _is_impossible(cell: TableCell) -> bool:
    """Return True if all runs of a cell are finished and current, and none has the measure."""
    runs = cell.result.runs
    return bool(runs) and all(
        run.state == "finished" and run.value is None and not run.stale for run in runs
    )
