"""Kinds of figures and tables that only AAggFF's experiment file uses."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from fedrepro.config.figures import FigureSpec, Needs, OfColumns
from fedrepro.config.tables import ComputedSpec, Place
from fedrepro.config.values import LocalSetting, MethodName, Scale


class Regret(FigureSpec):
    """A panel per setting: the regret of a method's decisions, and its proven bound.

    Attributes:
        method: the method whose decisions are judged.
        panels: the settings.
    """

    kind: Literal["regret"]
    analysis = "regrets"
    method: MethodName
    panels: list[Place] = Field(min_length=1)

    def needs(self, scale: Scale) -> Needs:
        return [(place.setting_at(scale), self.method) for place in self.panels]


class Objective(OfColumns):
    """A panel per setting: the cumulative global objective by round, with a line for each column.

    The objective of a round is the sum over its clients of their entry in the decision with which
    the round begins, times their loss.
    """

    kind: Literal["objective"]
    analysis = "regrets"


class Responses(ComputedSpec):
    """A table of responses of distribution functions to losses, computed without runs."""

    kind: Literal["responses"]


class ClientStatistics(ComputedSpec):
    """A table of samples per client, counted in prepared data."""

    kind: Literal["client_statistics"]
    heading = "What clients hold"
    settings: dict[str, LocalSetting] = Field(description="The setting of each printed data set.")

    def counted_in(self) -> Mapping[str, str]:
        return self.settings
