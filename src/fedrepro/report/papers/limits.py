"""How far apart two numbers with the same true value may be: the 95 % limit, by what is known."""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from fedrepro.report.papers.estimate import Borrowed, Estimate, Paired, student_t
from fedrepro.report.papers.published import PrintedCell, Spread

Basis = Literal["paired", "joint", "draw", "borrowed", "arithmetic", "not comparable"]

# More seeds than anybody would run.
MOST = 100


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
    """The least number of seeds, above ``above``, that decides; None if :data:`MOST` do not.

    More seeds narrow every limit, so what some number decides, all larger ones do.
    """
    low, high = max(above + 1, 2), MOST
    if low > high or not decides(high):
        return None
    return bisect_left(range(MOST), True, low, high, key=decides)


def in_words(seeds: int | None) -> str:
    """A forecast, such as "12" or "more than 100"."""
    return f"more than {MOST}" if seeds is None else str(seeds)
