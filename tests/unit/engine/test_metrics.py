"""Metrics over clients, and on one client's samples."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from fedrepro.engine import metrics
from fedrepro.measures import over_clients

NAN = float("nan")


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def top(k: int, scores: np.ndarray, targets: np.ndarray) -> float:
    """Top-k accuracy of one client."""
    return float(metrics.tops(k, scores, targets, metrics.whole(targets))[0, 0])


def calibration(logits: np.ndarray, targets: np.ndarray, bins: int = 15) -> tuple[float, ...]:
    """ECE and MCE of one client."""
    return tuple(metrics.calibrations(logits, targets, metrics.whole(targets), bins)[:, 0].tolist())


def test_averages() -> None:
    values, sizes = array(0.2, 0.8), array(3, 1)
    assert over_clients.average(values) == pytest.approx(0.5)
    assert over_clients.average(values, sizes) == pytest.approx(0.35)


def test_worst_and_best_tenth() -> None:
    values = np.arange(25) / 25
    sizes = np.ones(25)
    assert over_clients.lowest(values, sizes) == pytest.approx(0.5 / 25)
    assert over_clients.highest(values) == pytest.approx(23.5 / 25)
    assert over_clients.lowest(array(0.5, 0.1, 0.9)) == 0.1  # at least one client
    # Thirty clients: exactly three, though 0.1 * 30 is 3.0000000000000004.
    assert over_clients.lowest(np.arange(30.0)) == 1.0
    assert over_clients.lowest(np.arange(20.0), np.arange(20.0) + 1) == pytest.approx(2 / 3)


def test_gini() -> None:
    assert over_clients.gini(array(1, 1, 1)) == pytest.approx(0)
    assert over_clients.gini(array(0, 0, 0, 1)) == pytest.approx(75)
    assert over_clients.gini(array(0, 0)) == 0


def test_clients_without_a_value_are_left_out() -> None:
    values, sizes = array(0.4, NAN, 0.8), array(1, 100, 3)
    assert over_clients.average(values) == pytest.approx(0.6)
    assert over_clients.average(values, sizes) == pytest.approx(0.7)
    assert over_clients.lowest(values, sizes) == pytest.approx(0.4)
    assert over_clients.highest(values, sizes) == pytest.approx(0.8)
    assert over_clients.gini(values) == over_clients.gini(array(0.4, 0.8))
    nobody = array(NAN, NAN)
    every = (
        over_clients.average,
        over_clients.lowest,
        over_clients.highest,
        over_clients.gini,
    )
    assert all(math.isnan(each(nobody)) for each in every)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 1)), min_size=1, max_size=30))
def test_auroc_is_the_normalised_rank_statistic(pairs: list[tuple[int, int]]) -> None:
    scores = np.array([score for score, _ in pairs], dtype=np.float64)
    targets = np.array([target for _, target in pairs])
    right, wrong = scores[targets == 1], scores[targets == 0]
    found = metrics.auroc(scores, targets)
    if not len(right) or not len(wrong):
        assert math.isnan(found)
        return
    u = stats.mannwhitneyu(right, wrong, method="asymptotic").statistic
    assert found == pytest.approx(u / (len(right) * len(wrong)))


def test_auroc_of_scores_that_are_no_numbers() -> None:
    """A model that has diverged ranks nothing."""
    targets = np.array([0, 0, 1, 1])
    assert math.isnan(metrics.auroc(array(0.1, math.nan, 0.35, 0.8), targets))
    assert math.isnan(metrics.auroc(array(*[math.nan] * 4), targets))
    assert metrics.auroc(array(-math.inf, 0.4, 0.35, math.inf), targets) == 0.75


def test_auroc_by_hand() -> None:
    targets = np.array([0, 0, 1, 1])
    assert metrics.auroc(array(0.1, 0.4, 0.35, 0.8), targets) == 0.75
    assert metrics.auroc(array(1, 1, 1, 1), targets) == 0.5


def test_top_k() -> None:
    scores = np.array([[3.0, 2, 1, 0, -1, -2], [0, 1, 2, 3, 4, 5]])
    targets = np.array([0, 0])
    assert top(1, scores, targets) == 0.5
    assert top(5, scores, targets) == 0.5
    assert top(6, scores, targets) == 1.0
    assert top(1, np.zeros((2, 3)), np.array([0, 1])) == 0.5
    assert math.isnan(top(1, scores[:0], targets[:0]))


def logits_of(*confidences: float) -> np.ndarray:
    """Two classes; the first has these probabilities."""
    return np.log([[each, 1 - each] for each in confidences])


def test_calibration_by_hand() -> None:
    """Bins of a fifth: (0.6, 0.8] has 0.7 and 0.8, one of them right; (0.8, 1] has 0.9, wrong."""
    found = calibration(logits_of(0.7, 0.8, 0.9), np.array([0, 1, 1]), bins=5)
    assert found == pytest.approx(((2 * (0.75 - 0.5) + 0.9) / 3, 0.9))
    # The upper bound belongs to a bin: 0.5 is with 0.4 of three classes, not with 0.75.
    logits = np.log([[0.5, 0.25, 0.25], [0.4, 0.3, 0.3], [0.75, 0.125, 0.125]])
    found = calibration(logits, np.array([0, 1, 0]), bins=2)
    assert found == pytest.approx(((2 * 0.05 + 0.25) / 3, 0.25))
    assert calibration(np.array([[1e4, 0.0]]), np.array([0])) == (0, 0)


def test_calibration_that_does_not_exist() -> None:
    empty = np.empty((0, 3)), np.empty(0, dtype=np.int64)
    assert np.isnan(calibration(*empty)).all()
    accuracy = partial(metrics.tops, 1)
    assert np.isnan(metrics.over_batches(accuracy, 10, *empty, np.array([0, 0]))).all()
    assert np.isnan(calibration(np.array([[1.0, np.inf]]), np.array([0]))).all()


@given(st.integers(1, 40), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_calibration_of_many(samples: int, classes: int, seed: int) -> None:
    """As reckoned bin by bin."""
    random = np.random.default_rng(seed)
    logits = random.normal(0, 3, (samples, classes))
    targets = random.integers(0, classes, samples)
    ece, mce = calibration(logits, targets)
    confidences = special.softmax(logits, axis=1).max(axis=1)
    right = logits.argmax(axis=1) == targets
    errors, weights = [], []
    for number in range(15):
        inside = (confidences > number / 15) & (confidences <= (number + 1) / 15)
        if inside.any():
            errors.append(abs(right[inside].mean() - confidences[inside].mean()))
            weights.append(inside.mean())
    assert ece == pytest.approx(np.dot(errors, weights))
    assert mce == pytest.approx(max(errors))


def test_over_batches_weighs_every_batch_alike() -> None:
    scores, targets = np.zeros((5, 2)), np.array([0, 0, 0, 0, 1])
    accuracy, bounds = partial(metrics.tops, 1), np.array([0, 5])
    assert metrics.over_batches(accuracy, 2, scores, targets, bounds) == pytest.approx(2 / 3)
    assert metrics.over_batches(accuracy, 9, scores, targets, bounds) == pytest.approx(4 / 5)
