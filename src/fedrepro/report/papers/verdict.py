"""Compare our number with the printed one: verdict, limit, and the rule in words.

Only numbers from the published setting have a verdict. Its limit depends on what is known:

- our seeds and splits are the authors' own: means over the same seeds are compared, so that effects
  common to a seed cancel (a randomised block design);
- the printed spread is over other seeds: Welch's joint standard error;
- the printed spread is over clients, or missing: the printed number is one draw, so the 95 %
  prediction interval of one further seed of ours, or the tolerance if that is wider;
- one seed of ours and no printed spread over seeds: the tolerance alone.

Numbers that do not differ need not agree: if the limit is wider than the effect that the paper
claims there, the two are compatible but the comparison is weak.
"""

import math
from dataclasses import dataclass
from typing import Literal

from fedrepro.report.papers.estimate import Estimate, Residual, student_t
from fedrepro.report.papers.published import PrintedCell, Spread, Unit

Word = Literal["agrees", "weak", "differs", "not comparable"]
Basis = Literal["paired", "joint", "draw", "tolerance", "arithmetic", "not comparable"]

# In printed units. Near 0 or 100 % a point is a lot: the tolerance is a quarter of the error rate
# (or of the rate itself) if that is smaller.
TOLERANCE: dict[Unit, float] = {"percent": 1.0, "fraction": 0.01, "own": 0.0}
WHOLE: dict[Unit, float] = {"percent": 100.0, "fraction": 1.0, "own": math.inf}
SHARE_OF_THE_RATE = 0.25
# A limit beyond this is too wide to show agreement.
WEAK: dict[Unit, float] = {"percent": 2.0, "fraction": 0.02, "own": math.inf}


