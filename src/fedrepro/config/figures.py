"""Models of the figures of experiment files.

A kind of figure is a class here and a module ``report/pages/figures/<kind>.py`` that draws it; or
both are in a paper's package (:mod:`fedrepro.support.papers`). There is no list of kinds to extend.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from fedrepro.config.config_file import Seeds
from fedrepro.config.metrics import ACCURACY, Metric
from fedrepro.config.tables import COLUMN_SETTINGS, Column, Place, Row, Summary
from fedrepro.config.values import ColumnSetting, LocalSetting, MethodName, Scale
from fedrepro.support.typed_yaml import PositiveWhole, Real, TwoOrMore, Typed, Whole, later

Needs = list[tuple[str, str]]  # settings and methods of the runs that a figure shows


class Shown(NamedTuple):
    """A number that a figure shows: that of the best of some methods in a setting."""

    label: str  # of its bar, line or panel
    metric: Metric
    setting: str
    methods: tuple[str, ...]


class FigureSpec(Typed):
    """The base of all kinds of figures.

    Attributes:
        kind: which kind of figure.
        title: its heading.
        seeds: replaces the system's seeds.
        analysis: the folder in results/ with the JSON files that a rule derives from its runs; None
            if the runs' own files suffice.
        first_seed_only: whether it shows only the first seed's runs.
        joins_seeds: whether one analysis covers all seeds.
        study: the study that it shows, if it needs no runs (:mod:`fedrepro.analysis.studies`).
    """

    kind: str
    title: str
    seeds: Seeds | None = later(None)
    analysis: ClassVar[str | None] = None
    first_seed_only: ClassVar[bool] = False
    study: ClassVar[str | None] = None
    joins_seeds: ClassVar[bool] = False

    def parts(self, scale: Scale) -> list[tuple[str, str, str]]:
        """Setting, method and part of every analysis; part is "" if a run has only one."""
        return [(*need, "") for need in self.needs(scale)]

    def shown(self, scale: Scale) -> list[Shown]:
        """The numbers of its runs that it shows at a scale, if its kind shows such."""
        return []

    def needs(self, scale: Scale) -> Needs:
        """The settings and methods of its runs at a scale."""
        return [(each.setting, method) for each in self.shown(scale) for method in each.methods]

    def shared_out(self, scale: Scale) -> list[str]:
        """The settings whose partitions it draws at a scale."""
        return []


class Charts(FigureSpec):
    """A panel for each row, with a bar or a learning curve for each column.

    Attributes:
        metric: what is drawn.
        summary: for bars: which rounds are averaged.
        rows: the panels: a setting each.
        columns: the methods.
        smooth: for lines: also draw the moving mean over this many rounds.
    """

    kind: Literal["bars", "lines"]
    metric: Metric = ACCURACY
    summary: Summary = Summary()
    rows: list[Row] = Field(min_length=1)
    columns: list[Column] = Field(min_length=1)
    smooth: PositiveWhole = later(1)
    column_settings: dict[str, ColumnSetting] = later({}, COLUMN_SETTINGS, "instead")

    def shown(self, scale: Scale) -> list[Shown]:
        return [
            Shown(
                column.label,
                row.metric or self.metric,
                row.setting_for(column.label, scale, self.column_settings),
                column.methods_at(scale),
            )
            for row in self.rows
            for column in self.columns
        ]


class GridAxis(Typed):
    """One axis of a heat map: a hyperparameter and its values.

    Attributes:
        label: its name; in the short form of a panel also the hyperparameter's.
        values: along the axis.
    """

    label: str
    values: list[str | Whole | Real] = Field(min_length=1)


class MethodGrid(Typed):
    """One panel of a heat map: a row of methods for each value of y, one method for each x.

    Attributes:
        label: the panel's name.
        methods: a list of methods for each value of y.
    """

    label: str
    methods: list[list[MethodName]] = Field(min_length=1)


class HeatMap(FigureSpec):
    """Panels in which two hyperparameters vary; each cell is a method.

    Scale demo has only the corners: the first and the last value of each axis.

    Attributes:
        setting: a setting's name.
        demo: the setting that replaces it at scale demo.
        metric: what a cell shows.
        summary: which rounds are averaged.
        x: the horizontal axis.
        y: the vertical axis.
        panels: the methods of each panel.
    """

    kind: Literal["heat_map"]
    setting: LocalSetting
    demo: LocalSetting | None = None
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
        """The figure with the values of a scale."""
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

    def shown(self, scale: Scale) -> list[Shown]:
        setting = self.demo if scale == "demo" and self.demo else self.setting
        return [
            Shown(panel.label, self.metric, setting, (name,))
            for panel in self.at(scale).panels
            for row in panel.methods
            for name in row
        ]


class Landscape(FigureSpec):
    """A panel for each method: the loss around the model of its first seed.

    Attributes:
        setting: a setting's name.
        demo: the setting that replaces it at scale demo.
        columns: the methods: a panel each.
    """

    kind: Literal["landscape"]
    analysis = "landscapes"
    first_seed_only = True
    setting: LocalSetting
    demo: LocalSetting | None = None
    columns: list[Column] = Field(min_length=1)

    def needs(self, scale: Scale) -> Needs:
        setting = self.demo if scale == "demo" and self.demo else self.setting
        return [(setting, name) for column in self.columns for name in column.methods_at(scale)]


class Partitions(FigureSpec):
    """A panel for each setting: samples per client and class, for the first seed. Needs no run.

    Attributes:
        panels: the settings whose partitions are drawn.
    """

    kind: Literal["partitions"]
    panels: list[Place] = Field(min_length=1)

    def shared_out(self, scale: Scale) -> list[str]:
        return list(dict.fromkeys(place.setting_at(scale) for place in self.panels))


class Grid(Typed):
    """The resolution of a landscape: points along each axis, and the maximum of test samples.

    Attributes:
        points: along each axis.
        samples: of the test set that are used, at most.
    """

    points: TwoOrMore = 41
    samples: PositiveWhole = 2000

    def part(self, through: Sequence[str]) -> str:
        """The name of the analysis's file, without suffix; :data:`PART` parses it."""
        return f"{'-'.join(through)}_{self.points}x{self.samples}"


