"""Loss and accuracy around the global model of a finished run."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedrepro.analysis.finished import open_run
from fedrepro.analysis.landscape import DIRECTIONS, POINTS, REACH, random_directions, surfaces
from fedrepro.config.targets import Run
from fedrepro.config.workbench import Workbench
from fedrepro.engine.evaluate import evaluate
from fedrepro.engine.tree import Tree
from fedrepro.support.rng import stream


def landscape_of(
    workbench: Workbench, run: Run, progress: Callable[[float], None]
) -> dict[str, Any]:
    """The landscape around a finished run's global model.

    Directions come from the run's seed: those of two methods differ by their filters' lengths only.

    Args:
        progress: told the share that is done.

    Returns:
        directions (in words), x, y, and loss and accuracy [y][x], None where not finite.

    Raises:
        UserError: when the run, its data or its partition is not there, or not as it was.
    """
    opened = open_run(workbench, run)
    context, samples, centre = opened.plan.federation.context, opened.tested_on, opened.left

    def score(params: Tree) -> tuple[float, float]:
        found = evaluate(context.net, context.task, params, samples, len(samples))
        return found.loss, found.accuracy

    rngs = stream(run.seed, "landscape", 0), stream(run.seed, "landscape", 1)
    axis = np.linspace(-REACH, REACH, POINTS).tolist()
    directions = random_directions(centre, rngs)
    loss, accuracy = surfaces(score, centre, directions, axis, axis, progress)
    return {"directions": DIRECTIONS, "x": axis, "y": axis, "loss": loss, "accuracy": accuracy}
