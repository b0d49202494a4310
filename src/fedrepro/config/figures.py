"""Figures of experiment files.

A kind of figure is a class here and a module ``report/pages/figures/<kind>.py`` that draws it; or
both in a paper's package (:mod:`fedrepro.support.papers`). Nothing lists them.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedrepro.config.metrics import ACCURACY, Metric
from fedrepro.config.settings import Seeds
from fedrepro.config.tables import (
    INSTEAD,
    Column,
    Place,
    Row,
    Summary,
    named_settings,
    settings_instead,
)
from fedrepro.config.values import Composition, PositiveWhole, Scale, SettingInstead, SettingName
from fedrepro.support.typed_yaml import Real, Typed, Whole, expected, later

Needs = list[tuple[str, str]]  # the settings and methods that a figure is made from


class FigureSpec(Typed):
    """What all kinds of figures have.

    Attributes:
        analysis: the folder in results/ of the JSON that a rule makes of each of its runs, where
            the runs' own files do not say what is drawn.
        first_seed_only: whether it is made from the first seed's runs only.
        joins_seeds: whether an analysis is of all seeds together.
        study: what it is drawn from, where that takes no run (:mod:`fedrepro.analysis.studies`).
    """

    kind: str
    title: str
    seeds: Seeds | None = later(None, "Instead of the system's.")
    analysis: ClassVar[str | None] = None
    first_seed_only: ClassVar[bool] = False
    study: ClassVar[str | None] = None
    joins_seeds: ClassVar[bool] = False

    def parts(self, scale: Scale) -> list[tuple[str, str, str]]:
        """Setting, method and part of every analysis; "" where a run has only one of its kind."""
        return [(*need, "") for need in self.needs(scale)]

    @abstractmethod
    def needs(self, scale: Scale) -> Needs:
        """The settings and methods that it is made from at a scale."""

    def shared_out(self, scale: Scale) -> list[str]:
        """The settings at a scale whose partitions it draws, beside its runs."""
        return []

    @abstractmethod
    def named_settings(self) -> Iterator[tuple[str, str | None]]:
        """Where it names a setting, such as ``rows.0.demo``, and which."""


class Charts(FigureSpec):
    """A panel for each row; in it a bar, or a learning curve, for each column."""

    kind: Literal["bars", "lines"]
    metric: Metric = ACCURACY
    summary: Summary = Summary()
    rows: list[Row] = Field(min_length=1)
    columns: list[Column] = Field(min_length=1)
    smooth: PositiveWhole = later(
        1, "Of lines: the mean over so many rounds, drawn over the rounds themselves."
    )

    def needs(self, scale: Scale) -> Needs:
        return [
            (row.setting_at(scale), method)
            for row in self.rows
            for column in self.columns
            for method in column.methods_at(scale)
        ]

    def named_settings(self) -> Iterator[tuple[str, str | None]]:
        return named_settings("rows", self.rows)


class GridAxis(Typed):
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
    metric: Metric = ACCURACY
    summary: Summary = Summary()
    x: GridAxis
    y: GridAxis
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


class Partitions(FigureSpec):
    """A panel for each setting: who holds what, for the first seed. No run is needed."""

    kind: Literal["partitions"]
    panels: list[Place] = Field(min_length=1)

    def needs(self, scale: Scale) -> Needs:
        return []

    def shared_out(self, scale: Scale) -> list[str]:
        return list(dict.fromkeys(place.setting_at(scale) for place in self.panels))

    def named_settings(self) -> Iterator[tuple[str, str | None]]:
        return named_settings("panels", self.panels)


class Grid(Typed):
    """How finely a landscape is sampled: points along an axis, test samples at most."""

    points: Annotated[Whole, Field(ge=2), expected("a whole number of at least 2")] = 41
    samples: PositiveWhole = 2000

    def part(self, through: Sequence[str]) -> str:
        """The name of what is found, and :data:`PART` what it says."""
        return f"{'-'.join(through)}_{self.points}x{self.samples}"


PART = r"([A-Za-z0-9.-]+)_(\d+)x(\d+)"
Through = Annotated[list[str], Field(min_length=2, max_length=3)]
AtHeight = Literal["loss", "error"]


class View(Place):
    """A panel of a landscape: two models of a run that it kept, for a line, or three for a plane.

    ``fedrepro landscape --help`` says how they are named.
    """

    method: Composition
    through: Through
    demo_through: Through | None = None

    def part(self, scale: Scale, grid: Grid) -> str:
        return grid.part(self.demo_through or self.through if scale == "demo" else self.through)


class Planes(FigureSpec):
    """Loss or error through models of a run, of the first seed: on planes, or along lines."""

    kind: Literal["planes", "segments"]
    analysis = "landscapes"
    first_seed_only = True
    show: list[AtHeight] = Field(default=["loss", "error"], min_length=1)
    grid: Grid = Grid()
    demo_grid: Grid | None = None
    panels: list[View] = Field(min_length=1)

    @model_validator(mode="after")
    def _as_many_models_as_its_kind(self) -> Self:
        wanted = 3 if self.kind == "planes" else 2
        for view in self.panels:
            if {len(view.through), len(view.demo_through or view.through)} != {wanted}:
                raise ValueError(f"{wanted} models in the panel {view.label!r} of {self.kind}")
        return self

    def grid_at(self, scale: Scale) -> Grid:
        return self.demo_grid or self.grid if scale == "demo" else self.grid

    def needs(self, scale: Scale) -> Needs:
        return [(view.setting_at(scale), view.method) for view in self.panels]

    def parts(self, scale: Scale) -> list[tuple[str, str, str]]:
        grid = self.grid_at(scale)
        return [
            (view.setting_at(scale), view.method, view.part(scale, grid)) for view in self.panels
        ]

    def named_settings(self) -> Iterator[tuple[str, str | None]]:
        return named_settings("panels", self.panels)


class Sheets(FigureSpec):
    """Images that methods have made: of each class after some rounds, and beside real ones."""

    kind: Literal["sheets"]
    analysis = "quality"
    first_seed_only = True
    panels: list[Place] = Field(min_length=1)
    columns: list[Column] = Field(min_length=1)
    instead: dict[str, SettingInstead] = later({}, INSTEAD)

    def needs(self, scale: Scale) -> Needs:
        return [
            (place.setting_for(column.label, scale, self.instead), method)
            for place in self.panels
            for column in self.columns
            for method in column.methods_at(scale)
        ]

    def named_settings(self) -> Iterator[tuple[str, str | None]]:
        yield from named_settings("panels", self.panels)
        yield from settings_instead(self.panels, self.instead)


class Varied(Typed):
    """A value of what a panel varies, with the method of every line there.

    A point without ``demo`` is left out at scale demo.
    """

    at: Real
    setting: SettingName
    demo: SettingName | None = None
    methods: list[Composition] = Field(min_length=1)

    def setting_at(self, scale: Scale) -> str | None:
        return self.demo if scale == "demo" else self.setting


class Variation(Typed):
    """One panel of a trend: the label of what varies, and its values."""

    label: str
    x: str
    points: list[Varied] = Field(min_length=1)


class Trend(FigureSpec):
    """A panel for each quantity that varies: a measure against it, a line for each method."""

    kind: Literal["trend"]
    metric: Metric = ACCURACY
    summary: Summary = Summary()
    lines: list[str] = Field(min_length=1)
    panels: list[Variation] = Field(min_length=1)

    @model_validator(mode="after")
    def _a_method_for_every_line(self) -> Self:
        for panel in self.panels:
            for point in panel.points:
                if len(point.methods) != len(self.lines):
                    where = f"{panel.x} {point.at} of the panel {panel.label!r}"
                    raise ValueError(f"{len(self.lines)} methods, one for each line, at {where}")
        return self

    def needs(self, scale: Scale) -> Needs:
        return [
            (setting, method)
            for panel in self.panels
            for point in panel.points
            if (setting := point.setting_at(scale))
            for method in point.methods
        ]

    def named_settings(self) -> Iterator[tuple[str, str | None]]:
        for panel in self.panels:
            for number, point in enumerate(panel.points):
                yield f"panels.{panel.label}.points.{number}.setting", point.setting
                yield f"panels.{panel.label}.points.{number}.demo", point.demo
