"""Judge a claim by its leads over paired seeds.

Runs with the same seed have the same partition, initial weights and cohorts, so seeds are blocks: a
comparison is tested on its leads by seed, and a claim on the mean over its comparisons, seed by
seed. docs/verdicts.md has the error rates.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fedrepro.report.papers.estimate import LEVEL, student_t
from fedrepro.report.papers.limits import in_words, least_seeds

Word = Literal[
    "holds everywhere", "holds", "too small to matter", "does not hold", "undecided", "not computed"
]
WORDS: tuple[Word, ...] = (
    "holds everywhere", "holds", "too small to matter", "does not hold", "undecided", "not computed"
)  # fmt: skip
# Of one comparison. "against by itself": its interval is, but not after Holm's correction.
Single = Literal["holds", "against", "against by itself", "undecided", "not computed"]

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
        p: of a true lead of ``by``, for this look alone; None if a t test is not possible.

    Examples:
        Leads of one method over another with the same five seeds, in points of accuracy:

        >>> from fedrepro.report.papers.leads import PairedTest
        >>> test = PairedTest.of([1.2, 0.8, 1.1, 0.9, 1.0], by=0.0)
        >>> print(f"{test.lead:.2f} [{test.low:.2f}, {test.high:.2f}]", test.word(by=0.0))
        1.00 [0.74, 1.26] holds
    """

    seeds: int
    lead: float
    low: float | None
    high: float | None
    p: float | None

    @classmethod
    def of(cls, leads: Sequence[float], by: float) -> "PairedTest":
        """Test against a true lead of ``by``; needs at least one value."""
        n, mean = len(leads), math.fsum(leads) / len(leads)
        if n == 1 or max(leads) - min(leads) < 1e-9:
            return cls(n, mean, None, None, None)
        from scipy.special import stdtr  # takes half a second, which pages without claims save

        error = math.sqrt(math.fsum([(lead - mean) ** 2 for lead in leads]) / (n - 1) / n)
        half = student_t(n - 1, level_at(n)) * error
        p = 2 * float(stdtr(n - 1, -abs(mean - by) / error))
        return cls(n, mean, mean - half, mean + half, p)

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """Low, mean and high; None if a t test is not possible."""
        if self.low is None or self.high is None:
            return None
        return self.low, self.lead, self.high

    def word(self, by: float) -> Single:
        """The verdict of its own interval."""
        if self.low is None or self.high is None:
            return "undecided"
        return "holds" if self.low > by else "against by itself" if self.high < by else "undecided"


class Diverged(NamedTuple):
    """How many runs of each side of a comparison diverged: their seeds have no lead.

    They count as the worst that could be: a comparison does not hold where a run on its left
    diverged, and is not against where one on its right did.
    """

    left: int = 0
    right: int = 0


@dataclass(frozen=True)
class Judged:
    """The verdict of leads on a claim.

    Attributes:
        overall: the test of the mean over all computed comparisons, on the seeds they share.
        tests, words, ps: of each comparison; p is corrected by Holm's method. None where nothing is
            computed, or no test is possible.
        needs: if undecided: how many seeds would decide, in words; "" if no spread is known.
    """

    word: Word
    why: str
    overall: PairedTest | None
    tests: tuple[PairedTest | None, ...]
    words: tuple[Single, ...]
    ps: tuple[float | None, ...]
    needs: str = ""

    @property
    def tally(self) -> str:
        return tally(self.words)


# How a count of single comparisons is told. A word may hold for the mean of comparisons that are
# themselves undecided, so pages show both.
TOLD: dict[Single, str] = {
    "holds": "hold",
    "undecided": "undecided",
    "against": "against",
    "against by itself": "against by themselves",
    "not computed": "not computed",
}


def tally(words: Sequence[Single]) -> str:
    """Such as ``3 of 6 comparisons hold, 3 undecided``; "" if nothing is computed."""
    if all(word == "not computed" for word in words):
        return ""
    if len(words) == 1:
        return "one comparison"
    rest = (
        f", {words.count(word)} {told}"
        for word, told in TOLD.items()
        if word != "holds" and word in words
    )
    return f"{words.count('holds')} of {len(words)} comparisons hold{''.join(rest)}"


