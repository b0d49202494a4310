"""Figures of experiment files.

A kind of figure is a class here, in :data:`Figure`, and a module ``report/pages/figures/<kind>.py``
that draws it.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedrepro.config.tables import Column, Metric, Place, Row, Summary, named_settings
from fedrepro.config.values import Composition, Scale, SettingName
from fedrepro.support.typed_yaml import Real, Typed, Whole

Needs = list[tuple[str, str]]  # the settings and methods that a figure is made from


class FigureSpec(Typed):
    """What all kinds of figures have.

    Attributes:
        analysis: the folder in results/ of the JSON that a rule makes of each of its runs, where
            the runs' own files do not say what is drawn.
        first_seed_only: whether only the first seed's runs are analysed.
        study: what it is drawn from, where that takes no run (:mod:`fedrepro.analysis.studies`).
    """

    kind: str
    title: str
    analysis: ClassVar[Literal["landscapes", "regrets"] | None] = None
    first_seed_only: ClassVar[bool] = False
    study: ClassVar[str | None] = None

    @abstractmethod
    def needs(self, scale: Scale) -> Needs:
        """The settings and methods that it is made from at a scale."""

    @abstractmethod
    def named_settings(self) -> Iterator[tuple[str, str | None]]:
        """Where it names a setting, such as ``rows.0.demo``, and which."""


class Charts(FigureSpec):
    """A panel for each row; in it a bar, or a learning curve, for each column."""

    kind: Literal["bars", "lines"]
    metric: Metric = "accuracy"
    summary: Summary = Summary()
    rows: list[Row] = Field(min_length=1)
    columns: list[Column] = Field(min_length=1)

    def needs(self, scale: Scale) -> Needs:
        return [
            (row.setting_at(scale), method)
            for row in self.rows
            for column in self.columns
            for method in column.methods_at(scale)
        ]

    def named_settings(self) -> Iterator[tuple[str, str | None]]:
        return named_settings("rows", self.rows)


class Regret(FigureSpec):
    """A panel for each setting: the regret of a method's decisions, and its proven bound."""

    kind: Literal["regret"]
    analysis = "regrets"
    method: Composition
    panels: list[Place] = Field(min_length=1)

    def needs(self, scale: Scale) -> Needs:
        return [(place.setting_at(scale), self.method) for place in self.panels]

    def named_settings(self) -> Iterator[tuple[str, str | None]]:
        return named_settings("panels", self.panels)


class Axis(Typed):
    """One side of a heat map: what varies, and its values."""

    label: str
    values: list[str | Whole | Real] = Field(min_length=1)


class MethodGrid(Typed):
    """One panel of a heat map: rows by the values of y, each with a method for every x."""

    label: str
    methods: list[list[Composition]] = Field(min_length=1)


class HeatMap(FigureSpec):
    """Panels in which two hyperparameters vary; every cell is a method.

    Scale demo has the corners only: the least and the greatest value of each.
    """

    kind: Literal["heat_map"]
    setting: SettingName
    demo: SettingName | None = None
    metric: Metric = "accuracy"
    summary: Summary = Summary()
    x: Axis
    y: Axis
    panels: list[MethodGrid] = Field(min_length=1)

    @model_validator(mode="after")
    def _as_large_as_its_axes(self) -> Self:
        wide, high = len(self.x.values), len(self.y.values)
        for panel in self.panels:
            if [len(row) for row in panel.methods] != [wide] * high:
                raise ValueError(f"{high} rows of {wide} methods in the panel {panel.label!r}")
        return self

    def at(self, scale: Scale) -> Self:
        """The figure with the values that a scale has."""
        if scale == "paper":
            return self

        def ends(values: Sequence[Any]) -> list[Any]:
            return [values[0], values[-1]] if len(values) > 1 else list(values)

        x, y = (axis.model_copy(update={"values": ends(axis.values)}) for axis in (self.x, self.y))
        panels = [
            panel.model_copy(update={"methods": [ends(row) for row in ends(panel.methods)]})
            for panel in self.panels
        ]
        return self.model_copy(update={"x": x, "y": y, "panels": panels})

    def needs(self, scale: Scale) -> Needs:
        setting = self.demo if scale == "demo" and self.demo else self.setting
        panels = self.at(scale).panels
        return [(setting, name) for panel in panels for row in panel.methods for name in row]

    def named_settings(self) -> Iterator[tuple[str, str | None]]:
        yield "setting", self.setting
        yield "demo", self.demo


class Mixtures(FigureSpec):
    """A panel for each setting: accuracy of the clients' mixed models along the weight."""

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


class Landscape(FigureSpec):
    """A panel for each method: the loss around its model, of the first seed."""

    kind: Literal["landscape"]
    analysis = "landscapes"
    first_seed_only = True
    setting: SettingName
    demo: SettingName | None = None
    columns: list[Column] = Field(min_length=1)

    def needs(self, scale: Scale) -> Needs:
        setting = self.demo if scale == "demo" and self.demo else self.setting
        return [(setting, name) for column in self.columns for name in column.methods_at(scale)]

    def named_settings(self) -> Iterator[tuple[str, str | None]]:
        yield "setting", self.setting
        yield "demo", self.demo


class Regions(FigureSpec):
    """The regions of a toy example's classes under several aggregations: the same at both scales.

    It is FedGO's (:mod:`fedrepro.analysis.toy`).
    """

    kind: Literal["regions"]
    study = "fedgo_toy"

    def needs(self, scale: Scale) -> Needs:
        return []

    def named_settings(self) -> Iterator[tuple[str, str | None]]:
        return iter(())


Figure = Annotated[
    Charts | Regret | HeatMap | Mixtures | Landscape | Regions, Field(discriminator="kind")
]
