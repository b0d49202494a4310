"""How good and how even a model is over clients, and how good on one client's samples.

Pure functions of numpy arrays. Those over clients leave out clients whose value is NaN (no test
samples, or an AUROC that does not exist); :func:`undefined` counts them.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def undefined(values: Array) -> int:
    """How many clients have no value."""
    return int(np.isnan(values).sum())


def average(values: Array, sizes: Array | None = None) -> float:
    """The mean over clients [K], weighted by test samples [K] if ``sizes`` are given.

    The text of AAggFF's tables has the plain mean, the released code the weighted one
    (discrepancy 18). NaN without any value.
    """
    values, sizes = _defined(values, sizes)
    return float(np.average(values, weights=sizes)) if len(values) else float("nan")


def worst(values: Array, sizes: Array | None = None, share: float = 0.1) -> float:
    """The average over the ``share`` of clients, but at least one, with the least values."""
    return _extreme(values, sizes, share, 1)


def best(values: Array, sizes: Array | None = None, share: float = 0.1) -> float:
    """The average over the ``share`` of clients, but at least one, with the greatest values."""
    return _extreme(values, sizes, share, -1)


def _extreme(values: Array, sizes: Array | None, share: float, sign: int) -> float:
    values, sizes = _defined(values, sizes)
    if not len(values):
        return float("nan")
    chosen = np.argsort(sign * values, kind="stable")[: max(1, int(share * len(values) + 1e-9))]
    return average(values[chosen], None if sizes is None else sizes[chosen])


def gini(values: Array) -> float:
    """Gini's coefficient of values of at least 0, times 100; 0 where all are equal or zero.

    sum (2 i - K - 1) x_(i) / (K sum x), x_(i) being the i-th least.
    """
    values, _ = _defined(values)
    clients, total = len(values), values.sum()
    if not clients:
        return float("nan")
    ranks = 2 * np.arange(1, clients + 1) - clients - 1
    return float(100 * (ranks @ np.sort(values)) / (clients * total)) if total > 0 else 0.0


def parity_gap(values: Array) -> float:
    """The accuracy parity gap: the greatest value less the least one."""
    values, _ = _defined(values)
    return float(values.max() - values.min()) if len(values) else float("nan")


def auroc(scores: Array, targets: NDArray[np.int64]) -> float:
    """The area under the ROC curve of scores [n] for targets 0 and 1 [n]: Mann and Whitney's U.

    Equal scores count half. NaN if a class is missing.
    """
    positive = targets == 1
    right, wrong = int(positive.sum()), int((~positive).sum())
    if not right or not wrong:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2  # the mean rank of equal scores, from 1
    u = middle[inverse][positive].sum() - right * (right + 1) / 2
    return float(u / (right * wrong))


def top(k: int, scores: Array, targets: NDArray[np.int64]) -> float:
    """The share of samples whose class is among the ``k`` with the highest scores [n, classes].

    Of classes with equal scores the first counts as higher. NaN without samples.
    """
    if not len(targets):
        return float("nan")
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return float((order == targets[:, None]).any(1).mean())


def calibration(logits: Array, targets: NDArray[np.int64], bins: int = 15) -> tuple[float, float]:
    """The expected and the maximum calibration error, ECE and MCE (Guo et al., ICML 2017).

    Samples are sorted by confidence, the largest of their softmax probabilities, into ``bins`` of
    equal width, (lower, upper]. A bin's error is the distance of its accuracy from its mean
    confidence: ECE is their mean weighted by samples, MCE the largest.

    Args:
        logits: [n, classes].
        targets: classes [n].

    Returns:
        Both from 0 to 1; NaN without samples, or where a logit is not finite.
    """
    logits = np.asarray(logits, dtype=np.float64)
    if not len(targets) or not np.isfinite(logits).all():
        return float("nan"), float("nan")
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    confidences = powers.max(axis=1) / powers.sum(axis=1)
    surplus = confidences - (logits.argmax(axis=1) == targets)
    upper = np.linspace(0, 1, bins + 1)[1:]
    # |mean confidence - accuracy| of a bin, times its number of samples.
    places = np.searchsorted(upper, confidences)
    errors = np.abs(np.bincount(places, surplus, bins))
    counts = np.bincount(places, minlength=bins)
    return float(errors.sum() / len(targets)), float((errors / np.maximum(counts, 1)).max())


def over_batches(
    measure: Callable[[Array, NDArray[np.int64]], float],
    batch_size: int,
    logits: Array,
    targets: NDArray[np.int64],
) -> float:
    """The plain mean of a measure over mini-batches of consecutive samples, the last one shorter.

    How SuPerFed's released code calibrates (discrepancy 24). NaN without samples.
    """
    if not len(targets):
        return float("nan")
    starts = range(0, len(targets), batch_size)
    batches = [slice(start, start + batch_size) for start in starts]
    return float(np.mean([measure(logits[batch], targets[batch]) for batch in batches]))


def _defined(values: Array, sizes: Array | None = None) -> tuple[Array, Array | None]:
    values = np.asarray(values, dtype=np.float64)
    there = ~np.isnan(values)
    return values[there], None if sizes is None else np.asarray(sizes, dtype=np.float64)[there]
