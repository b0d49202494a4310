"""What our runs say of a claim, read from the tables' JSON.

A comparison's differences are taken seed by seed, and their mean is held against the claim by a t
test on both sides; within one claim the p values are corrected by Holm's method. With one seed, or
differences that do not vary, nothing is decided.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from fedrepro.config.targets import ComputedTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import computed
from fedrepro.report.cells.cell import ComputedTable, Printed, TableCell
from fedrepro.report.cells.readings import Both, Name
from fedrepro.report.papers.claim import Claim
from fedrepro.report.papers.pairs import Pair, leads
from fedrepro.report.papers.published import PrintedCell, Published

Word = Literal["holds", "does not hold", "undecided", "not computed"]
WORDS: tuple[Word, ...] = ("holds", "does not hold", "undecided", "not computed")
LEVEL = 0.05

CellIndex = Mapping[tuple[str, str, tuple[str, ...]], TableCell]
Counted = Mapping[tuple[str, str, tuple[str, ...]], float]


@dataclass(frozen=True)
class PairedTest:
    """Leads over paired seeds: their mean, its 95 % interval by Student's t, a two-sided p.

    Attributes:
        seeds: how many pairs; 0 where both numbers are computed without chance.
        low, high, p: None where a t test says nothing.
    """

    seeds: int
    lead: float
    low: float | None
    high: float | None
    p: float | None

    @classmethod
    def of(cls, leads: Sequence[float], by: float) -> "PairedTest":
        """Against a true lead of ``by``; of at least one value."""
        mean = math.fsum(leads) / len(leads)
        if len(leads) == 1 or max(leads) - min(leads) < 1e-9:
            return cls(len(leads), mean, None, None, None)
        from scipy import stats  # a second, which a page without claims can do without

        found = stats.ttest_1samp(leads, by)
        low, high = found.confidence_interval(0.95)
        return cls(len(leads), mean, float(low), float(high), float(found.pvalue))


@dataclass(frozen=True)
class Comparison:
    """One pair of cells; ``p`` is Holm's, None where there is none."""

    pair: Pair
    word: Word
    test: PairedTest | None
    p: float | None


@dataclass(frozen=True)
class Finding:
    """What our runs say of a whole claim.

    Attributes:
        why: in words.
        overall: of the mean over all computed comparisons, over the seeds that all of them have.
    """

    word: Word
    why: str
    overall: PairedTest | None
    comparisons: tuple[Comparison, ...]

    @property
    def computed(self) -> tuple[Comparison, ...]:
        return tuple(each for each in self.comparisons if each.test)


def index_of(tables: Iterable[ComputedTable]) -> CellIndex:
    """Printed cells that have a number of ours; of several the first, the paper's own reading."""
    found: dict[tuple[str, str, tuple[str, ...]], TableCell] = {}
    for table in tables:
        for cell in table.cells:
            if cell.answered and cell.paper.n and table.published_table:
                found.setdefault((table.system, table.published_table, cell.answered.name), cell)
    return found


def released_index(answers: Mapping[tuple[str, str], Mapping[Name, Both]]) -> CellIndex:
    """The same of what is read as the released code has it."""
    return {
        (*key, name): both.released.cell
        for key, found in answers.items()
        for name, both in found.items()
        if both.released
    }


def counted_index(workbench: Workbench, published: Published) -> Counted:
    """What is counted or calculated for printed cells, without training."""
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
    """Hold a claim against the runs that there are, and what is counted without any."""
    certain = [_counted_lead(claim, pair, counted) for pair in pairs]
    by_seed = [_leads(claim, pair, index) for pair in pairs]
    tests = [
        PairedTest(0, lead, None, None, None)
        if lead is not None
        else (PairedTest.of(list(each.values()), claim.by) if each else None)
        for lead, each in zip(certain, by_seed, strict=True)
    ]
    corrected = iter(holm([test.p for test in tests if test and test.p is not None]))
    comparisons = []
    for pair, test in zip(pairs, tests, strict=True):
        p = next(corrected) if test and test.p is not None else None
        comparisons.append(Comparison(pair, _word(claim, test, p), test, p))
    overall = _overall(claim, [each for each in by_seed if each])
    found = [lead for lead in certain if lead is not None]
    if found and overall is None:
        overall = PairedTest(0, math.fsum(found) / len(found), None, None, None)
    word, why = _conclusion(claim, comparisons, overall)
    return Finding(word, why, overall, tuple(comparisons))


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down correction, in the order given."""
    adjusted, least = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        adjusted[place] = least = max(least, min(1.0, (len(ps) - rank) * ps[place]))
    return adjusted


def _leads(claim: Claim, pair: Pair, index: CellIndex) -> dict[int, float]:
    """By seed; empty where either cell has no number of today's configuration."""
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
    cell = index.get((printed.system, printed.table, Printed.of(printed).name))
    verdict = cell.verdict if cell else None
    if cell is None or (verdict and (verdict.word, verdict.basis) == ("not comparable", None)):
        return {}
    runs = cell.paper.runs_of_the_chosen
    return {run.seed: run.value for run in runs if run.value is not None}


def _word(claim: Claim, test: PairedTest | None, p: float | None) -> Word:
    if test is None:
        return "not computed"
    if test.seeds == 0:
        return "holds" if leads(claim, test.lead, 0.0) else "does not hold"
    if p is None or p > LEVEL:
        return "undecided"
    return "holds" if test.lead > claim.by else "does not hold"


def _overall(claim: Claim, leads: Sequence[Mapping[int, float]]) -> PairedTest | None:
    seeds = sorted(set.intersection(*({*each} for each in leads))) if leads else []
    means = [math.fsum(each[seed] for each in leads) / len(leads) for seed in seeds]
    return PairedTest.of(means, claim.by) if means else None


def _conclusion(
    claim: Claim, comparisons: Sequence[Comparison], overall: PairedTest | None
) -> tuple[Word, str]:
    count = len(comparisons)
    computed = [each for each in comparisons if each.test]
    if not computed:
        return "not computed", "No comparison has runs of ours on both sides."
    there = f"{len(computed)} of {count} comparisons computed"
    if claim.over == "average":
        p = overall.p if overall else None
        if len(computed) == count:
            return _word(claim, overall, p), f"{there}; the mean over them is tested."
        return "undecided", f"{there}; the mean over all of them is not known."
    words = [each.word for each in computed]
    tally = f"{there}: {words.count('holds')} hold, {words.count('does not hold')} do not"
    if "does not hold" in words:
        return "does not hold", tally + "."
    if words.count("holds") == count:
        return "holds", tally + "."
    return "undecided", f"{tally}, {words.count('undecided')} are undecided."
