"""Whether our number agrees with the printed one, how sure that is, and the rule in words.

A verdict is only given to numbers from the published setting. Its limit depends on what is known:

- our seeds and splits are the authors' own: means over the same seeds are compared, so that what
  the seeds share cancels (a randomised block design);
- the printed spread is over other seeds: Welch's joint standard error;
- the printed spread is over clients, or missing: the printed number is one draw, so the 95 %
  prediction interval of one further seed of ours, or the tolerance if that is wider;
- one seed of ours and no printed spread over seeds: the tolerance alone.

Not to differ is not to agree: where the limit is wider than the effect that the paper claims there,
the two are compatible but the comparison is weak.
"""

import math
from dataclasses import dataclass
from typing import Literal

from fedrepro.report.papers.estimate import Estimate, Residual, student_t
from fedrepro.report.papers.published import PrintedCell, Spread, Unit

Word = Literal["agrees", "weak", "differs", "not comparable"]
Basis = Literal["paired", "joint", "draw", "tolerance", "arithmetic", "not comparable"]

# In printed units. Near 0 or 100 % a point is much: the tolerance is a quarter of the error rate
# (or of the rate itself) where that is less.
TOLERANCE: dict[Unit, float] = {"percent": 1.0, "fraction": 0.01, "own": 0.0}
WHOLE: dict[Unit, float] = {"percent": 100.0, "fraction": 1.0, "own": math.inf}
SHARE_OF_THE_RATE = 0.25
# A limit beyond this says little of any number.
WEAK: dict[Unit, float] = {"percent": 2.0, "fraction": 0.02, "own": math.inf}


@dataclass(frozen=True)
class Verdict:
    """A verdict, and why it is that.

    Attributes:
        limit: what the difference was held against.
        basis: where the limit comes from; None without one. "apart": none could be, as the printed
            number is of another kind or of other data; ours can be compared with each other.
        effect: what the paper claims between this cell and its rival, or None.
        seeds: how many of ours have a number.
    """

    word: Word
    why: str
    limit: float | None = None
    basis: Basis | None = None
    effect: float | None = None
    seeds: int | None = None


def judge(
    printed: PrintedCell,
    ours: Estimate,
    spread: Spread,
    effect: float | None = None,
    residual: Residual | None = None,
) -> Verdict:
    """Hold our estimate against a printed cell of the same setting and unit.

    Args:
        effect: the printed distance between this cell and the one that it is compared with.
        residual: of our methods over the authors' own seeds and splits, where we have those.
    """
    if printed.mean is None:
        return Verdict("not comparable", "The printed cell is empty.")
    over_seeds = spread.over == "seeds" and printed.std is not None
    basis: Basis
    if over_seeds and residual:
        basis, limit = "paired", residual.limit(ours.n)
        what = (
            f"the 95 % limit for means over the same {ours.n} seeds and splits, by what "
            f"{residual.methods} methods leave unexplained there"
        )
    elif over_seeds:
        basis, (limit, what) = "joint", _joint(printed, ours, spread)
    elif printed.unit == "own" and ours.std is None:
        whose = "One seed" if ours.n == 1 else "What all seeds have together"
        return Verdict("not comparable", f"{whose} has no spread, and a tolerance no meaning here.")
    else:
        basis, limit, what = _draw(printed, ours)
    limit = max(limit, rounding(printed))
    difference = abs(ours.mean - printed.mean)
    within = difference <= limit * (1 + 1e-9)
    bound, of_what = _bound(printed.unit, effect)
    word: Word = "differs" if not within else "weak" if limit > bound * (1 + 1e-9) else "agrees"
    digits = max(printed.decimals, 2)
    why = (
        f"The difference of {difference:.{digits}f} is {'at most' if within else 'more than'} "
        f"{limit:.{digits}f}, {what}."
    )
    if word == "weak":
        why += f" That is wider than {bound:.{digits}f}, {of_what}."
    return Verdict(word, why, limit, basis, effect, ours.n)


def judge_computed(printed: PrintedCell, value: float, std: float | None = None) -> Verdict:
    """Hold what was computed, without chance, against a printed cell that has a number."""
    assert printed.mean is not None
    unit = printed.last_digit
    limit = 0.0 if unit == 1 else unit
    pairs = [(value, printed.mean)]
    if std is not None and printed.std is not None:
        pairs.append((std, printed.std))
    difference = max(abs(ours - theirs) for ours, theirs in pairs)
    agrees = difference <= limit * (1 + 1e-9) + 1e-9
    return Verdict(
        "agrees" if agrees else "differs",
        f"The difference of {_short(difference, printed)} is "
        f"{'at most' if agrees else 'more than'} {limit:g}.",
        limit,
        "arithmetic",
    )


