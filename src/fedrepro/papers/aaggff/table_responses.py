"""AAggFF's table of responses of distribution functions to losses, from its formulas."""

from collections.abc import Sequence

import numpy as np

from fedrepro.config.targets import ComputedTarget
from fedrepro.config.workbench import Workbench
from fedrepro.methods.adaptive_weighting.responses import responses
from fedrepro.report.cells.computed import Found, with_verdict
from fedrepro.report.papers.published import PrintedCell


def compute(workbench: Workbench, target: ComputedTarget, printed: Sequence[PrintedCell]) -> Found:
    return Found([with_verdict(cell, _response(cell)) for cell in printed])


def _response(cell: PrintedCell) -> float:
    """The response to a loss in [0, 1] in the printed setting."""
    given = dict(part.split("=") for part in cell.setting.split(","))
    losses = [float(loss) for loss in given["losses"].split("|")]
    values = responses(np.array(losses), cell.method, 0.0, 1.0)
    return float(values[losses.index(float(given["F"]))])
