"""Performance and fairness over clients: pure functions of numpy arrays.

Clients whose value is NaN (no test samples, or an undefined AUROC) are left out.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def average(values: Array, sizes: Array | None = None) -> float:
    """The mean over clients [K], weighted by test samples [K] if ``sizes`` are given.

    AAggFF's paper does not say whether the mean is weighted; its released code weights it
    (discrepancy 18). NaN without any value.
    """
    values, sizes = _defined(values, sizes)
    return float(np.average(values, weights=sizes)) if len(values) else float("nan")


def deviation(values: Array) -> float:
    """The standard deviation over clients [K], of a population. NaN without any value."""
    values, _ = _defined(values)
    return float(values.std()) if len(values) else float("nan")


def lowest(values: Array, sizes: Array | None = None, share: float = 0.1) -> float:
    """The average over the ``share`` of clients (at least one) with the lowest values.

    Examples:
        A client without test samples is left out, and half of the other three is one:

        >>> import numpy as np
        >>> from fedrepro.measures import over_clients
        >>> over_clients.lowest(np.array([0.9, 0.5, 0.7, np.nan]), share=0.5)
        0.5
    """
    return _extreme(values, sizes, share, 1)


def highest(values: Array, sizes: Array | None = None, share: float = 0.1) -> float:
    """The average over the ``share`` of clients (at least one) with the highest values."""
    return _extreme(values, sizes, share, -1)


def _extreme(values: Array, sizes: Array | None, share: float, sign: int) -> float:
    values, sizes = _defined(values, sizes)
    if not len(values):
        return float("nan")
    chosen = np.argsort(sign * values, kind="stable")[: max(1, int(share * len(values) + 1e-9))]
    return average(values[chosen], None if sizes is None else sizes[chosen])


def gini(values: Array) -> float:
    """The Gini coefficient of values of at least 0, times 100; 0 if all are equal or zero.

    sum (2 i - K - 1) x_(i) / (K sum x), where x_(i) is the i-th smallest value.
    """
    values, _ = _defined(values)
    clients, total = len(values), values.sum()
    if not clients:
        return float("nan")
    ranks = 2 * np.arange(1, clients + 1) - clients - 1
    return float(100 * (ranks @ np.sort(values)) / (clients * total)) if total > 0 else 0.0


def _defined(values: Array, sizes: Array | None = None) -> tuple[Array, Array | None]:
    values = np.asarray(values, dtype=np.float64)
    there = ~np.isnan(values)
    return values[there], None if sizes is None else np.asarray(sizes, dtype=np.float64)[there]
