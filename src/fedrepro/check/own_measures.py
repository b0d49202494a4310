"""Try a measure of the user's own on the first samples that it is asked for."""

from typing import Any

import torch
from numpy.typing import NDArray

from fedrepro.check.traces import changes, generators
from fedrepro.engine.task import OfOutputs
from fedrepro.support.errors import refusal


def repeatable(name: str, measure: OfOutputs) -> OfOutputs:
    """The measure, which refuses to draw random numbers, or to add up what it is given.

    Its first value is computed twice, and once more after its second one.
    """
    first: list[tuple[NDArray[Any], NDArray[Any], float]] = []
    tried = 0

    def checked(outputs: NDArray[Any], targets: NDArray[Any]) -> float:
        nonlocal tried
        tried += 1
        if tried > 2:
            return measure(outputs, targets)
        before = generators(torch.device("cpu"))
        value = measure(outputs, targets)
        drawn = changes(before, generators(torch.device("cpu")))
        first.append((outputs.copy(), targets.copy(), value))
        *given, wanted = first[0]
        again = measure(*given)
        if drawn or not (wanted == again or (wanted != wanted and again != again)):
            why = (
                "gives other values for the same outputs in another call: draw from a generator "
                "that it makes with a fixed seed in each call, and keep nothing from call to call"
            )
            raise refusal(f"measure {name}", f"of_outputs: {why}", "of_outputs")
        if tried == 2:
            first.clear()
        return value

    return checked
