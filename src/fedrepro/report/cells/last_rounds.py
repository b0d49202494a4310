"""The rounds of a run that count in a table."""

import math
from dataclasses import replace

from fedrepro.config.tables import Summary
from fedrepro.measures.base import Quantity, Series
from fedrepro.run.results import RunRecord


def series_of(record: RunRecord, quantity: Quantity, summary: Summary) -> Series:
    """The rounds of a run that a table can take, in printed units; empty of an unfinished run."""
    if record.state != "finished":
        return []
    series = quantity.series(cut(record, summary))
    # `cut` leaves no later rounds; `until` also drops a number that is dated at the run's last one.
    return series if quantity.of_a_run else until(series, summary.up_to)


def cut(record: RunRecord, summary: Summary) -> RunRecord:
    """A run with those of its rounds that a table can take."""
    return record if summary.up_to is None else replace(record, up_to=summary.up_to)


def value_of(record: RunRecord, quantity: Quantity, summary: Summary) -> float | None:
    """A run's number in a table, in printed units; None without one."""
    return last(series_of(record, quantity, summary), summary.rounds)


def until(series: Series, round: int | None) -> Series:
    """The curve up to and including a round; all of it for None."""
    return [at for at in series if round is None or at[0] <= round]


def last(series: Series, rounds: int) -> float | None:
    """The mean of the last ``rounds`` values; None if there are none or one is not finite."""
    values = [value for _, value in series[-rounds:]]
    if not values or not all(map(math.isfinite, values)):
        return None
    return math.fsum(values) / len(values)


def fewer(series: Series, rounds: int) -> str:
    """A note for :func:`last` if fewer than ``rounds`` values exist, or ""."""
    there = len(series)
    return f"is the mean of {there} evaluated rounds, not of {rounds}" if there < rounds else ""
