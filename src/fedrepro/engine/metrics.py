"""Measures of a model on one set of samples: pure functions of numpy arrays."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def auroc(scores: Array, targets: NDArray[np.int64]) -> float:
    """The area under the ROC curve of scores [n] for targets 0 and 1 [n], as Mann and Whitney's U.

    Equal scores count half. NaN if a class is missing or a score is NaN.
    """
    if np.isnan(scores).any():
        return float("nan")
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

    Among classes with equal scores, the first ranks higher. NaN without samples.
    """
    if not len(targets):
        return float("nan")
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return float((order == targets[:, None]).any(1).mean())


def calibration(logits: Array, targets: NDArray[np.int64], bins: int = 15) -> tuple[float, float]:
    """The expected and the maximum calibration error, ECE and MCE (Guo et al., ICML 2017).

    Samples are sorted by confidence, their largest softmax probability, into ``bins`` intervals of
    equal width, (lower, upper]. The error of a bin is the distance between its accuracy and its
    mean confidence. ECE is the mean error weighted by samples, MCE the largest error. See
    https://arxiv.org/abs/1706.04599.

    Args:
        logits: [n, classes].
        targets: classes [n].

    Returns:
        ECE and MCE, from 0 to 1; NaN without samples or if a logit is not finite.
    """
    logits = np.asarray(logits, dtype=np.float64)
    if not len(targets) or not np.isfinite(logits).all():
        return float("nan"), float("nan")
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    confidences = powers.max(axis=1) / powers.sum(axis=1)
    surplus = confidences - (logits.argmax(axis=1) == targets)
    upper = np.linspace(0, 1, bins + 1)[1:]
    # |mean confidence - accuracy| of each bin, times its number of samples.
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
    """The plain mean of a measure over mini-batches of consecutive samples; the last is shorter.

    SuPerFed's released code measures this way (discrepancy 24, and accuracies too). NaN without
    samples.
    """
    if not len(targets):
        return float("nan")
    starts = range(0, len(targets), batch_size)
    batches = [slice(start, start + batch_size) for start in starts]
    return float(np.mean([measure(logits[batch], targets[batch]) for batch in batches]))
