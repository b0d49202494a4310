"""What FedGO's experiment file has that no other needs."""

from collections.abc import Iterator
from typing import Literal

from fedrepro.config.figures import FigureSpec, Needs
from fedrepro.config.tables import ComputedSpec
from fedrepro.config.values import Scale


class Regions(FigureSpec):
    """The regions of a toy example's classes under several aggregations: the same at both scales.

    They are found by :mod:`fedrepro.papers.fedgo.study_toy`.
    """

    kind: Literal["regions"]
    study = "fedgo_toy"

    def needs(self, scale: Scale) -> Needs:
        return []

    def named_settings(self) -> Iterator[tuple[str, str | None]]:
        return iter(())


class Costs(ComputedSpec):
    """A table of what a paper's methods cost and disclose: counted in networks, nothing is run."""

    kind: Literal["costs"]
    study = "fedgo_cost"
    heading = "What is counted"
    of_methods = True