@dataclass(frozen=True)
class Verdict:
    """A verdict and its explanation.

    Attributes:
        limit: the limit that the difference was compared with.
        basis: the limit's source; None without a limit. "apart": the printed number is of another
            kind or on other data; our numbers are comparable with each other only.
        effect: the difference that the paper claims between this cell and its rival, or None.
        seeds: how many of our seeds have a number.
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
    """Compare our estimate with a printed cell of the same setting and unit.

    Args:
        effect: the printed distance between this cell and the one that it is compared with.
        residual: of our methods over the authors' seeds and splits, if we have those.
    """
    if printed.mean is None:
        return Verdict("not comparable", "The printed cell is empty.")
    over_seeds = spread.over == "seeds" and printed.std is not None
    basis: Basis
    if over_seeds and residual:
        basis, limit = "paired", residual.limit(ours.n)
        what = (
            f"the 95 % limit for means over the same {ours.n} seeds and splits, from the "
            f"residuals of {residual.methods} methods there"
        )
    elif over_seeds:
        basis, (limit, what) = "joint", _joint(printed, ours, spread)
    elif printed.unit == "own" and ours.std is None:
        whose = "One seed" if ours.n == 1 else "A number over all seeds"
        return Verdict("not comparable", f"{whose} has no spread, and no tolerance applies here.")
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
    """Compare a number that involves no randomness with a printed cell that has a number."""
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
    """Two digits more than printed; large numbers get three digits in all."""
    if printed.last_digit > 1:
        return f"{difference:.3g}"
    return f"{difference:.{printed.decimals + 2}f}"


COMPUTED_RULE = (
    "These numbers involve no randomness. A count agrees if it is equal. A rounded number, mean "
    "or spread agrees if it differs by at most one unit of the last printed digit, as printed "
    "numbers may have been computed from rounded ones. Words and expressions agree if they are "
    "equal."
)


def rounding(printed: PrintedCell) -> float:
    """Half a unit of the last printed digit."""
    return 0.5 * 10.0**-printed.decimals


def tolerance(printed: PrintedCell) -> float:
    """The tolerance for numbers without a known spread; smaller near 0 and near 100 %."""
    assert printed.mean is not None
    whole = WHOLE[printed.unit]
    rate = max(0.0, min(printed.mean, whole - printed.mean))
    return min(TOLERANCE[printed.unit], SHARE_OF_THE_RATE * rate)


def _bound(unit: Unit, effect: float | None) -> tuple[float, str]:
    """The widest limit that still shows agreement."""
    if effect is not None and effect < WEAK[unit]:
        return effect, "the effect that the paper claims here"
    return WEAK[unit], "two percentage points"


def _draw(printed: PrintedCell, ours: Estimate) -> tuple[Basis, float, str]:
    allowed, reach = tolerance(printed), ours.reach_of_a_draw
    words = "the tolerance at this rate"
    if reach is None:
        whose = "one seed" if ours.n == 1 else "a number over all seeds"
        return "tolerance", allowed, f"{words}; {whose} has no spread"
    if reach > allowed:
        return "draw", reach, f"the 95 % prediction interval of one more seed ({ours.n} seeds)"
    return "tolerance", allowed, f"{words}; {ours.n} seeds of ours spread less"


def _joint(printed: PrintedCell, ours: Estimate, spread: Spread) -> tuple[float, str]:
    """Welch: the 95 % limit of the difference of two means."""
    assert printed.std is not None
    n = spread.seeds
    variance = printed.std**2
    if spread.ddof == 0 and n > 1:
        variance *= n / (n - 1)
    theirs = variance / n
    if ours.std is None:  # the printed spread also serves as ours
        limit = student_t(n - 1) * math.sqrt(theirs + variance)
        return limit, (
            "the 95 % limit of the joint standard error, where the printed spread also "
            "serves as ours because we have one seed"
        )
    own = ours.std**2 / ours.n
    total = theirs + own
    if total == 0:
        return 0.0, "because both spreads are zero"
    degrees = total**2 / (theirs**2 / (n - 1) + own**2 / (ours.n - 1))
    return student_t(degrees) * math.sqrt(total), "the 95 % limit of the joint standard error"


def rule_in_words(spread: Spread) -> tuple[str, ...]:
    """The rule for a system's tables, as sentences for the reader."""
    tolerated = (
        "The tolerance is one percentage point, or a quarter of the printed error rate (or of the "
        "rate itself) if that is smaller: 0.25 points at 99 %."
    )
    draw = (
        "A printed number without a spread over seeds is one draw: two numbers are compatible if "
        "they differ by at most t s √(1 + 1/n), the 95 % prediction interval of one more seed, or "
        "by the tolerance if that is wider. With one seed of ours, the tolerance is the limit. "
        + tolerated
    )
    if spread.over == "seeds":
        kind = "population" if spread.ddof == 0 else "sample"
        first: tuple[str, ...] = (
            f"The printed spread is over {spread.seeds} seeds ({spread.source}), as a {kind} "
            "standard deviation. Two numbers are compatible if their difference is within the 95 "
            "% limit of the joint standard error (Welch's t). With one seed of ours the printed "
            "spread also serves as ours.",
        )
        if spread.own_splits:
            names = ", ".join(spread.own_splits.datasets)
            seeds = ", ".join(map(str, spread.own_splits.seeds))
            first += (
                f"On {names} our seeds and splits are the authors' own ({seeds}: "
                f"{spread.own_splits.source}). Effects of a seed that all methods share then "
                "cancel. No number is printed per seed, so its scatter is estimated from ours: "
                "the residual s of the two-way analysis of variance, methods by seeds, over the "
                "columns of the same reading (the paper's or the released code's). The limit is "
                "t s √(2/n).",
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
        "Numbers that do not differ need not agree. Compatible numbers agree if the limit is at "
        "most the effect that the paper claims there (the printed distance between the proposed "
        "method and the best other one, or between a method with and without a plug-in) and at "
        "most two points; otherwise they are compatible but weak.",
        "For numbers that are neither percentages nor fractions, such as rounds or a loss, the "
        "limit uses our seeds' spread alone. No limit is below half a unit of the last printed "
        "digit.",
        "A cell is not comparable if a run of its method, or of the best of several, diverged; "
        "if some of the methods behind a printed best have not run yet; or if ours is from "
        "another configuration than the published one or on a surrogate for the published data. "
        "A number at scale demo has no verdict.",
    )
