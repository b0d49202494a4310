"""Judge a claim by its leads over paired seeds.

Runs with the same seed have the same partition, initial weights and cohorts, so seeds are blocks: a
comparison is tested on its leads by seed, and a claim on the mean over its comparisons, seed by
seed. docs/verdicts.md has the error rates.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from fedrepro.report.papers.claim import OF_THE_MEAN, Quantifier
from fedrepro.report.papers.estimate import LEVEL, Estimate, student_t
from fedrepro.report.papers.verdict import forecast_in_words, least_seeds


class Word(StrEnum):
    """The verdict on a claim."""

    HOLDS = "holds"
    HOLDS_IN_DIRECTION = "holds in direction"
    NOT_BEHIND = "not behind, ahead on average"
    LEADS_ON_AVERAGE = "leads on average"
    TOO_SMALL = "too small to matter"
    DOES_NOT_HOLD = "does not hold"
    UNDECIDED = "undecided"
    NOT_COMPUTED = "not computed"


class Single(StrEnum):
    """The verdict on one comparison.

    ``NOT_BEHIND``: not behind by more than the margin. ``AGAINST_BY_ITSELF``: its interval
    is against the claim, but not after Holm's correction.
    """

    LEADS = "leads"
    NOT_BEHIND = "not behind"
    AGAINST = "against"
    AGAINST_BY_ITSELF = "against by itself"
    UNDECIDED = "undecided"
    NOT_COMPUTED = "not computed"


# More seeds are made while a claim has one of these.
OPEN = (Word.LEADS_ON_AVERAGE, Word.UNDECIDED)

# Seeds are added up to fifteen while a claim is undecided, and each look could err. Pocock (1977):
# three looks at this level are one test at 5 %. Fewer seeds are those that were set beforehand.
LOOKS = (5, 10, 15)
POCOCK = 0.0221


def level_at(seeds: int) -> float:
    """The two-sided level of a test on this many seeds."""
    return LEVEL if seeds < LOOKS[0] else POCOCK


@dataclass(frozen=True)
class PairedTest:
    """Leads over paired seeds: mean, 95 % interval and two-sided p, by Student's t.

    Attributes:
        seeds: number of pairs; 0 if both numbers are deterministic.
        low, high: of the interval, which is wider from five seeds on: it holds the true lead in
            95 % of cases over all three looks. None if a t test is not possible.
        p: of a true lead of ``limit``, for this look alone; None if a t test is not possible.

    Examples:
        Leads of one method over another with the same five seeds, in points of accuracy:

        >>> from fedrepro.report.papers.leads import PairedTest
        >>> test = PairedTest.of([1.2, 0.8, 1.1, 0.9, 1.0], limit=0.0)
        >>> print(f"{test.lead:.2f} [{test.low:.2f}, {test.high:.2f}]", test.is_above(0.0))
        1.00 [0.74, 1.26] True
    """

    seeds: int
    lead: float
    low: float | None
    high: float | None
    p: float | None

    @classmethod
    def of(cls, leads: Sequence[float], limit: float) -> "PairedTest":
        """Test against a true lead of ``limit``; needs at least one value."""
        over = Estimate.of(leads)
        if over.std is None or max(leads) - min(leads) < 1e-9:
            return cls(over.n, over.mean, None, None, None)
        return cls.with_spread(over.n, over.mean, over.std, limit)

    @classmethod
    def with_spread(cls, seeds: int, lead: float, std: float, limit: float) -> "PairedTest":
        """Test a mean lead with this standard deviation over seeds."""
        from scipy.special import stdtr  # takes half a second, which pages without claims save

        error = std / math.sqrt(seeds)
        half = student_t(seeds - 1, level_at(seeds)) * error
        p = 2 * float(stdtr(seeds - 1, -abs(lead - limit) / error))
        return cls(seeds, lead, lead - half, lead + half, p)

    def with_seeds(self, seeds: int, limit: float) -> "PairedTest":
        """Return the same mean lead and spread over another number of seeds, for forecasts."""
        if self.high is None:
            return self
        n = self.seeds
        std = (self.high - self.lead) * math.sqrt(n) / student_t(n - 1, level_at(n))
        return PairedTest.with_spread(seeds, self.lead, std, limit)

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """Low, mean and high; None if a t test is not possible."""
        if self.low is None or self.high is None:
            return None
        return self.low, self.lead, self.high

    def is_above(self, limit: float) -> bool:
        """Return True if the whole interval is above a lead."""
        return self.low is not None and self.low > limit

    def is_below(self, limit: float) -> bool:
        """Return True if the whole interval is below a lead."""
        return self.high is not None and self.high < limit

    def is_within(self, margin: float) -> bool:
        """Return True if the whole interval is within a margin of zero, on both sides."""
        interval = self.interval
        return interval is not None and -margin <= interval[0] and interval[2] <= margin


class Diverged(NamedTuple):
    """How many runs of each side of a comparison diverged: their seeds have no lead.

    They count as the worst that could be: a comparison does not lead where a run on its left
    diverged, and is not against where one on its right did.
    """

    left: int = 0
    right: int = 0


@dataclass(frozen=True)
class Comparison:
    """One comparison of a claim, with its verdict.

    Attributes:
        test: of its leads; None if it is not computed.
        p: corrected by Holm's method; None if no test is possible.
        pair: the cells that are compared, where they are known.
        means: of the left and the right cell over the seeds that both have, or None.
    """

    word: Single
    test: PairedTest | None = None
    p: float | None = None
    pair: Any = None
    means: tuple[float, float] | None = None


@dataclass(frozen=True)
class Judged:
    """The verdict of leads on a claim.

    Attributes:
        overall: the test of the mean over all computed comparisons, on the seeds they share.
        needs: if it is open: how many seeds would decide, in words; "" if no spread is known.
    """

    word: Word
    why: str
    overall: PairedTest | None
    comparisons: tuple[Comparison, ...]
    needs: str = ""

    @property
    def words(self) -> tuple[Single, ...]:
        return tuple(comparison.word for comparison in self.comparisons)

    @property
    def tally(self) -> str:
        """How many comparisons have each word, such as ``3 of 6 comparisons lead, 3 undecided``."""
        return tally(self.words)


# How counts of single comparisons are written.
COUNTED: dict[Single, str] = {
    Single.LEADS: "lead",
    Single.NOT_BEHIND: "not behind",
    Single.UNDECIDED: "undecided",
    Single.AGAINST: "against",
    Single.AGAINST_BY_ITSELF: "against by themselves",
    Single.NOT_COMPUTED: "not computed",
}


def tally(words: Sequence[Single]) -> str:
    """Return such as ``3 of 6 comparisons lead, 3 undecided``; "" if nothing is computed."""
    if all(word == Single.NOT_COMPUTED for word in words):
        return ""
    if len(words) == 1:
        return "one comparison"
    rest = (
        f", {words.count(word)} {counted}"
        for word, counted in COUNTED.items()
        if word != Single.LEADS and word in words
    )
    return f"{words.count(Single.LEADS)} of {len(words)} comparisons lead{''.join(rest)}"


@dataclass(frozen=True)
class Rule:
    """How a claim is judged.

    Attributes:
        by: the claimed lead, in printed units.
        quantifier: ``each`` and ``amount`` are about every comparison, ``more`` and ``average``
            about their mean; ``same`` says that each lead is within the margin on both sides.
        margin: how small a lead does not matter; None if nothing says so.
    """

    by: float = 0.0
    quantifier: Quantifier = "each"
    margin: float | None = None

    @property
    def is_of_the_mean(self) -> bool:
        """Whether only the mean over the comparisons counts."""
        return self.quantifier in OF_THE_MEAN

    @property
    def behind(self) -> float:
        """The lead below which a comparison is against the claim."""
        if self.quantifier == "same":
            return -(self.margin or 0.0)
        allowed = self.margin if self.by == 0 and not self.is_of_the_mean else None
        return self.by - (allowed or 0.0)

    def word(
        self,
        comparisons: Sequence[Comparison],
        overall: PairedTest | None,
        lost: Diverged,
    ) -> Word:
        """Return the verdict; docs/verdicts.md has the rules in words, and their error rates."""
        singles = [comparison.word for comparison in comparisons]
        computed = [comparison.test for comparison in comparisons if comparison.test]
        if not computed:
            return Word.NOT_COMPUTED
        if self.quantifier == "same" and self.margin is None:
            return Word.UNDECIDED
        if not self.is_of_the_mean and Single.AGAINST in singles:
            return Word.DOES_NOT_HOLD
        if len(computed) < len(comparisons) or overall is None:
            return Word.UNDECIDED
        if self.is_of_the_mean and overall.is_below(self.by) and not lost.right:
            return Word.DOES_NOT_HOLD
        if self.quantifier == "same":
            beyond = any(test.is_above(self.margin or 0.0) for test in computed)
            if beyond and not lost.left:
                return Word.DOES_NOT_HOLD
            return Word.HOLDS if self._is_small(computed, overall, lost) else Word.UNDECIDED
        ahead = overall.is_above(self.by) and not lost.left
        if not self.is_of_the_mean:
            if all(single == Single.LEADS for single in singles):
                return Word.HOLDS
            if ahead and all(single in (Single.LEADS, Single.NOT_BEHIND) for single in singles):
                return Word.NOT_BEHIND
        if self.by == 0 and self._is_small(computed, overall, lost):
            return Word.TOO_SMALL
        if ahead:
            return Word.HOLDS if self.is_of_the_mean else Word.LEADS_ON_AVERAGE
        return Word.UNDECIDED

    def _is_small(self, tests: Sequence[PairedTest], overall: PairedTest, lost: Diverged) -> bool:
        if self.margin is None or any(lost):
            return False
        every = () if self.is_of_the_mean else tests
        return all(test.is_within(self.margin) for test in (*every, overall))

    def comparisons(
        self, tests: Sequence[PairedTest | None], diverged: Sequence[Diverged]
    ) -> tuple[Comparison, ...]:
        """Return each comparison with its word, and its p after Holm's correction."""
        raw = [test.p for test in tests if test and test.p is not None]
        corrected = iter(holm(raw, len(tests)))
        ps = tuple(next(corrected) if test and test.p is not None else None for test in tests)
        rows = zip(tests, ps, diverged, strict=True)
        return tuple(Comparison(self._single(test, p, lost), test, p) for test, p, lost in rows)

    def _single(self, test: PairedTest | None, p: float | None, lost: Diverged) -> Single:
        if test is None:
            return Single.NOT_COMPUTED
        if test.is_below(self.behind) and not lost.right:
            significant = p is not None and p <= level_at(test.seeds)
            return Single.AGAINST if significant else Single.AGAINST_BY_ITSELF
        if lost.left:
            return Single.UNDECIDED
        if self.quantifier != "same" and test.is_above(self.by):
            return Single.LEADS
        return Single.NOT_BEHIND if test.is_above(self.behind) else Single.UNDECIDED


