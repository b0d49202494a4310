"""Metrics over clients, and on one client's samples."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedrepro import metrics

NAN = float("nan")


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def test_averages() -> None:
    values, sizes = array(0.2, 0.8), array(3, 1)
    assert metrics.average(values) == pytest.approx(0.5)
    assert metrics.average(values, sizes) == pytest.approx(0.35)


def test_worst_and_best_tenth() -> None:
    values = np.arange(25) / 25
    sizes = np.ones(25)
    assert metrics.worst(values, sizes) == pytest.approx(0.5 / 25)
    assert metrics.best(values) == pytest.approx(23.5 / 25)
    assert metrics.worst(array(0.5, 0.1, 0.9)) == 0.1  # at least one client
    # Thirty clients: exactly three, though 0.1 * 30 is 3.0000000000000004.
    assert metrics.worst(np.arange(30.0)) == 1.0
    assert metrics.worst(np.arange(20.0), np.arange(20.0) + 1) == pytest.approx(2 / 3)


def test_gini_and_parity_gap() -> None:
    assert metrics.gini(array(1, 1, 1)) == pytest.approx(0)
    assert metrics.gini(array(0, 0, 0, 1)) == pytest.approx(75)
    assert metrics.gini(array(0, 0)) == 0
    assert metrics.parity_gap(array(0.25, 0.75, 0.5)) == 0.5


def test_clients_without_a_value_are_left_out_and_counted() -> None:
    values, sizes = array(0.4, NAN, 0.8), array(1, 100, 3)
    assert metrics.undefined(values) == 1
    assert metrics.average(values) == pytest.approx(0.6)
    assert metrics.average(values, sizes) == pytest.approx(0.7)
    assert metrics.worst(values, sizes) == pytest.approx(0.4)
    assert metrics.best(values, sizes) == pytest.approx(0.8)
    assert metrics.gini(values) == metrics.gini(array(0.4, 0.8))
    assert metrics.parity_gap(values) == pytest.approx(0.4)
    nobody = array(NAN, NAN)
    every = (metrics.average, metrics.worst, metrics.best, metrics.gini, metrics.parity_gap)
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


def test_auroc_by_hand() -> None:
    targets = np.array([0, 0, 1, 1])
    assert metrics.auroc(array(0.1, 0.4, 0.35, 0.8), targets) == 0.75
    assert metrics.auroc(array(1, 1, 1, 1), targets) == 0.5


def test_top_k() -> None:
    scores = np.array([[3.0, 2, 1, 0, -1, -2], [0, 1, 2, 3, 4, 5]])
    targets = np.array([0, 0])
    assert metrics.top(1, scores, targets) == 0.5
    assert metrics.top(5, scores, targets) == 0.5
    assert metrics.top(6, scores, targets) == 1.0
    assert metrics.top(1, np.zeros((2, 3)), np.array([0, 1])) == 0.5
    assert math.isnan(metrics.top(1, scores[:0], targets[:0]))
