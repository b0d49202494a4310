"""SuPerFed's released calibration errors and label noise (commit 55064b96)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrepro.task import CLASSIFICATION

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "superfed.json").read_text())


def test_calibration() -> None:
    """Over all samples, and as the mean over mini-batches of ten; the released code is float32."""
    golden = GOLDEN["calibration"]
    logits, targets = np.array(golden["logits"]), np.array(golden["labels"])
    measures = CLASSIFICATION.with_batch_size(10).measures
    for name, published in {
        "ece": "ece_full",
        "mce": "mce_full",
        "ece_batch": "ece_batch10_mean",
        "mce_batch": "mce_batch10_mean",
    }.items():
        assert measures[name](logits, targets) == pytest.approx(golden[published], abs=1e-6)
