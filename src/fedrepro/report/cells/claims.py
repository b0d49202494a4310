"""Test the papers' claims on our runs, as read from the tables' JSON.

The statistics are in :mod:`fedrepro.report.papers.leads`. Numbers that are counted or calculated
involve no chance: a claim about them is compared, not tested, and no run decides it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from fedrepro.config.targets import ComputedTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import computed
from fedrepro.report.cells.cell import Printed, TableCell, diverged_in_words
from fedrepro.report.cells.readings import Both, Name
from fedrepro.report.papers.claim import Claim
from fedrepro.report.papers.leads import Diverged, PairedTest, Single, Word, judge_leads, tally
from fedrepro.report.papers.pairs import Pair, leads
from fedrepro.report.papers.published import PrintedCell, Published, Unit

# A mean lead within this of zero is too small to matter, in printed units, unless a claim has its
# own margin.
MARGIN: dict[Unit, float | None] = {"percent": 0.5, "fraction": 0.005, "own": None}

CellIndex = Mapping[tuple[str, str, tuple[str, ...]], TableCell]
Counted = Mapping[tuple[str, str, tuple[str, ...]], float]


@dataclass(frozen=True)
class Comparison:
    """One pair of cells; ``p`` is corrected by Holm's method, or None."""

    pair: Pair
    word: Single
    test: PairedTest | None
    p: float | None


@dataclass(frozen=True)
class Finding:
    """The verdict of our runs, or of what we counted, on a whole claim.

    Attributes:
        why: the explanation.
        overall: the test of the mean over all computed comparisons, on the seeds they share; None
            if nothing is computed, or if it is counted.
        counted: whether it rests on numbers that involve no chance, and on no run.
        margin: how small a mean lead does not matter, or None.
        needs: if undecided: how many seeds would decide, in words; or "".
    """

    word: Word
    why: str
    overall: PairedTest | None
    comparisons: tuple[Comparison, ...]
    counted: bool = False
    margin: float | None = None
    needs: str = ""

    @property
    def computed(self) -> tuple[Comparison, ...]:
        return tuple(each for each in self.comparisons if each.test)

    @property
    def tally(self) -> str:
        """How many of the comparisons hold; "" if they are counted, as `why` says it then."""
        return "" if self.counted else tally([each.word for each in self.comparisons])

    @property
    def unit(self) -> str:
        """Of its leads and the printed ones, or ""."""
        return self.comparisons[0].pair.left.lead_unit

    @property
    def printed_lead(self) -> float | None:
        """The printed mean lead over the same comparisons as ours; None without ours."""
        found = [each.pair.lead for each in self.computed]
        return math.fsum(found) / len(found) if found else None


def index_of(
    answers: Mapping[tuple[str, str], Mapping[Name, Both]], reading: Literal["text", "released"]
) -> CellIndex:
    """Our number for each printed cell in a reading: the paper's text, or the released code."""
    return {
        (*key, name): answer.cell
        for key, found in answers.items()
        for name, both in found.items()
        if (answer := both.text if reading == "text" else both.released)
    }


def counted_index(workbench: Workbench, published: Published) -> Counted:
    """Numbers for printed cells that are counted or calculated without training."""
    return {
        (target.system, cell.printed.table, Printed.of(cell.printed).name): cell.value
        for target in workbench.targets().values()
        if isinstance(target, ComputedTarget)
        for cell in computed.compute(workbench, target, published)
        if cell.value is not None
    }


def judge_claim(
    claim: Claim, pairs: Sequence[Pair], index: CellIndex, counted: Counted = MappingProxyType({})
) -> Finding:
    """Test a claim on the available runs, or compare the numbers that need no runs."""
    certain = [_counted_lead(claim, pair, counted) for pair in pairs]
    if any(lead is not None for lead in certain):
        return _judge_counted(claim, pairs, certain)
    margin = margin_of(claim, pairs)
    seeds = {
        printed: cell.paper.diverged
        for pair in pairs
        for printed in (pair.left, pair.right)
        if (cell := _cell(printed, index))
    }
    found = judge_leads(
        [_leads(claim, pair, index) for pair in pairs],
        claim.by,
        claim.over == "each",
        margin,
        [
            Diverged(*(len(seeds.get(each, ())) for each in (pair.left, pair.right)))
            for pair in pairs
        ],
    )
    named = {f"{cell.method} ({cell.dataset}, {cell.setting})": seeds[cell] for cell in seeds}
    each = zip(pairs, found.words, found.tests, found.ps, strict=True)
    comparisons = tuple(Comparison(*one) for one in each)
    return Finding(
        found.word,
        found.why + diverged_in_words(named),
        found.overall,
        comparisons,
        margin=margin,
        needs=found.needs,
    )


def margin_of(claim: Claim, pairs: Sequence[Pair]) -> float | None:
    """How small a mean lead does not matter; None if the claim is about a lead of some size."""
    return None if claim.by else claim.margin or MARGIN[pairs[0].left.unit]


def _judge_counted(claim: Claim, pairs: Sequence[Pair], certain: Sequence[float | None]) -> Finding:
    found = [lead for lead in certain if lead is not None]
    good = sum(leads(claim, lead, 0.0) for lead in found)
    mean = math.fsum(found) / len(found)
    holds = good == len(found) if claim.over == "each" else leads(claim, mean, 0.0)
    word: Word = "undecided"
    if len(found) == len(pairs) or (claim.over == "each" and not holds):
        word = "holds" if holds else "does not hold"
    why = f"Counted, without any run: {good} of {len(pairs)} comparisons agree with it"
    missing = len(pairs) - len(found)
    why += f", {missing} not counted." if missing else "."
    comparisons = []
    for pair, lead in zip(pairs, certain, strict=True):
        single: Single = "not computed"
        if lead is not None:
            single = "holds" if leads(claim, lead, 0.0) else "against"
        test = None if lead is None else PairedTest(0, lead, None, None, None)
        comparisons.append(Comparison(pair, single, test, None))
    return Finding(word, why, None, tuple(comparisons), counted=True)


def _leads(claim: Claim, pair: Pair, index: CellIndex) -> dict[int, float]:
    """Differences by seed; empty if either cell lacks a number from the current configuration."""
    sides = [_by_seed(cell, index) for cell in (pair.left, pair.right)]
    seeds = sorted(sides[0].keys() & sides[1].keys())
    return {seed: claim.sign * (sides[0][seed] - sides[1][seed]) for seed in seeds}


def _counted_lead(claim: Claim, pair: Pair, counted: Counted) -> float | None:
    sides = [
        counted.get((cell.system, cell.table, Printed.of(cell).name))
        for cell in (pair.left, pair.right)
    ]
    left, right = sides
    return None if left is None or right is None else claim.sign * (left - right)


def _by_seed(printed: PrintedCell, index: CellIndex) -> dict[int, float]:
    cell = _cell(printed, index)
    verdict = cell.verdict if cell else None
    if cell is None or (verdict and not verdict.is_of_current_runs):
        return {}
    runs = cell.paper.runs_of_the_chosen
    return {run.seed: run.value for run in runs if run.value is not None}


def _cell(printed: PrintedCell, index: CellIndex) -> TableCell | None:
    return index.get((printed.system, printed.table, Printed.of(printed).name))
