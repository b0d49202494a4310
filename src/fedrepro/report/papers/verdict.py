"""Whether our number agrees with the printed one, and the rule in words.

A verdict is only given to numbers from the published setting. Where the printed spread is over
seeds, both uncertainties are known and Welch's joint standard error decides. Where it is over
clients, or missing, it says nothing about another seed: one percentage point or our own 95 %
interval decides, whichever is wider.
"""

import math
from dataclasses import dataclass
from typing import Literal

from fedrepro.report.papers.estimate import Estimate, student_t
from fedrepro.report.papers.published import PrintedCell, Spread, Unit

Word = Literal["agrees", "differs", "not comparable"]
ONE_POINT: dict[Unit, float] = {"percent": 1.0, "fraction": 0.01, "own": 0.0}


@dataclass(frozen=True)
class Verdict:
    """A verdict, and why it is that: with the limit that the difference was held against."""

    word: Word
    why: str
    limit: float | None = None


def judge(printed: PrintedCell, ours: Estimate, spread: Spread) -> Verdict:
    """Hold our estimate against a printed cell of the same setting and unit."""
    if printed.mean is None:
        return Verdict("not comparable", "The printed cell is empty.")
    over_seeds = spread.over == "seeds" and printed.std is not None
    if over_seeds:
        limit, what = _joint(printed, ours, spread)
    elif printed.unit == "own" and ours.half_width is None:
        return Verdict(
            "not comparable", "One seed has no interval, and one percentage point no meaning here."
        )
    else:
        limit, what = _own(printed.unit, ours)
    limit = max(limit, rounding(printed))
    difference = abs(ours.mean - printed.mean)
    agrees = difference <= limit * (1 + 1e-9)
    word: Word = "agrees" if agrees else "differs"
    relation = "at most" if agrees else "more than"
    digits = max(printed.decimals, 2)
    return Verdict(
        word,
        f"The difference of {difference:.{digits}f} is {relation} {limit:.{digits}f}, {what}.",
        limit,
    )


def judge_computed(printed: PrintedCell, value: float, std: float | None = None) -> Verdict:
    """Hold what was computed, without chance, against a printed cell that has a number."""
    assert printed.mean is not None
    limit = 10.0**-printed.decimals if printed.decimals else 0.0
    pairs = [(value, printed.mean)]
    if std is not None and printed.std is not None:
        pairs.append((std, printed.std))
    difference = max(abs(ours - theirs) for ours, theirs in pairs)
    agrees = difference <= limit + 1e-9
    return Verdict(
        "agrees" if agrees else "differs",
        f"The difference of {difference:.{printed.decimals + 2}f} is "
        f"{'at most' if agrees else 'more than'} {limit:g}.",
        limit,
    )


COMPUTED_RULE = (
    "Nothing here depends on chance. A count agrees if it is the same; a fraction, a mean or a "
    "spread if it differs by at most one unit of the last printed digit, as printed numbers may "
    "have been reckoned from rounded ones."
)


def rounding(printed: PrintedCell) -> float:
    """Half a unit of the last printed digit."""
    return 0.5 * 10.0**-printed.decimals


def _own(unit: Unit, ours: Estimate) -> tuple[float, str]:
    point = ONE_POINT[unit]
    if ours.half_width is None:
        return point, "one percentage point (a single seed has no interval)"
    if ours.half_width > point:
        return ours.half_width, f"the half-width of our 95 % interval over {ours.n} seeds"
    return point, "one percentage point, which is wider than our 95 % interval"


def _joint(printed: PrintedCell, ours: Estimate, spread: Spread) -> tuple[float, str]:
    """Welch: the 95 % limit of the difference of two means."""
    assert printed.std is not None
    n = spread.seeds
    variance = printed.std**2
    if spread.ddof == 0 and n > 1:
        variance *= n / (n - 1)
    theirs = variance / n
    if ours.std is None:  # the printed spread stands for ours as well
        limit = student_t(n - 1) * math.sqrt(theirs + variance)
        return limit, (
            "the 95 % limit of the joint standard error, in which the printed spread stands "
            "for ours too as we have one seed"
        )
    own = ours.std**2 / ours.n
    total = theirs + own
    if total == 0:
        return 0.0, "as neither spread leaves room"
    degrees = total**2 / (theirs**2 / (n - 1) + own**2 / (ours.n - 1))
    return student_t(degrees) * math.sqrt(total), "the 95 % limit of the joint standard error"


def rule_in_words(spread: Spread) -> tuple[str, ...]:
    """The rule for a system's tables, as sentences for the reader."""
    seeded = (
        f"The printed spread is over {spread.seeds} seeds ({spread.source}), as a "
        f"{'population' if spread.ddof == 0 else 'sample'} standard deviation. Two numbers "
        "agree if their difference is within the 95 % limit of the joint standard error "
        "(Welch's t). With one seed of ours the printed spread stands for ours too."
    )
    unseeded = {
        "clients": "The printed spread is over clients, not over seeds",
        "none": "The paper prints no spread over seeds",
    }
    point = (
        "Two numbers agree if they differ by at most one percentage point or by the half-width of "
        "our own 95 % interval over seeds (Student's t), whichever is wider."
    )
    first: tuple[str, ...]
    if spread.over == "seeds":
        first = (seeded, "Where no spread is printed: " + point[0].lower() + point[1:])
    else:
        first = (f"{unseeded[spread.over]} ({spread.source}). {point}",)
    return (
        *first,
        "Numbers that are neither percentages nor fractions, such as rounds or a loss, have our "
        "interval alone. A limit is never tighter than half a unit of the last printed digit.",
        "Not comparable are cells with a run that diverged, of the one method or the best of "
        "several, with methods not yet run of those that the printed best is chosen from, or from "
        "another configuration than the published one. A number at scale demo has no verdict.",
    )
