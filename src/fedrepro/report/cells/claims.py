"""Test the papers' claims on our runs at scale paper; :mod:`.compact` does on small runs.

The statistics are in :mod:`fedrepro.report.papers.leads`. Numbers that are counted or calculated
involve no chance: a claim about them is compared, not tested, and no run decides it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from fedrepro.config.targets import ComputedTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import computed
from fedrepro.report.cells.cell import TableCell
from fedrepro.report.cells.findings import Finding, Side, finding_of
from fedrepro.report.cells.readings import Both
from fedrepro.report.papers.claim import Claim
from fedrepro.report.papers.leads import Comparison, PairedTest, Single, Word
from fedrepro.report.papers.pairs import Pair, leads
from fedrepro.report.papers.published import Name, PrintedCell, Published, Unit

# A mean lead within this of zero is too small to matter, in printed units, unless a claim has its
# own margin.
MARGIN: dict[Unit, float | None] = {"percent": 0.5, "fraction": 0.005, "own": None}

CellName = tuple[str, str, Name]  # system, printed table and name in it
CellIndex = Mapping[CellName, TableCell]
Counted = Mapping[CellName, float]


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
        for cell in computed.compute(workbench, target, published)
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
    whole = cell.verdict is None or cell.verdict.is_of_current_runs
    return Side(name, cell.result.current_by_seed() if whole else {}, cell.result.diverged)


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
