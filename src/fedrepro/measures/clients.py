"""Aggregate clients' values to one number."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedrepro.measures import over_clients
from fedrepro.measures.base import Columns, Measure, Mix


@dataclass(frozen=True)
class Statistic:
    """A statistic over clients.

    Attributes:
        words: its name, which follows the measure's.
        of: values [clients], their sample counts or None, whether higher is better -> the number.
        of_inequality: whether it measures how unequal clients are; then lower is better.
        weighable: whether it can be weighted by samples.
        bare: whether it has no unit.
    """

    words: str
    of: Callable[[np.ndarray, np.ndarray | None, bool], float]
    of_inequality: bool = False
    weighable: bool = True
    bare: bool = False

    def unit(self, measure: Measure) -> str:
        if self.bare:
            return ""
        return "points" if self.of_inequality and measure.unit == "%" else measure.unit

    def factor(self, measure: Measure) -> float:
        return 1.0 if self.bare else measure.factor

    def higher_is_better(self, measure: Measure) -> bool:
        return measure.higher_is_better and not self.of_inequality


STATISTICS: Mapping[str, Statistic] = {
    "average": Statistic(
        "average over clients",
        lambda values, sizes, higher_is_better: over_clients.average(values, sizes),
    ),
    "worst": Statistic(
        "worst tenth of clients",
        lambda values, sizes, higher_is_better: _tenth(values, sizes, not higher_is_better),
    ),
    "best": Statistic(
        "best tenth of clients",
        lambda values, sizes, higher_is_better: _tenth(values, sizes, higher_is_better),
    ),
    "gini": Statistic(
        "Gini coefficient over clients × 100",
        # It is none of values below 0, such as those of R²: they cancel to all shares.
        lambda values, sizes, higher_is_better: (
            over_clients.gini(values) if not (values < 0).any() else float("nan")
        ),
        of_inequality=True,
        weighable=False,
        bare=True,
    ),
    # In the cross-silo tables between two clients, as a tenth is at least one; else two tenths.
    "gap": Statistic(
        "best tenth of clients less the worst",
        lambda values, sizes, higher_is_better: (
            _tenth(values, sizes, True) - _tenth(values, sizes, False)
        ),
        of_inequality=True,
    ),
}


def _tenth(values: np.ndarray, sizes: np.ndarray | None, greatest: bool) -> float:
    return (over_clients.highest if greatest else over_clients.lowest)(values, sizes)


def by_client(
    columns: Columns, of: str, weighed_by: str = "test_samples"
) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """(round, values [clients], sample counts [clients]) of every evaluated round."""
    numbers = np.array(columns["round"])
    if not len(numbers):
        return []
    begins = [0, *(np.flatnonzero(np.diff(numbers)) + 1), len(numbers)]
    rounds = []
    for first, end in itertools.pairwise(begins):
        values, sizes = (np.array(columns[name][first:end]) for name in (of, weighed_by))
        rounds.append((columns["round"][first], values, sizes))
    return rounds


def without_value(columns: Columns, of: str) -> str:
    """Say how many clients with test samples have no value in the last round; "" if none or all."""
    for _, values, sizes in by_client(columns, of)[-1:]:
        lacking = np.isnan(values[sizes > 0])
        if lacking.any() and not lacking.all():
            return f"no value for {lacking.sum()} of {len(lacking)} clients with test samples"
    return ""


def mixed(columns: Columns, of: str, guide: str, mix: Mix) -> tuple[np.ndarray, np.ndarray]:
    """Every client's value [clients] at a chosen interpolation, and its test samples.

    ``columns`` are those of mixtures.parquet; :data:`fedrepro.measures.base.Mix` lists the rules.
    Among equally good weights the smallest is used.

    Args:
        guide: the accuracy that chooses: for a mean over mini-batches one computed in the same way.
    """
    weights = np.unique(columns["weight"])

    def by_weight(name: str) -> np.ndarray:
        return np.array(columns[name]).reshape(-1, len(weights))

    accuracy, values = by_weight(guide), by_weight(of)
    if np.isnan(accuracy).all():  # predictions are neither right nor wrong
        accuracy = -by_weight("loss")
    sizes = by_weight("test_samples")[:, 0]
    if mix == "best":
        return values[:, np.nanmean(accuracy, axis=0).argmax()], sizes
    if mix == "cross_fitted":
        half = np.arange(len(values)) % 2 == 0
        if any(np.isnan(accuracy[those]).all() for those in (half, ~half)):
            return np.full(len(values), np.nan), sizes  # nobody chooses for the others
        by_half, by_others = (
            np.nanmean(accuracy[those], axis=0).argmax() for those in (half, ~half)
        )
        return values[np.arange(len(values)), np.where(half, by_others, by_half)], sizes
    # A client without test samples has no accuracy, and does not take part in the choice.
    chosen = np.where(np.isnan(accuracy), -np.inf, accuracy).argmax(axis=1)
    if of == guide or mix == "own":
        return values[np.arange(len(values)), chosen], sizes
    return values[:, np.unique(chosen[sizes > 0])].max(axis=1), sizes