def judge_leads(
    leads: Sequence[Mapping[int, float]], rule: Rule, diverged: Sequence[Diverged] = ()
) -> Judged:
    """Judge a claim.

    Args:
        leads: for each of its comparisons the leads by seed, in the claimed direction; empty if it
            is not computed.
        diverged: for each of its comparisons; by default no run did.
    """
    diverged = diverged or [Diverged()] * len(leads)
    lost = Diverged(*map(sum, zip(*diverged, strict=True)))
    tests = tuple(PairedTest.of([*by.values()], rule.behind) if by else None for by in leads)
    comparisons = rule.comparisons(tests, diverged)
    overall = overall_of([by for by in leads if by], rule.by)
    word = rule.word(comparisons, overall, lost)
    needs = ""
    if not any(tests):
        why = "No comparison has runs of ours on both sides."
        return Judged(word, why, None, comparisons)
    why = ""  # the tally has the counts
    if word in OPEN and any(lost):
        why = "A run that diverged has no lead; more seeds alone do not decide it."
    elif word in OPEN:
        needs, why = _open(rule, tests, overall)
    return Judged(word, why, overall, comparisons, needs)


def holm(ps: Sequence[float], of: int) -> list[float]:
    """Apply Holm's step-down correction; the order of the p values is kept.

    Args:
        of: the number of comparisons in the family, those without a p value included: computing one
            more does not change the others' correction.
    """
    adjusted, least = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        adjusted[place] = least = max(least, min(1.0, (of - rank) * ps[place]))
    return adjusted


