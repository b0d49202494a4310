"""Kinds of figures that only SuPerFed's experiment file uses."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from fedrepro.config.figures import FigureSpec, Needs
from fedrepro.config.tables import Column, Place, named_settings
from fedrepro.config.values import Scale


class Mixtures(FigureSpec):
    """A panel per setting: accuracy of the clients' interpolated models by weight.

    Attributes:
        panels: the settings.
        columns: the methods.
    """

    kind: Literal["mixtures"]
    panels: list[Place] = Field(min_length=1)
    columns: list[Column] = Field(min_length=1)

    def needs(self, scale: Scale) -> Needs:
        return [
            (place.setting_at(scale), method)
            for place in self.panels
            for column in self.columns
            for method in column.methods_at(scale)
        ]

    def named_settings(self) -> Iterator[tuple[str, str | None]]:
        return named_settings("panels", self.panels)
