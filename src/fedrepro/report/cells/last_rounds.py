"""The rounds of a run that count."""

import math

from fedrepro.measures.base import Series


def until(series: Series, round: int | None) -> Series:
    """Its part up to and with a round; all of it for None."""
    return [at for at in series if round is None or at[0] <= round]


def last(series: Series, rounds: int) -> float | None:
    """The mean of the last ``rounds`` values; None without any, or with one that is no number."""
    values = [value for _, value in series[-rounds:]]
    if not values or not all(map(math.isfinite, values)):
        return None
    return math.fsum(values) / len(values)


def fewer(series: Series, rounds: int) -> str:
    """What to say of :func:`last` over ``rounds`` values where there are fewer, or nothing."""
    there = len(series)
    return f"is the mean of {there} evaluated rounds, not of {rounds}" if there < rounds else ""
