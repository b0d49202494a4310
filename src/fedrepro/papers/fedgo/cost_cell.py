"""A cell of FedGO's tables of costs, in the file of its study."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """A printed cell, by its keys in reports/papers/fedgo, and our content for it.

    Attributes:
        value: a number or the cell's words; None if missing, with the reason in ``hole``.
        entry: the discrepancy that explains a difference from print; or "".
    """

    table: str
    setting: str
    method: str
    metric: str
    value: float | str | None
    hole: str = ""
    entry: str = ""
