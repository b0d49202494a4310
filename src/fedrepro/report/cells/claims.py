"""Test the papers' claims on our runs: at scale paper, and on the small runs of scale compact.

The statistics are in :mod:`fedrepro.report.papers.leads`. Numbers that are counted or calculated
involve no chance: a claim about them is compared, not tested, and no run decides it. What the small
runs are is in docs/compact.md.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from fedrepro.config.tables import Table
from fedrepro.config.targets import ComputedTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import ComputedTable, TableCell, kinds_of_machine
from fedrepro.report.cells.computed import compute
from fedrepro.report.cells.findings import CompactPair, Finding, Side, finding_of
from fedrepro.report.cells.readings import Both
from fedrepro.report.papers.claim import (
    OTHERS,
    Claim,
    CompactSelector,
    CompactTest,
    patterns_of,
    star_in,
)
from fedrepro.report.papers.leads import Comparison, PairedTest, Single, Word
from fedrepro.report.papers.pairs import Pair, leads
from fedrepro.report.papers.published import CLAIMS, Name, PrintedCell, Published, Unit
from fedrepro.run.landed_runs import PAPERS
from fedrepro.support.errors import bad_value, refusal

# A mean lead within this of zero is too small to matter, in printed units, unless a claim has its
# own margin.
MARGIN: dict[Unit, float | None] = {"percent": 0.5, "fraction": 0.005, "own": None}

CellName = tuple[str, str, Name]  # system, printed table and name in it
CellIndex = Mapping[CellName, TableCell]
Counted = Mapping[CellName, float]

CENTRAL = "central"  # a reference that no claim is about


def index_of(
    answers: Mapping[tuple[str, str], Mapping[Name, Both]], reading: Literal["text", "released"]
) -> CellIndex:
    """Our number for each printed cell in a reading: the paper's text, or the released code."""
    return {
        (*table, name): answer.cell
        for table, cells in answers.items()
        for name, both in cells.items()
        if (answer := both.text if reading == "text" else both.released)
    }


def counted_index(workbench: Workbench, published: Published) -> Counted:
    """Numbers for printed cells that are counted or calculated without training."""
    return {
        _name_of(cell.printed): cell.value
        for target in workbench.targets().values()
        if isinstance(target, ComputedTarget)
        for cell in compute(workbench, target, published)
        if cell.value is not None
    }


def judge_claim(
    claim: Claim, pairs: Sequence[Pair], index: CellIndex, counted: Counted = MappingProxyType({})
) -> Finding:
    """Test a claim on the available runs, or compare the numbers that need no runs."""
    counted_leads = [_counted_lead(claim, pair, counted) for pair in pairs]
    if any(lead is not None for lead in counted_leads):
        finding = _judge_counted(claim, pairs, counted_leads)
    else:
        sides = [(_side(pair.left, index), _side(pair.right, index)) for pair in pairs]
        finding = finding_of(claim, pairs, sides, margin_of(claim, pairs), pairs[0].left.unit)
    printed = [row.pair.lead for row in finding.computed if isinstance(row.pair, Pair)]
    return replace(
        finding,
        unit=pairs[0].left.lead_unit,
        printed_lead=math.fsum(printed) / len(printed) if printed else None,
    )


def margin_of(claim: Claim, pairs: Sequence[Pair], *, compact: bool = False) -> float | None:
    """How small a lead does not matter; None if the claim is about a lead of some size.

    At scale compact the size is not tested. That two numbers are the same needs a margin of the
    claim's own.
    """
    if claim.quantifier == "same":
        return claim.margin
    if claim.by and not (compact and claim.quantifier == "amount"):
        return None
    return claim.margin or MARGIN[pairs[0].left.unit]


def _side(printed: PrintedCell, index: CellIndex) -> Side:
    """Our numbers for a printed cell; none without a number from the current configuration."""
    name = f"{printed.method} ({printed.dataset}, {printed.setting})"
    cell = index.get(_name_of(printed))
    if cell is None:
        return Side(name, {})
    is_current = cell.verdict is None or cell.verdict.is_of_current_runs
    return Side(name, cell.result.counted_by_seed() if is_current else {}, cell.result.diverged)


def _judge_counted(
    claim: Claim, pairs: Sequence[Pair], counted_leads: Sequence[float | None]
) -> Finding:
    known = [lead for lead in counted_leads if lead is not None]
    good = sum(leads(claim, lead, 0.0) for lead in known)
    mean = math.fsum(known) / len(known)
    holds = good == len(known) if not claim.is_of_the_mean else leads(claim, mean, 0.0)
    word = Word.UNDECIDED
    if len(known) == len(pairs) or (not claim.is_of_the_mean and not holds):
        word = Word.HOLDS if holds else Word.DOES_NOT_HOLD
    missing = len(pairs) - len(known)
    why = f"Counted, without any run: {good} of {len(pairs)} comparisons agree with it"
    why += f", {missing} not counted." if missing else "."
    comparisons = []
    for pair, lead in zip(pairs, counted_leads, strict=True):
        single, test = Single.NOT_COMPUTED, None
        if lead is not None:
            single = Single.LEADS if leads(claim, lead, 0.0) else Single.AGAINST
            test = PairedTest(0, lead, None, None, None)
        comparisons.append(Comparison(single, test, pair=pair))
    return Finding(word, why, None, tuple(comparisons), counted=True)


def _counted_lead(claim: Claim, pair: Pair, counted: Counted) -> float | None:
    left, right = (counted.get(_name_of(cell)) for cell in (pair.left, pair.right))
    return None if left is None or right is None else claim.sign * (left - right)


def _name_of(printed: PrintedCell) -> CellName:
    return printed.system, printed.table, printed.name


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
    pairs = list(compact_pairs(workbench, claim, test))
    table = experiment.compact[test.table]
    computed = tables.get((claim.system, test.table))

    def side(place: int) -> Side:
        label = _label(table, place)
        if computed is None:
            return Side(label, {})
        cell = computed.cells[place]
        values = cell.result.counted_by_seed()
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
    none = finding.word == Word.NOT_COMPUTED and computed is not None
    runs_of_both = [run for cell in cells_of_both for run in cell.result.runs]
    lost = {run.why for run in runs_of_both if run.state == "damaged"}
    lost |= {run.stale for run in runs_of_both if none and run.stale}
    if none or lost:
        said = f"Small runs that do not count: {min(lost)}." if lost else ""
        finding = replace(finding, why=f"{'' if none else finding.why} {said}".strip())
    machines = kinds_of_machine(cells_of_both)
    return replace(finding, item=test.table, unit=unit, runs=runs, machines=machines)


def _label(table: Table, place: int) -> str:
    """A cell's column, and its row if there are several."""
    row, column = divmod(place, len(table.columns))
    label = table.columns[column].label
    return f"{label} ({table.rows[row].label})" if len(table.rows) > 1 else label


def compact_pairs(workbench: Workbench, claim: Claim, test: CompactTest) -> Iterator[CompactPair]:
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


def _is_impossible(cell: TableCell) -> bool:
    """Return True if all runs of a cell are finished and current, and none has the measure."""
    runs = cell.result.runs
    return bool(runs) and all(
        run.state == "finished" and run.value is None and not run.stale for run in runs
    )
