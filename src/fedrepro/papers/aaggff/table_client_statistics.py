"""AAggFF's table of samples per client, counted in prepared data."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedrepro.config.targets import ComputedTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.computed import ComputedCell, Found, hole, with_verdict
from fedrepro.report.papers.published import PrintedCell
from fedrepro.support import checksummed_json
from fedrepro.support.errors import damaged

NOT_FETCHED = "data not fetched"

STATISTICS: Mapping[str, Callable[[list[int]], float]] = {
    "n_clients": len,
    "n_samples": sum,
    "samples_per_client": lambda sizes: sum(sizes) / len(sizes),
}


def compute(workbench: Workbench, target: ComputedTarget, printed: Sequence[PrintedCell]) -> Found:
    sizes = {
        dataset: _client_sizes(workbench, f"{target.system}/{setting}")
        for dataset, setting in target.spec.counted_in().items()
    }
    return Found([_counted(cell, sizes.get(cell.dataset, NOT_FETCHED)) for cell in printed])


def _counted(cell: PrintedCell, sizes: list[int] | str) -> ComputedCell:
    if isinstance(sizes, str):
        return hole(cell, sizes)
    value = float(STATISTICS[cell.metric](sizes))
    # Berka's printed 24.78 is the spread over its seven clients as a population.
    std = None if cell.std is None else float(np.std(sizes))
    return with_verdict(cell, value, std)


def _client_sizes(workbench: Workbench, setting: str) -> list[int] | str:
    """Each client's training or test samples; or why they are unknown."""
    path = workbench.histogram_of(setting)
    if not workbench.is_prepared(setting):
        return NOT_FETCHED
    try:
        histogram = checksummed_json.read(
            workbench.root / path, checksummed_json.of_results(path), path
        )
        parts = [histogram["train"], histogram["test"] or []]
        counts = [[math.fsum(classes) for classes in part] for part in parts]
        tested = counts[1] or [0.0] * len(counts[0])
        return [round(a + b) for a, b in zip(counts[0], tested, strict=True)]
    except FileNotFoundError:
        return "data not partitioned yet"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from None
