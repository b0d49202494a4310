"""Tables that need no runs: computed from a formula, counted in data or in networks."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError

from fedrepro.config.tables import ClientStatistics, Costs
from fedrepro.config.targets import ComputedTarget
from fedrepro.config.workbench import Workbench
from fedrepro.methods.deciding.responses import responses
from fedrepro.report.papers.published import PrintedCell, Published, Wording
from fedrepro.report.papers.verdict import Verdict, judge_computed
from fedrepro.support.errors import UserError

NOT_FETCHED = "data not fetched"
NOT_COUNTED = "not counted yet"


@dataclass(frozen=True)
class ComputedCell:
    """A printed cell and what we compute for it.

    Attributes:
        value, std: None where there is nothing to compute from; std also where none is printed.
        hole: why there is no value, or "".
        entry: of the ledger, which says why it is not as printed; or "".
    """

    printed: PrintedCell
    value: float | None
    std: float | None
    hole: str
    verdict: Verdict | None
    entry: str = ""


@dataclass(frozen=True)
class ComputedWording:
    """A cell that is printed in words, and what follows from what we count.

    Attributes:
        text: None where nothing was counted yet.
    """

    printed: Wording
    text: str | None

    @property
    def verdict(self) -> str:
        """Empty without a text of ours."""
        if self.text is None:
            return ""
        return "agrees" if self.text == self.printed.text else "differs"


@dataclass(frozen=True)
class Cost:
    """A cell of :mod:`fedrepro.analysis.cost`, by its printed keys."""

    table: str
    setting: str
    method: str
    metric: str
    value: float | str | None
    hole: str
    entry: str


def compute(
    workbench: Workbench, target: ComputedTarget, published: Published
) -> list[ComputedCell]:
    """A value for every printed cell of the table that needs no training.

    Raises:
        UserError: when a partition's histogram, or what was counted, is damaged.
    """
    printed = published.tables.get((target.system, target.item), ())
    if isinstance(target.spec, Costs):
        costs = _costs(workbench.root, target)
        if not costs:
            return [_hole(cell, NOT_COUNTED) for cell in printed if not is_trained(cell)]
        keys = ((cell.table, cell.setting, cell.method, cell.metric) for cell in printed)
        return [
            _costing(cell, costs[key])
            for cell, key in zip(printed, keys, strict=True)
            if key in costs
        ]
    if isinstance(target.spec, ClientStatistics):
        sizes = {
            dataset: _client_sizes(workbench, f"{target.system}/{setting}")
            for dataset, setting in target.spec.settings.items()
        }
        return [_counted(cell, sizes.get(cell.dataset, NOT_FETCHED)) for cell in printed]
    return [_with_verdict(cell, _response(cell)) for cell in printed]


def compute_words(
    workbench: Workbench, target: ComputedTarget, published: Published
) -> list[ComputedWording]:
    """What we say in every cell of a table that is printed in words or as expressions.

    Raises:
        UserError: when what was counted is damaged.
    """
    words = published.words.get((target.system, target.item), ())
    costs = _costs(workbench.root, target) if isinstance(target.spec, Costs) else {}
    texts = {
        (key[0], key[1], key[3]): str(cost.value)
        for key, cost in costs.items()
        if isinstance(cost.value, str)
    }
    table = target.item.removeprefix("table_")
    return [ComputedWording(word, texts.get((table, word.setting, word.metric))) for word in words]


def is_trained(cell: PrintedCell) -> bool:
    """Whether a cell of a table of costs is an accuracy, which runs answer."""
    return cell.unit == "percent"


def _costing(cell: PrintedCell, cost: Cost) -> ComputedCell:
    if not isinstance(cost.value, float):
        return _hole(cell, cost.hole, cost.entry)
    verdict = judge_computed(cell, cost.value)
    return ComputedCell(cell, cost.value, None, "", verdict, cost.entry)


def _hole(cell: PrintedCell, why: str, entry: str = "") -> ComputedCell:
    return ComputedCell(cell, None, None, why, None, entry)


def _costs(root: Path, target: ComputedTarget) -> dict[tuple[str, str, str, str], Cost]:
    """What ``fedrepro study`` counted; empty where it did not yet."""
    path = target.study
    assert path is not None
    try:
        found = TypeAdapter(dict[str, list[Cost]]).validate_json((root / path).read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        first = str(error).partition("\n")[0]
        raise UserError(f"{path}: damaged: {first}; delete it and make it again") from None
    return {
        (cost.table, cost.setting, cost.method, cost.metric): cost
        for cost in found.get("cells", [])
    }


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
        return _hole(cell, sizes)
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
