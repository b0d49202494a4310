"""Test the papers' claims on our runs, as read from the tables' JSON.

A comparison pairs its cells by seed and tests the mean difference with a two-sided t test; Holm's
method corrects the p values within one claim. With one seed, or without any variance, a comparison
remains undecided.
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
    """Leads over paired seeds: mean, 95 % interval by Student's t, two-sided p.

    Attributes:
        seeds: number of pairs; 0 if both numbers are deterministic.
        low, high, p: None if a t test is not possible.
    """

    seeds: int
    lead: float
    low: float | None
    high: float | None
    p: float | None

    @classmethod
    def of(cls, leads: Sequence[float], by: float) -> "PairedTest":
        """Test against a true lead of ``by``; needs at least one value."""
        mean = math.fsum(leads) / len(leads)
        if len(leads) == 1 or max(leads) - min(leads) < 1e-9:
            return cls(len(leads), mean, None, None, None)
        from scipy import stats  # importing scipy takes a second, which pages without claims save

        found = stats.ttest_1samp(leads, by)
        low, high = found.confidence_interval(0.95)
        return cls(len(leads), mean, float(low), float(high), float(found.pvalue))


@dataclass(frozen=True)
class Comparison:
    """One pair of cells; ``p`` is corrected by Holm's method, or None."""

    pair: Pair
    word: Word
    test: PairedTest | None
    p: float | None


@dataclass(frozen=True)
class Finding:
    """The verdict of our runs on a whole claim.

    Attributes:
        why: the explanation.
        overall: the test of the mean over all computed comparisons, on the seeds they share.
    """

    word: Word
    why: str
    overall: PairedTest | None
    comparisons: tuple[Comparison, ...]

    @property
    def computed(self) -> tuple[Comparison, ...]:
        return tuple(each for each in self.comparisons if each.test)


def index_of(tables: Iterable[ComputedTable]) -> CellIndex:
    """Our number for each printed cell; of several, the first, which follows the paper's text."""
    found: dict[tuple[str, str, tuple[str, ...]], TableCell] = {}
    for table in tables:
        for cell in table.cells:
            if cell.answered and cell.paper.n and table.published_table:
                found.setdefault((table.system, table.published_table, cell.answered.name), cell)
    return found


def released_index(answers: Mapping[tuple[str, str], Mapping[Name, Both]]) -> CellIndex:
    """The same in the released code's reading."""
    return {
        (*key, name): both.released.cell
        for key, found in answers.items()
        for name, both in found.items()
        if both.released
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
    """Test a claim on the available runs and on the numbers that need no runs."""
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
    """Apply Holm's step-down correction; the order of the p values is kept."""
    adjusted, least = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        adjusted[place] = least = max(least, min(1.0, (len(ps) - rank) * ps[place]))
    return adjusted


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