PART = r"([A-Za-z0-9.-]+)_(\d+)x(\d+)"
Through = Annotated[list[str], Field(min_length=2, max_length=3)]
AtHeight = Literal["loss", "error"]


class View(Place):
    """A panel of a landscape: a line through two models that a run kept, or a plane through three.

    ``fedrepro landscape --help`` says how to name them.

    Attributes:
        method: the method whose run kept the models.
        through: the models' names: two for a line, three for a plane.
        demo_through: the models that replace them at scale demo.
    """

    method: MethodName
    through: Through
    demo_through: Through | None = None

    def part(self, scale: Scale, grid: Grid) -> str:
        return grid.part(self.demo_through or self.through if scale == "demo" else self.through)


class Planes(FigureSpec):
    """Loss or error on planes or lines through models of a run, for the first seed.

    Attributes:
        show: loss, error or both.
        grid: its resolution.
        demo_grid: its resolution at scale demo.
        panels: the settings, methods and models.
    """

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


class OfColumns(FigureSpec):
    """The base of figures with a panel per setting that shows the methods of each column.

    Attributes:
        panels: the settings.
        columns: the methods.
    """

    panels: list[Place] = Field(min_length=1)
    columns: list[Column] = Field(min_length=1)

    def needs(self, scale: Scale) -> Needs:
        replacing = getattr(self, "column_settings", {})
        return [
            (place.setting_for(column.label, scale, replacing), method)
            for place in self.panels
            for column in self.columns
            for method in column.methods_at(scale)
        ]


class Sheets(OfColumns):
    """Synthetic images of methods: of each class after some rounds, and next to real images."""

    kind: Literal["sheets"]
    analysis = "quality"
    first_seed_only = True
    column_settings: dict[str, ColumnSetting] = later({}, COLUMN_SETTINGS, "instead")


class Varied(Typed):
    """One value on a panel's x axis, with the method of each line.

    Scale demo leaves out points without ``demo``.

    Attributes:
        at: the value.
        setting: the setting with this value.
        demo: the same at scale demo.
        methods: one for each line, in their order.
    """

    at: Real
    setting: LocalSetting
    demo: LocalSetting | None = None
    methods: list[MethodName] = Field(min_length=1)

    def setting_at(self, scale: Scale) -> str | None:
        return self.demo if scale == "demo" else self.setting


class Variation(Typed):
    """One panel of a trend: the label of its x axis, and its values.

    Attributes:
        label: the panel's name.
        x: the label of its x axis.
        points: the values of x.
    """

    label: str
    x: str
    points: list[Varied] = Field(min_length=1)


class Trend(FigureSpec):
    """A panel for each varied quantity: a metric against it, with a line for each method.

    Attributes:
        metric: what is drawn.
        summary: which rounds are averaged.
        lines: the names of the lines.
        panels: the varied quantities.
    """

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

    def shown(self, scale: Scale) -> list[Shown]:
        return [
            Shown(line, self.metric, setting, (method,))
            for panel in self.panels
            for point in panel.points
            if (setting := point.setting_at(scale))
            for line, method in zip(self.lines, point.methods, strict=True)
        ]