def _short(difference: float, printed: PrintedCell) -> str:
    """With two digits more than are printed, or three in all where those are large."""
    if printed.last_digit > 1:
        return f"{difference:.3g}"
    return f"{difference:.{printed.decimals + 2}f}"


COMPUTED_RULE = (
    "Nothing here depends on chance. A count agrees if it is the same; a rounded number, a mean or "
    "a spread if it differs by at most one unit of the last printed digit, as printed numbers may "
    "have been reckoned from rounded ones. Words and expressions agree if they are the same."
)


def rounding(printed: PrintedCell) -> float:
    """Half a unit of the last printed digit."""
    return 0.5 * 10.0**-printed.decimals


def tolerance(printed: PrintedCell) -> float:
    """What a number may differ by without a known spread: less near 0 and near 100 %."""
    assert printed.mean is not None
    whole = WHOLE[printed.unit]
    rate = max(0.0, min(printed.mean, whole - printed.mean))
    return min(TOLERANCE[printed.unit], SHARE_OF_THE_RATE * rate)


def _bound(unit: Unit, effect: float | None) -> tuple[float, str]:
    """The widest limit that still says something."""
    if effect is not None and effect < WEAK[unit]:
        return effect, "the effect that the paper claims here"
    return WEAK[unit], "two percentage points"


def _draw(printed: PrintedCell, ours: Estimate) -> tuple[Basis, float, str]:
    allowed, reach = tolerance(printed), ours.reach_of_a_draw
    words = "the tolerance at this rate"
    if reach is None:
        whose = "one seed" if ours.n == 1 else "what all seeds have together"
        return "tolerance", allowed, f"{words}; {whose} has no spread"
    if reach > allowed:
        return "draw", reach, f"where one more of our seeds would lie (95 %, {ours.n} seeds)"
    return "tolerance", allowed, f"{words}; {ours.n} seeds of ours spread less"


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
    tolerated = (
        "The tolerance is one percentage point, or a quarter of the printed error rate (or of the "
        "rate itself) where that is less: 0.25 points at 99 %."
    )
    draw = (
        "A printed number without a spread over seeds is one draw: two numbers are compatible if "
        "they differ by at most t s √(1 + 1/n), the 95 % reach of one more of our n seeds, or by "
        "the tolerance if that is wider. One seed of ours has the tolerance alone, and says so. "
        + tolerated
    )
    if spread.over == "seeds":
        kind = "population" if spread.ddof == 0 else "sample"
        first: tuple[str, ...] = (
            f"The printed spread is over {spread.seeds} seeds ({spread.source}), as a {kind} "
            "standard deviation. Two numbers are compatible if their difference is within the 95 "
            "% limit of the joint standard error (Welch's t). With one seed of ours the printed "
            "spread stands for ours too.",
        )
        if spread.own_splits:
            names = ", ".join(spread.own_splits.datasets)
            seeds = ", ".join(map(str, spread.own_splits.seeds))
            first += (
                f"On {names} our seeds and splits are the authors' own ({seeds}: "
                f"{spread.own_splits.source}). What a seed adds to every method then cancels. No "
                "number is printed seed by seed, so its scatter is taken from ours: the residual s "
                "of the two-way analysis of variance, methods by seeds, of the columns of the same "
                "reading (the paper's or the released code's). The limit is t s √(2/n).",
            )
        first += ("Where no spread is printed: " + draw[0].lower() + draw[1:],)
    else:
        unseeded = {
            "clients": "The printed spread is over clients, not over seeds",
            "none": "The paper prints no spread over seeds",
        }
        first = (f"{unseeded[spread.over]} ({spread.source}). {draw}",)
    return (
        *first,
        "Not to differ is not to agree. Compatible numbers agree if the limit is at most the "
        "effect that the paper claims there (the printed distance between the proposed method and "
        "the best other one, or between a method with and without a plug-in) and at most two "
        "points; otherwise they are compatible but weak.",
        "Numbers that are neither percentages nor fractions, such as rounds or a loss, have our "
        "seeds' spread alone. A limit is never tighter than half a unit of the last printed digit.",
        "Not comparable are cells with a run that diverged, of the one method or the best of "
        "several, with methods not yet run of those that the printed best is chosen from, from "
        "another configuration than the published one, or from data that stand in for the "
        "published ones. A number at scale demo has no verdict.",
    )
