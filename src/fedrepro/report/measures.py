"""What a table's metric stands for: a run's values round by round, their unit, their better end."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedrepro import metrics
from fedrepro.config import Metric, OverClients
from fedrepro.report.runs import RunRecord

Series = list[tuple[float, float]]

NAMES = {"accuracy": "accuracy", "top5": "top-5 accuracy", "auroc": "AUROC"}
Summary = Callable[[np.ndarray, np.ndarray | None], float]
SUMMARIES: Mapping[str, tuple[str, Summary]] = {
    "average": ("average over clients", metrics.average),
    "worst": ("worst tenth of clients", metrics.worst),
    "best": ("best tenth of clients", metrics.best),
    "gini": ("Gini coefficient over clients × 100", lambda values, sizes: metrics.gini(values)),
    # Of two clients in the cross-silo tables, as a tenth is at least one; else of two tenths.
    "gap": (
        "best tenth of clients less the worst",
        lambda values, sizes: metrics.best(values, sizes) - metrics.worst(values, sizes),
    ),
}


@dataclass(frozen=True)
class Measure:
    """A metric, read off a run.

    Attributes:
        words: its name in a caption.
        unit: of its printed values, or "".
        rising: whether more is better.
        series: a run's (round, value in printed units) of every evaluated round.
    """

    words: str
    unit: str
    rising: bool
    series: Callable[[RunRecord], Series]


def measure_of(metric: Metric) -> Measure:
    """The measure of a metric of an experiment file."""
    if isinstance(metric, OverClients):
        return _over_clients(metric)
    if metric == "loss":
        return Measure("loss", "", False, lambda record: _by_round(record, "test_loss", 1.0))
    return Measure("accuracy", "%", True, lambda record: _by_round(record, "test_accuracy", 100.0))


def _by_round(record: RunRecord, column: str, factor: float) -> Series:
    rounds, values = record.rounds.get("round", []), record.rounds.get(column, [])
    return [(number, factor * value) for number, value in zip(rounds, values, strict=False)]


def _over_clients(metric: OverClients) -> Measure:
    words, summary = SUMMARIES[metric.over_clients]
    weighable = metric.over_clients != "gini"
    how = ", weighted by test samples" if weighable and metric.weighted else ""
    factor = 1.0 if metric.over_clients == "gini" else 100.0

    def series(record: RunRecord) -> Series:
        clients = record.clients
        if metric.of not in clients:
            return []
        rows = zip(clients["round"], clients[metric.of], clients["test_samples"], strict=True)
        found = []
        for number, group in itertools.groupby(rows, key=lambda row: row[0]):
            _, values, sizes = (np.array(column) for column in zip(*group, strict=True))
            value = summary(values, sizes if metric.weighted else None)
            found.append((number, factor * value))
        return found

    return Measure(
        f"{NAMES[metric.of]}, {words}{how}",
        {"gini": "", "gap": "points"}.get(metric.over_clients, "%"),
        metric.over_clients not in ("gini", "gap"),
        series,
    )


def last(series: Series, rounds: int) -> float | None:
    """The mean of the last ``rounds`` values; None without any, or with one that is no number."""
    values = [value for _, value in series[-rounds:]]
    if not values or not all(map(math.isfinite, values)):
        return None
    return math.fsum(values) / len(values)