def judge_leads(
    leads: Sequence[Mapping[int, float]],
    by: float,
    every: bool,
    margin: float | None,
    diverged: Sequence[Diverged] = (),
) -> Judged:
    """Judge a claim.

    Args:
        leads: for each of its comparisons the leads by seed, in the claimed direction; empty if it
            is not computed.
        by: the claimed lead.
        every: whether the claim is about every comparison, not about their mean.
        margin: a mean lead this small does not matter; None if nothing says so.
        diverged: for each of its comparisons; by default no run did.
    """
    diverged = diverged or [Diverged()] * len(leads)
    lost = Diverged(*map(sum, zip(*diverged, strict=True)))
    tests = tuple(
        PairedTest.of(list(by_seed.values()), by) if by_seed else None for by_seed in leads
    )
    ps = iter(holm([test.p for test in tests if test and test.p is not None], len(leads)))
    adjusted = tuple(next(ps) if test and test.p is not None else None for test in tests)
    words = tuple(
        _single(test, p, by, of) for test, p, of in zip(tests, adjusted, diverged, strict=True)
    )
    overall = _overall([by_seed for by_seed in leads if by_seed], by)
    word, why = _word(words, overall, by, every, margin, lost)
    needs = ""
    if word == "undecided" and any(lost):
        why += " A run that diverged has no lead; more seeds alone do not decide it."
    elif word == "undecided":
        needs, sentence = _open(overall, by, margin, all(leads))
        why += f" {sentence}"
    return Judged(word, why, overall, tests, words, adjusted, needs)


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


def _single(test: PairedTest | None, p: float | None, by: float, diverged: Diverged) -> Single:
    if test is None:
        return "not computed"
    word = test.word(by)
    if diverged.left if word == "holds" else diverged.right:
        return "undecided"
    significant = p is not None and p <= level_at(test.seeds)
    return "against" if word == "against by itself" and significant else word


def _overall(leads: Sequence[Mapping[int, float]], by: float) -> PairedTest | None:
    seeds = sorted(set.intersection(*({*by_seed} for by_seed in leads))) if leads else []
    means = [math.fsum(by_seed[seed] for by_seed in leads) / len(leads) for seed in seeds]
    return PairedTest.of(means, by) if means else None


def _word(
    words: Sequence[Single],
    overall: PairedTest | None,
    by: float,
    every: bool,
    margin: float | None,
    diverged: Diverged,
) -> tuple[Word, str]:
    of = len(words)
    computed = of - words.count("not computed")
    if not computed:
        return "not computed", "No comparison has runs of ours on both sides."
    there = f"{computed} of {of} comparisons computed"
    against = words.count("against")
    if every and against:
        return "does not hold", f"{there}: {against} significantly against it."
    alone = f"{words.count('holds')} lead by themselves"
    if overall is None or overall.low is None or overall.high is None:
        return "undecided", f"{there}."
    small = computed == of and by == 0 and _is_small(overall.low, overall.high, margin)
    if small and not any(diverged):
        return "too small to matter", f"{there}: the interval of their mean lead is about zero."
    # A mean below what is claimed of every comparison has at least one that is.
    if overall.high < by and (every or computed == of) and not diverged.right:
        return "does not hold", f"{there}: their mean lead is against it."
    if computed < of:
        return "undecided", f"{there}: {alone}, {against} against."
    if words.count("holds") == of:
        return "holds everywhere", f"{there}, and every one leads by itself."
    if overall.low > by and not diverged.left:
        return "holds", f"{there}: the mean leads, {alone}, {against} significantly against."
    return "undecided", f"{there}: {alone}, {against} significantly against."


def _is_small(low: float, high: float, margin: float | None) -> bool:
    return margin is not None and -margin <= low and high <= margin


def _open(
    overall: PairedTest | None, by: float, margin: float | None, complete: bool
) -> tuple[str, str]:
    """How many seeds decide the mean lead, and that or what else is missing as a sentence."""
    if not complete:
        return "", "More seeds alone do not decide it: the other comparisons are not computed."
    if overall is None:
        return "", "The comparisons share no seed."
    if overall.seeds == 1:
        return "at least 2", "One seed has no spread; two or more give one."
    if overall.low is None or overall.high is None:
        return "", "The mean lead is the same with every seed, so its spread is not known."
    n, lead = overall.seeds, overall.lead
    std = (overall.high - lead) * math.sqrt(n) / student_t(n - 1, level_at(n))

    def decides(seeds: int) -> bool:
        half = student_t(seeds - 1, level_at(seeds)) * std / math.sqrt(seeds)
        small = by == 0 and _is_small(lead - half, lead + half, margin)
        return small or abs(lead - by) > half

    needs = in_words(least_seeds(decides, n))
    return needs, f"If lead and spread stay as they are, {needs} seeds decide the mean lead."
