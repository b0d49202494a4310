"""FedGO's tables of costs, from :mod:`fedrepro.papers.fedgo.study_cost`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrepro.config.targets import ComputedTarget
from fedrepro.config.workbench import Workbench
from fedrepro.papers.fedgo.kinds import Cell
from fedrepro.report.cells.computed import ComputedCell, Found, hole
from fedrepro.report.papers.published import PrintedCell
from fedrepro.report.papers.verdict import judge_computed
from fedrepro.run.derived_files import read_as

NOT_COUNTED = "not counted yet"


@dataclass(frozen=True)
class Costs:
    """The study's file."""

    cells: tuple[Cell, ...] = ()


def compute(workbench: Workbench, target: ComputedTarget, printed: Sequence[PrintedCell]) -> Found:
    costs = _costs(workbench.root, target)
    if not costs:
        counted = (cell for cell in printed if cell.unit != "percent")  # accuracies are of runs
        return Found([hole(cell, NOT_COUNTED) for cell in counted])
    keys = ((cell.table, cell.setting, cell.method, cell.metric) for cell in printed)
    return Found(
        [
            _costing(cell, costs[key])
            for cell, key in zip(printed, keys, strict=True)
            if key in costs
        ],
        {
            (table, setting, metric): cost.value
            for (table, setting, _, metric), cost in costs.items()
            if isinstance(cost.value, str)
        },
    )


def _costing(cell: PrintedCell, cost: Cell) -> ComputedCell:
    if not isinstance(cost.value, float):
        return hole(cell, cost.hole, cost.entry)
    verdict = judge_computed(cell, cost.value)
    return ComputedCell(cell, cost.value, None, "", verdict, cost.entry)


def _costs(root: Path, target: ComputedTarget) -> dict[tuple[str, str, str, str], Cell]:
    """The counts of ``fedrepro study``; empty if it has not run yet."""
    path = target.study
    assert path is not None
    study = read_as(Costs, root, path)
    costs = study.cells if study else ()
    return {(cost.table, cost.setting, cost.method, cost.metric): cost for cost in costs}
