"""The best number of each row: printed, and of ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedrepro.config.targets import TableTarget
from fedrepro.report.cells.cell import ComputedTable, Place, comparable


@dataclass(frozen=True)
class Best:
    """The columns with the best number of a row; of equal ones all.

    Attributes:
        printed: as far as printed digits tell.
        ours: empty if fewer than two columns have comparable means.
    """

    printed: frozenset[int]
    ours: frozenset[int]


def best_of_rows(target: TableTarget, table: ComputedTable, columns: Sequence[int]) -> list[Best]:
    """The best of each row among these columns, whose metric is the row's."""
    best = []
    for index, row in enumerate(target.table.rows):
        quantity = target.table.metric_of(row).quantity
        cells = [
            cell
            for cell in table.cells
            if cell.row == index and cell.column in columns
            if target.table.metric_of(row, target.table.columns[cell.column]).quantity.words
            == quantity.words
        ]
        printed = {
            cell.column: cell.printed.mean
            for cell in cells
            if cell.printed and cell.printed.mean is not None
        }
        whole = comparable({cell.column: cell.result for cell in cells})
        # As they are shown, so that what looks equal is.
        ours = {
            cell.column: round(whole[cell.column], table.decimals(cell))
            for cell in cells
            if cell.column in whole
        }
        both = (
            best_of(values, quantity.higher_is_better) if len(values) > 1 else frozenset[int]()
            for values in (printed, ours)
        )
        best.append(Best(*both))
    return best


def best_of(values: Mapping[Place, float], higher_is_better: bool) -> frozenset[Place]:
    """The places with the best value: of equal ones all."""
    best = (max if higher_is_better else min)(values.values(), default=None)
    return frozenset(place for place, value in values.items() if value == best)
