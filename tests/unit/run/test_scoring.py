"""What the scores of clients come to."""

import math

import numpy as np
import pytest

from fedrepro.engine.evaluate import Score
from fedrepro.engine.task import CLASSIFICATION
from fedrepro.run.scoring import _summary


def test_a_client_without_predictions_leaves_the_others_means_alone() -> None:
    """Its texts hold no known word: samples, but nothing that can be right or wrong."""
    found = _summary([Score(2, 0.5, 0.25), Score(5, 0.0, math.nan), Score(6, 1.0, 0.75)])
    assert found["client_accuracy"] == 0.5
    assert found["client_accuracy_std"] == 0.25
    assert found["test_accuracy"] == pytest.approx((2 * 0.25 + 6 * 0.75) / 8)
    assert found["client_loss"] == 0.5
    nobody = _summary([Score(2, 0.5, math.nan)])
    assert math.isnan(nobody["client_accuracy"]) and math.isnan(nobody["client_accuracy_std"])


def test_a_loss_that_is_no_number_ends_a_run() -> None:
    assert math.isnan(_summary([Score(2, 0.5, 0.25), Score(2, math.nan, 0.25)])["client_loss"])


def test_accuracy_as_a_mean_over_mini_batches() -> None:
    """10 + 10 + 4 samples, as in SuPerFed's test parts: the last four count as much as ten."""
    measures = CLASSIFICATION.with_batch_size(10).measures
    targets = np.zeros(24, dtype=np.int64)
    right = np.array([True] * 5 + [False] * 5 + [True] * 10 + [True] + [False] * 3)
    logits = np.where(right[:, None], [2.0, 1, 0, 0, 0, 0, 0], [0.0, 1, 2, 3, 4, 5, 6])
    assert measures["accuracy_batch"](logits, targets) == pytest.approx((0.5 + 1 + 0.25) / 3)
    # The right class is the seventh of those that were missed.
    assert measures["top5_batch"](logits, targets) == pytest.approx((0.5 + 1 + 0.25) / 3)
    assert {"top5", "ece", "mce", "ece_batch", "mce_batch"} < measures.keys()
