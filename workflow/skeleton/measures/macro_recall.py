"""A measure of your own: one class, called as this file, which settings name in `evaluate`."""

from typing import Any

import numpy as np

from fedrepro.measures.base import Measure


class MacroRecall(Measure):
    """How much of a class is recognised, every class counting the same."""

    words = "macro recall"
    unit = "%"  # files have shares from 0 to 1
    higher_is_better = True  # more is better
    per = "round"  # of the shared model on all test samples; "client": of each client on its own

    def of_outputs(self, outputs: Any, targets: Any) -> float:
        """Its value, from a model's outputs [n, classes], before any softmax, and classes [n]."""
        hit = outputs.argmax(axis=1) == targets
        return float(np.mean([hit[targets == label].mean() for label in np.unique(targets)]))
