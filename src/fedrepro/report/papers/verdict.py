"""Compare our number with the printed one: verdict, limit, and the explanation.

Only numbers from the published setting have a verdict. Two tests share one 95 % limit of the
difference (:class:`Limit`, by what is known of the spreads):

- "differs" is a test of difference at 5 %: the difference is more than the limit;
- "agrees" is an equivalence test, two one-sided tests at 2.5 % each: the difference and the limit
  together are within the margin, that is the effect that the paper claims there.

Otherwise the verdict is "undecided", and says how many seeds would decide. Five distances between
the printed number and ours play a part, all in the printed number's unit, such as points:

- ``limit``: numbers with the same true value differ by more in 5 % of cases (from the spreads);
- ``rounded_limit``: the limit plus half a unit of the last printed digit; pages show this one;
- ``claimed_effect``: the printed distance to the number that the paper compares this one with;
- ``margin``: what is close enough to agree: the claimed effect, but at most two points; where
  none is claimed, the tolerance of a point;
- ``least_difference``: no smaller one is said to differ; 0, but the tolerance where the spread is
  not this cell's own.

So "agrees" is difference + rounded_limit <= margin, and "differs" is
difference > max(rounded_limit, least_difference). docs/verdicts.md has the error rates, and
the macro ``rule`` of the templates states the rule for readers.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from fedrepro.report.papers.estimate import LEVEL, Borrowed, Estimate, Paired, student_t
from fedrepro.report.papers.published import MOST, PrintedCell, Spread, Unit

Basis = Literal["paired", "joint", "draw", "borrowed", "arithmetic", "not comparable"]

# More seeds than anybody would run.
MOST_SEEDS = 100

Word = Literal["agrees", "undecided", "differs", "not comparable"]
WORDS: tuple[Word, ...] = ("agrees", "undecided", "differs", "not comparable")

# How often, at most, a test errs: of cells with equal true values, those that it says to differ; of
# cells that are a margin or more apart, those that it says to agree. Welch's t is an approximation.
ERRORS: dict[Basis, tuple[float, float]] = {
    "joint": (0.06, 0.03),
    **dict.fromkeys(("paired", "draw", "borrowed"), (LEVEL, LEVEL / 2)),
}

# In printed units. Near 0 or 100 % a point is a lot: the tolerance is a quarter of the error rate
# (or of the rate itself) if that is smaller.
TOLERANCE: dict[Unit, float] = {"percent": 1.0, "fraction": 0.01, "own": 0.0}
SHARE_OF_THE_RATE = 0.25
# Numbers farther apart than this do not agree, whatever the paper claims.
WIDEST: dict[Unit, float] = {"percent": 2.0, "fraction": 0.02, "own": math.inf}
# Two of our methods are twins if no seed separates them by more than this; they count once.
TWINS: dict[Unit, float] = {"percent": 0.05, "fraction": 0.0005, "own": 0.0}
SLACK = 1 + 1e-9


@dataclass(frozen=True)
class Limit:
    """The 95 % limit of the difference between a printed number and ours.

    Attributes:
        what: where it comes from, in words.
        at: what it would be with this many seeds of ours (at least two) and the same spread; None
            if further seeds of ours say nothing about the printed number.
    """

    basis: Basis
    value: float
    what: str
    at: Callable[[int], float] | None


def limit_of(
    printed: PrintedCell,
    ours: Estimate,
    spread: Spread,
    paired: Paired | None = None,
    borrowed: Borrowed | None = None,
) -> Limit | None:
    """The limit of a difference; None if no spread is known. A spread of zero counts as unknown."""
    if paired and paired.std:
        value = student_t(paired.seeds - 1) * paired.std * math.sqrt(2 / paired.seeds)
        what = (
            f"the 95 % limit for means over the same {paired.seeds} seeds and splits, from this "
            f"method's own scatter about the median of {paired.others} other methods"
        )
        return Limit("paired", value, what, None)
    if spread.over == "seeds" and printed.std:
        theirs = variance_of(printed.std, spread)
        at = partial(welch, theirs if ours.std is None else ours.std**2, theirs, spread.seeds)
        if ours.std is not None:
            value = at(ours.n)
            what = "the 95 % limit of the joint standard error"
        else:
            value = student_t(spread.seeds - 1) * math.sqrt(theirs * (1 + 1 / spread.seeds))
            what = (
                "the 95 % limit of the joint standard error, where the printed spread also serves "
                "as ours, which has none"
            )
        return Limit("joint", value, what, at)
    if ours.std:
        what = f"the 95 % prediction interval of one more seed ({ours.n} seeds)"
        return Limit("draw", draw(ours.std, ours.n), what, partial(draw, ours.std))
    if borrowed:
        what = f"the 95 % limit of two single draws, with the spread of {borrowed.source}"
        return Limit("borrowed", borrowed.limit, what, partial(draw, borrowed.std))
    return None


def variance_of(std: float, spread: Spread) -> float:
    """The variance of one seed, unbiased, from a printed standard deviation over seeds."""
    n = spread.seeds
    return std**2 * (n / (n - 1) if spread.ddof == 0 and n > 1 else 1.0)


def welch(own: float, theirs: float, m: int, n: int) -> float:
    """Welch's 95 % limit of the difference of two means, of ``n`` and of ``m`` seeds.

    Degrees of freedom are rounded down: with two seeds it errs in 6.5 % of cases otherwise.

    Args:
        own, theirs: the variances of one seed.
    """
    a, b = own / n, theirs / m
    degrees = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))
    return student_t(math.floor(degrees)) * math.sqrt(a + b)


def draw(std: float, n: int) -> float:
    """Half the 95 % prediction interval of one more value, about the mean of ``n``."""
    return student_t(n - 1) * std * math.sqrt(1 + 1 / n)


def least_seeds(decides: Callable[[int], bool], above: int) -> int | None:
    """The least number of seeds, above ``above``, that decides; None if :data:`MOST_SEEDS` do not.

    More seeds narrow every limit, so what some number decides, all larger ones do.
    """
    low, high = max(above + 1, 2), MOST_SEEDS
    if low > high or not decides(high):
        return None
    return bisect_left(range(MOST_SEEDS), True, low, high, key=decides)


def forecast_in_words(seeds: int | None) -> str:
    """A forecast, such as "12" or "more than 100"."""
    return f"more than {MOST_SEEDS}" if seeds is None else str(seeds)


@dataclass(frozen=True)
class Verdict:
    """A verdict and its explanation.

    Attributes:
        limit: the 95 % limit of the difference.
        basis: the limit's source; None without a limit. "not comparable": the printed number is of
            another kind or on other data; our numbers are comparable with each other only.
        margin: what the difference and its limit are within if the numbers agree, or None.
        seeds: how many of our seeds have a number.
        needs: if undecided: how many seeds would decide, in words.
    """

    word: Word
    why: str
    limit: float | None = None
    basis: Basis | None = None
    margin: float | None = None
    seeds: int | None = None
    needs: str = ""

    @property
    def is_of_current_runs(self) -> bool:
        """Return True if ours is whole, and of today's code and configuration.

        Not if the printed cell is empty, a seed diverged, or the best of several is not all run.
        """
        return (self.word, self.basis) != ("not comparable", None)


def judge(
    printed: PrintedCell,
    ours: Estimate,
    spread: Spread,
    claimed_effect: float | None = None,
    paired: Paired | None = None,
    borrowed: Borrowed | None = None,
) -> Verdict:
    """Compare our estimate with a printed cell of the same setting and unit.

    Args:
        claimed_effect: the printed distance between this cell and the one that it is compared with.
        paired: our method's spread on the authors' seeds and splits, if we have those.
        borrowed: a spread for one seed of ours, if neither it nor the printed number has any.
    """
    if printed.mean is None:
        return Verdict("not comparable", "The printed cell is empty.")
    margin, of_what = margin_of(printed, claimed_effect)
    limit = limit_of(printed, ours, spread, paired, borrowed)
    if limit is None:
        return _without_a_spread(ours, margin)
    half_a_digit, at = rounding(printed), limit.at
    rounded_limit = limit.value + half_a_digit
    least_difference = tolerance(printed) if limit.basis == "borrowed" else 0.0
    difference = abs(ours.mean - printed.mean)
    word = word_of(difference, rounded_limit, margin, least_difference)
    digits = max(printed.decimals, 2)
    apart, wide = f"{difference:.{digits}f}", f"{rounded_limit:.{digits}f}"
    within = "" if margin is None else f"{margin:.{digits}f}, {of_what}"
    needs = ""
    if word == "agrees":
        why = f"The difference of {apart} and {wide}, {limit.what}, are together within {within}."
    elif word == "differs":
        why = f"The difference of {apart} is more than {wide}, {limit.what}."
    elif difference > rounded_limit * SLACK:
        why = (
            f"The difference of {apart} is more than {wide}, {limit.what}; but that spread is not "
            f"this cell's own, and the tolerance there is {least_difference:.{digits}f}."
        )
    else:
        why = f"The difference of {apart} is at most {wide}, {limit.what}, so it may be chance."
        why += f" Both together are more than {within}." if within else " No effect is claimed."
    if word == "undecided" and at:

        def decides(seeds: int) -> bool:
            return word_of(difference, at(seeds) + half_a_digit, margin) != "undecided"

        needs = forecast_in_words(least_seeds(decides, ours.n))
        why += f" If difference and spread stay as they are, {needs} seeds decide."
    elif word == "undecided":
        why += " Further seeds do not help: the printed mean is over these."
    return Verdict(word, why, rounded_limit, limit.basis, margin, ours.n, needs)


def word_of(
    difference: float, rounded_limit: float, margin: float | None, least_difference: float = 0.0
) -> Word:
    """The verdict on an absolute difference."""
    if margin is not None and difference + rounded_limit <= margin * SLACK:
        return "agrees"
    return "differs" if difference > max(rounded_limit, least_difference) * SLACK else "undecided"


def margin_of(printed: PrintedCell, claimed_effect: float | None) -> tuple[float | None, str]:
    """The distance that is close enough to agree, and its source; None if nothing says."""
    if claimed_effect:
        widest = WIDEST[printed.unit]
        if claimed_effect <= widest:
            return claimed_effect, "the effect that the paper claims here"
        return widest, "two percentage points"
    return (tolerance(printed) or None), "the tolerance, as no effect is claimed here"


def _without_a_spread(ours: Estimate, margin: float | None) -> Verdict:
    whose = "One seed has no spread" if ours.n == 1 else "These seeds show no spread"
    if ours.n > 1 and ours.std is None:
        whose = "A number over all seeds has no spread"
    why = (
        f"{whose}, no other is printed over seeds, and no other row has several seeds of this "
        "column on this data set."
    )
    needs = "at least 2" if ours.n == 1 else ""
    if needs:
        why += " Two or more seeds give one."
    return Verdict("undecided", why, margin=margin, seeds=ours.n, needs=needs)


def judge_computed(printed: PrintedCell, value: float, std: float | None = None) -> Verdict:
    """Compare a number that involves no randomness with a printed cell that has a number."""
    assert printed.mean is not None
    unit = printed.last_digit
    limit = 0.0 if unit == 1 else unit
    pairs = [(value, printed.mean)]
    if std is not None and printed.std is not None:
        pairs.append((std, printed.std))
    difference = max(abs(our - their) for our, their in pairs)
    agrees = difference <= limit * SLACK + 1e-9
    return Verdict(
        "agrees" if agrees else "differs",
        f"The difference of {_short(difference, printed)} is "
        f"{'at most' if agrees else 'more than'} {limit:g}.",
        limit,
        "arithmetic",
    )


def _short(difference: float, printed: PrintedCell) -> str:
    """Two digits more than printed; large numbers get three digits in all."""
    if printed.last_digit > 1:
        return f"{difference:.3g}"
    return f"{difference:.{printed.decimals + 2}f}"


def rounding(printed: PrintedCell) -> float:
    """Half a unit of the last printed digit."""
    return printed.last_digit / 2


def tolerance(printed: PrintedCell) -> float:
    """The distance that is close enough without a claimed effect; smaller near 0 and near 100 %."""
    assert printed.mean is not None
    rate = min(abs(printed.mean), MOST[printed.unit] - printed.mean)
    return min(TOLERANCE[printed.unit], SHARE_OF_THE_RATE * rate)
