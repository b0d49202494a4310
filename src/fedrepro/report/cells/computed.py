"""Tables that need no runs: computed from a formula, or counted in data that have been prepared."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedrepro.config.tables import ClientStatistics
from fedrepro.config.targets import ComputedTarget
from fedrepro.config.workbench import Workbench
from fedrepro.methods.deciding.responses import responses
from fedrepro.report.papers.published import PrintedCell, Published
from fedrepro.report.papers.verdict import Verdict, judge_computed
from fedrepro.support.errors import UserError

NOT_FETCHED = "data not fetched"


@dataclass(frozen=True)
class ComputedCell:
    """A printed cell and what we compute for it.

    Attributes:
        value, std: None where there is nothing to compute from; std also where none is printed.
        hole: why there is no value, or "".
    """

    printed: PrintedCell
    value: float | None
    std: float | None
    hole: str
    verdict: Verdict | None


def compute(
    workbench: Workbench, target: ComputedTarget, published: Published
) -> list[ComputedCell]:
    """A value for every printed cell of the table.

    Raises:
        UserError: when a partition's histogram is damaged.
    """
    printed = published.tables.get((target.system, target.item), ())
    if isinstance(target.spec, ClientStatistics):
        sizes = {
            dataset: _client_sizes(workbench, f"{target.system}/{setting}")
            for dataset, setting in target.spec.settings.items()
        }
        return [_counted(cell, sizes.get(cell.dataset, NOT_FETCHED)) for cell in printed]
    return [_with_verdict(cell, _response(cell)) for cell in printed]


def _with_verdict(cell: PrintedCell, value: float, std: float | None = None) -> ComputedCell:
    return ComputedCell(cell, value, std, "", judge_computed(cell, value, std))


def _response(cell: PrintedCell) -> float:
    """The response to a loss in [0, 1], as the printed setting gives it."""
    given = dict(part.split("=") for part in cell.setting.split(","))
    losses = [float(loss) for loss in given["losses"].split("|")]
    values = responses(np.array(losses), cell.method, 0.0, 1.0)
    return float(values[losses.index(float(given["F"]))])


STATISTICS: Mapping[str, Callable[[list[int]], float]] = {
    "n_clients": len,
    "n_samples": sum,
    "samples_per_client": lambda sizes: sum(sizes) / len(sizes),
}


def _counted(cell: PrintedCell, sizes: list[int] | str) -> ComputedCell:
    if isinstance(sizes, str):
        return ComputedCell(cell, None, None, sizes, None)
    value = float(STATISTICS[cell.metric](sizes))
    # Berka's printed 24.78 is the spread over its seven clients as a population.
    std = None if cell.std is None else float(np.std(sizes))
    return _with_verdict(cell, value, std)


def _client_sizes(workbench: Workbench, setting: str) -> list[int] | str:
    """Each client's samples, trained on or tested with; or why they are not known."""
    path = workbench.histogram_of(setting)
    if not workbench.is_prepared(setting):
        return NOT_FETCHED
    try:
        histogram = json.loads((workbench.root / path).read_text(encoding="utf-8"))
        parts = [histogram["train"], histogram["test"] or []]
        counts = [[math.fsum(classes) for classes in part] for part in parts]
        tested = counts[1] or [0.0] * len(counts[0])
        return [round(a + b) for a, b in zip(counts[0], tested, strict=True)]
    except FileNotFoundError:
        return "data not shared out yet"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: damaged: {error}") from None
