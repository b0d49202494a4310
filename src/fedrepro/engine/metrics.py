"""Measures of a model on clients' samples: pure functions of numpy arrays.

The samples of all clients lie one after another; ``bounds`` [clients + 1] has each client's first
row, and the number of all samples. A client's value has the same bits as if it were alone.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# (outputs [n, ...], targets [n, ...], bounds [clients + 1]) -> values [measures, clients]: measures
# that have most of their computation in common are computed together
Each = Callable[[Array, NDArray[np.int64], NDArray[np.int64]], Array]


def aurocs(scores: Array, targets: NDArray[np.int64], bounds: NDArray[np.int64]) -> Array:
    """The area under the ROC curve of each client's scores for targets 0 and 1.

    It is computed as Mann and Whitney's U; equal scores count half. NaN for a client that lacks a
    class or has a score of NaN.
    """
    client = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    order = np.lexsort((scores, client))
    ordered, of = scores[order], client[order]
    first = np.ones(len(order), dtype=bool)  # of equal scores of a client
    first[1:] = (ordered[1:] != ordered[:-1]) | (of[1:] != of[:-1])
    places = np.flatnonzero(first)
    counts = np.diff(np.append(places, len(order)))
    middle = places - bounds[of[places]] + (counts + 1) / 2  # the mean rank, from 1
    ranks = np.empty(len(order))
    ranks[order] = np.repeat(middle, counts)
    right = _sums(targets == 1, bounds)
    wrong = np.diff(bounds) - right
    u = _sums(np.where(targets == 1, ranks, 0.0), bounds) - right * (right + 1) / 2
    undefined = (right == 0) | (wrong == 0) | (_sums(np.isnan(scores), bounds) > 0)
    return np.where(undefined, np.nan, u / np.where(undefined, 1, right * wrong))[None]


def auroc(scores: Array, targets: NDArray[np.int64]) -> float:
    """The area under the ROC curve of scores [n] for targets 0 and 1 [n] (:func:`aurocs`)."""
    return float(aurocs(scores, targets, whole(targets))[0, 0])


def tops(k: int, scores: Array, targets: NDArray[np.int64], bounds: NDArray[np.int64]) -> Array:
    """The share of each client's samples whose class is among the ``k`` with the highest scores.

    Among classes with equal scores, the first ranks higher. NaN without samples.

    Args:
        scores: [n, classes].
    """
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return _shares((order == targets[:, None]).any(1), bounds)


def calibrations(
    logits: Array, targets: NDArray[np.int64], bounds: NDArray[np.int64], bins: int = 15
) -> Array:
    """Each client's expected and maximum calibration error, ECE and MCE (Guo et al., ICML 2017).

    Samples are sorted by confidence, their largest softmax probability, into ``bins`` intervals of
    equal width, (lower, upper]. The error of a bin is the distance between its accuracy and its
    mean confidence. ECE is the mean error weighted by samples, MCE the largest error. See
    https://arxiv.org/abs/1706.04599.

    Args:
        logits: [n, classes].
        targets: classes [n].

    Returns:
        ECE and MCE, from 0 to 1; NaN for a client without samples or with a logit that is not
        finite.
    """
    logits = np.asarray(logits, dtype=np.float64)
    sizes, clients = np.diff(bounds), len(bounds) - 1
    finite = np.asarray(np.isfinite(logits).all(axis=1))
    undefined = (sizes == 0) | (_sums(~finite, bounds) > 0)
    if not finite.all():
        logits = np.where(finite[:, None], logits, 0.0)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    confidences = powers.max(axis=1) / powers.sum(axis=1)
    surplus = confidences - (logits.argmax(axis=1) == targets)
    upper = np.linspace(0, 1, bins + 1)[1:]
    # |mean confidence - accuracy| of each bin, times its number of samples.
    places = np.searchsorted(upper, confidences) + bins * np.repeat(np.arange(clients), sizes)
    errors = np.abs(np.bincount(places, surplus, clients * bins)).reshape(clients, bins)
    counts = np.bincount(places, minlength=clients * bins).reshape(clients, bins)
    expected = errors.sum(axis=1) / np.maximum(sizes, 1)
    largest = (errors / np.maximum(counts, 1)).max(axis=1)
    return np.where(undefined, np.nan, [expected, largest])


def of_logs(
    each: Each, probabilities: Array, targets: NDArray[np.int64], bounds: NDArray[np.int64]
) -> Array:
    """Measures of logits, for outputs that are their softmax."""
    least = np.finfo(np.float64).tiny
    return each(np.log(np.maximum(probabilities, least, dtype=np.float64)), targets, bounds)


def mse(outputs: NDArray[Any], targets: NDArray[Any]) -> float:
    """The mean squared error of outputs, in the shape of the targets."""
    return float(((outputs.astype(np.float64) - targets) ** 2).mean())


def mae(outputs: NDArray[Any], targets: NDArray[Any]) -> float:
    """The mean absolute error of outputs, in the shape of the targets."""
    return float(np.abs(outputs.astype(np.float64) - targets).mean())


def r2(outputs: NDArray[Any], targets: NDArray[Any]) -> float:
    """The coefficient of determination, R², a plain mean over the targets' second axis.

    1 minus the sum of squared errors by that of the targets' distances from their own mean. NaN if
    a target is constant, as a single one is.

    Args:
        outputs, targets: [n], [n, k], or [n, k, ...], whose further axes count as samples.
    """
    truth = targets.astype(np.float64)
    over = (0, *range(2, truth.ndim))
    unexplained = ((outputs - truth) ** 2).sum(axis=over)
    total = ((truth - truth.mean(axis=over, keepdims=True)) ** 2).sum(axis=over)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(total > 0, unexplained / total, np.nan)
    return float(np.mean(1 - ratio))


def over_batches(
    each: Each,
    batch_size: int,
    logits: Array,
    targets: NDArray[np.int64],
    bounds: NDArray[np.int64],
) -> Array:
    """Each client's plain means of measures over mini-batches of its consecutive samples.

    The last batch is shorter. SuPerFed's released code measures this way (discrepancy 24, and
    accuracies too). NaN without samples.
    """
    batches = -(-np.diff(bounds) // batch_size)
    first = np.cumsum(batches) - batches
    within = np.arange(batches.sum()) - np.repeat(first, batches)
    starts = np.repeat(bounds[:-1], batches) + batch_size * within
    values = each(logits, targets, np.append(starts, bounds[-1:]))
    means = np.full((len(values), len(batches)), np.nan)
    for count in np.unique(batches[batches > 0]):  # as many rows of equal length: one sum for each
        chosen = np.flatnonzero(batches == count)
        rows = first[chosen, None] + np.arange(count)
        for mean, of_batches in zip(means, values, strict=True):
            mean[chosen] = of_batches[rows].mean(axis=1)
    return means


def whole(targets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bounds of a single client that has all samples."""
    return np.array([0, len(targets)])


def _sums(values: NDArray[Any], bounds: NDArray[np.int64]) -> NDArray[Any]:
    """Each client's sum of whole or half numbers, which are exact in any order."""
    sums: NDArray[Any] = np.diff(np.concatenate([[0], np.cumsum(values)])[bounds])
    return sums


def _shares(right: NDArray[np.bool_], bounds: NDArray[np.int64]) -> Array:
    """Each client's share of samples that are ``right``, [1, clients]; NaN without samples."""
    sizes = np.diff(bounds)
    return np.where(sizes == 0, np.nan, _sums(right, bounds) / np.maximum(sizes, 1))[None]
