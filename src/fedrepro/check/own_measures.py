"""Try a measure of the user's own on the first samples that it is asked for."""

from typing import Any

import torch
from numpy.typing import NDArray

from fedrepro.check.traces import changes, generators
from fedrepro.engine.task import Measure
from fedrepro.support.errors import refusal


def repeatable(name: str, measure: Measure) -> Measure:
    """The measure, which refuses to draw random numbers: its first value is computed twice."""
    tried = False

    def checked(outputs: NDArray[Any], targets: NDArray[Any]) -> float:
        nonlocal tried
        if tried:
            return measure(outputs, targets)
        tried = True
        before = generators(torch.device("cpu"))
        first = measure(outputs, targets)
        drawn = changes(before, generators(torch.device("cpu")))
        again = measure(outputs, targets)
        if drawn or not (first == again or (first != first and again != again)):
            why = (
                "draws random numbers, so that two evaluations of one model differ: draw from a "
                "generator that it makes with a fixed seed in each call"
            )
            raise refusal(f"measure {name}", f"of_outputs: {why}", "of_outputs")
        return first

    return checked
