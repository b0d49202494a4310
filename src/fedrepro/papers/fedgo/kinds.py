"""Kinds of figures and tables that only FedGO's experiment file uses, and a cell of its costs."""

from dataclasses import dataclass
from typing import Literal

from fedrepro.config.figures import FigureSpec
from fedrepro.config.tables import ComputedSpec


class Regions(FigureSpec):
    """A toy example's class regions under several aggregations; the same at both scales.

    :mod:`fedrepro.papers.fedgo.study_toy` computes them.
    """

    kind: Literal["regions"]
    study = "fedgo_toy"


class Costs(ComputedSpec):
    """A table of the methods' costs and disclosures, counted in networks without runs."""

    kind: Literal["costs"]
    study = "fedgo_cost"
    heading = "What is counted"
    of_methods = True


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
