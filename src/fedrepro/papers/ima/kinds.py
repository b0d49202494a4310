"""Kinds of figures that only IMA's experiment file uses."""

from typing import Annotated, Literal

from pydantic import Field

from fedrepro.config.figures import FigureSpec, Needs
from fedrepro.config.tables import Place
from fedrepro.config.values import MethodName, Scale
from fedrepro.support.typed_yaml import PositiveWhole

Term = Literal[
    "train_bias", "heterogeneous_bias", "variance", "covariance", "locality", "total", "loss",
    "ensemble_loss", "error", "distance", "gap", "slope", "cka",
]  # fmt: skip


class OfKeptModels(FigureSpec):
    """The base of figures of a decomposition after the rounds whose models runs kept.

    Attributes:
        method: the method whose runs kept models.
        samples: of the test set that are used, at most.
        panels: the settings.
    """

    analysis = "decompositions"
    joins_seeds = True
    method: MethodName
    samples: PositiveWhole = 2000
    panels: list[Place] = Field(min_length=1)

    def needs(self, scale: Scale) -> Needs:
        return [(place.setting_at(scale), self.method) for place in self.panels]

    def parts(self, scale: Scale) -> list[tuple[str, str, str]]:
        return [(*need, str(self.samples)) for need in self.needs(scale)]


class Decomposition(OfKeptModels):
    """Terms of the expected loss by round: a panel for each group of them.

    Every setting has these panels; the terms of a group share an axis.

    Attributes:
        show: groups of terms; those of a group share a panel.
    """

    kind: Literal["decomposition"]
    show: list[Annotated[list[Term], Field(min_length=1)]] = Field(min_length=1)


class Averaging(OfKeptModels):
    """The error of averages of clients: by how many are averaged, and by their similarity.

    A panel of the first by number for some of the rounds, and one of the second over all rounds.
    Every setting is a line in each.
    """

    kind: Literal["averaging"]