def overall_of(leads: Sequence[Mapping[int, float]], by: float) -> PairedTest | None:
    """Test the mean over comparisons, on the seeds that they share; None if they share none."""
    seeds = sorted(set.intersection(*({*lead} for lead in leads))) if leads else []
    means = [math.fsum(lead[seed] for lead in leads) / len(leads) for seed in seeds]
    return PairedTest.of(means, by) if means else None


def _open(
    rule: Rule, tests: Sequence[PairedTest | None], overall: PairedTest | None
) -> tuple[str, str]:
    """How many seeds decide a claim, and that or what else is missing as a sentence."""
    if rule.quantifier == "same" and rule.margin is None:
        return "", "The text gives no limit, so no run can decide it."
    if not all(tests):
        return "", "More seeds alone do not decide it: the other comparisons are not computed."
    if overall is None:
        return "", "The comparisons share no seed."
    if overall.seeds == 1:
        return "at least 2", "One seed has no spread; two or more give one."
    if overall.interval is None:
        return "", "The mean lead is the same with every seed, so its spread is not known."

    def decides(seeds: int) -> bool:
        later = [test and test.with_seeds(seeds, rule.behind) for test in tests]
        comparisons = rule.comparisons(later, [Diverged()] * len(later))
        mean = overall.with_seeds(seeds, rule.by)
        return rule.word(comparisons, mean, Diverged()) not in OPEN

    needs = forecast_in_words(least_seeds(decides, overall.seeds))
    return needs, f"If leads and spreads stay as they are, {needs} seeds decide it."
