"""Models of the tables of experiment files: rows of settings, columns of methods, a metric."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, get_origin, get_type_hints

from pydantic import Field

from fedrepro.config.config_file import Seeds
from fedrepro.config.metrics import ACCURACY, Metric
from fedrepro.config.values import (
    SCALES,
    AnySetting,
    ColumnSetting,
    LocalSetting,
    MethodName,
    Name,
    Scale,
)
from fedrepro.measures.base import Mix
from fedrepro.support.typed_yaml import PositiveWhole, Typed, later


def full_name(system: str, setting: str) -> str:
    """The full name of a setting that a table of a system names, maybe one of another system."""
    return setting if "/" in setting else f"{system}/{setting}"


class PublishedTable(Typed):
    """The printed table, in the system's paper, that a table reproduces.

    Attributes:
        table: its name in `reports/papers/SYSTEM/cells.csv`.
    """

    table: str


class Summary(Typed):
    """How a run's learning curve becomes one number: the mean of its last evaluated rounds.

    Attributes:
        over: always `last`.
        rounds: how many evaluated rounds are averaged.
        up_to: the last round to use, if a run has more.
    """

    over: Literal["last"] = "last"
    rounds: PositiveWhole = 1
    up_to: PositiveWhole | None = later(None)


class Place(Typed):
    """One setting of a figure; at scale demo, ``demo`` replaces it.

    Attributes:
        label: its name on the page.
        setting: a setting's name.
        demo: the setting that replaces it at scale demo.
    """

    label: str
    setting: LocalSetting
    demo: LocalSetting | None = None

    def setting_at(self, scale: Scale) -> str:
        return self.demo if scale == "demo" and self.demo else self.setting

    def setting_for(self, column: str, scale: Scale, column_settings: Mapping[str, str]) -> str:
        """The setting in the column labelled ``column``; ``column_settings`` may replace it."""
        if scale == "demo" and self.demo:
            named = column_settings.items()
            column_settings = {label: setting for label, setting in named if "*" in setting}
        return column_settings.get(column, "*").replace("*", self.setting_at(scale))


COLUMN_SETTINGS = (
    "By column label, a setting that replaces the row's; * stands for the row's name. An entry "
    "without * does not replace a row's `demo`."
)


WRAPPER = "A wrapper, such as ima, that is put around "


def wrapped(wrapper: str | None, methods: Sequence[str]) -> tuple[str, ...]:
    """Method names, inside ``wrapper`` if it is not None."""
    return tuple(f"{wrapper}+{method}" if wrapper else method for method in methods)


class Row(Place):
    """One setting of a table, and its metric.

    Attributes:
        metric: what differs from the table's metric.
        published: the printed row: its values in reports/papers/. Its `method` is what the row adds
            to the columns' printed names.
    """

    wrapper: MethodName | None = later(None, WRAPPER + "the methods of all columns.", "around")
    metric: Metric | None = None
    published: dict[str, str] = Field(default={})


class RowOfTable(Row):
    """A row, some of whose cells may have a setting of their own.

    Attributes:
        setting: a setting's name, or SYSTEM/SETTING of another experiment file.
        demo_column_settings: the same for the row's `demo`.
        league: the group of the league to which the row belongs, with all its columns.
    """

    setting: AnySetting
    demo: AnySetting | None = None
    column_settings: dict[str, ColumnSetting] = later({}, COLUMN_SETTINGS, "instead")
    demo_column_settings: dict[str, LocalSetting] = later({}, first_name="demo_instead")
    league: Name | None = later(None)

    def setting_for(self, column: str, scale: Scale, column_settings: Mapping[str, str]) -> str:
        """The setting of the cell in a column; ``column_settings`` are the table's."""
        if scale == "demo" and self.demo and column in self.demo_column_settings:
            return self.demo_column_settings[column]
        return super().setting_for(column, scale, {**column_settings, **self.column_settings})


class Column(Typed):
    """One method of a table, or several, of which the best is shown.

    Attributes:
        label: its heading.
        method: a method, or a list of them, of which the best is shown.
        demo: the method or methods that replace it at scale demo.
        published: the printed name of the column, or what differs from the printed row.
        mix: replaces the metric's mixture.
    """

    label: str
    method: MethodName | Annotated[list[MethodName], Field(min_length=1)]
    demo: MethodName | Annotated[list[MethodName], Field(min_length=1)] | None = None
    wrapper: MethodName | None = later(None, WRAPPER + "each of them.", "around")
    published: str | dict[str, str] | None = None
    mix: Mix | None = None

    def methods_at(self, scale: Scale) -> tuple[str, ...]:
        chosen = self.demo if scale == "demo" and self.demo else self.method
        return wrapped(self.wrapper, (chosen,) if isinstance(chosen, str) else chosen)


# Kinds of keys that name settings: one, several, one for each label, and those of single columns.
ONE = (LocalSetting, LocalSetting | None, AnySetting, AnySetting | None)
SEVERAL = list[LocalSetting]
BY_LABEL, BY_COLUMN = dict[str, LocalSetting], dict[str, ColumnSetting]


@cache
def _kinds_of(model: type[Typed]) -> dict[str, Any]:
    """The kinds of keys that name settings or have lists; those of columns, last, follow."""
    hints = get_type_hints(model, include_extras=True)
    kinds = {key: ONE if hints[key] in ONE else hints[key] for key in model.model_fields}
    known = {
        key: kind for key, kind in kinds.items() if kind in (ONE, SEVERAL, BY_LABEL, BY_COLUMN)
    }
    lists = dict.fromkeys((key for key in kinds if get_origin(kinds[key]) is list), list)
    return dict(sorted((lists | known).items(), key=lambda item: item[1] == BY_COLUMN))


def named_settings(model: Typed, at: str) -> Iterator[tuple[str, str | None]]:
    """The key and name of every setting that a table, figure or search names, by its keys' kinds.

    Args:
        at: the model's own key.
    """
    for key, kind in _kinds_of(type(model)).items():
        value, where = getattr(model, key), f"{at}.{key}"
        if kind is ONE:
            yield where, value
        elif kind == SEVERAL:
            yield from ((f"{where}.{number}", name) for number, name in enumerate(value))
        elif kind is list:
            for number, each in enumerate(value):
                if isinstance(each, Typed):
                    label = getattr(each, "label", number)
                    yield from named_settings(each, f"{where}.{label}")
        elif kind == BY_LABEL:
            yield from ((f"{where}.{label}", name) for label, name in value.items())
        else:
            places = getattr(model, "rows", None) or getattr(model, "panels", [model])
            for label, place, scale in product(value, places, SCALES):
                yield f"{where}.{label}", place.setting_for(label, scale, value)


class ColumnOfTable(Column):
    """A column that may have its own metric.

    Attributes:
        metric: replaces the row's metric.
    """

    metric: Metric | None = later(None)


class Table(Typed):
    """A published table: rows of settings, columns of methods.

    Attributes:
        title: its heading.
        published: the printed table that it is compared with, if any.
        diagnostic: it only shows where printed cells may come from. Its numbers answer them in no
            reading, and judge no claim.
        earlier_rule: its settings, of scale compact, were chosen by a rule that has been replaced
            (docs/compact.md). Claims that it tests say so.
        metric: what its cells show, unless a row or column says otherwise.
        summary: which rounds are averaged.
        seeds: replaces the system's seeds.
        rows: settings, and what differs in each.
        columns: methods.
    """

    title: str
    published: PublishedTable | None = None
    diagnostic: bool = later(False, first_name="explains")
    earlier_rule: bool = later(False)
    metric: Metric = ACCURACY
    summary: Summary = Summary()
    seeds: Seeds | None = later(None)
    column_settings: dict[str, ColumnSetting] = later({}, COLUMN_SETTINGS, "instead")
    rows: list[RowOfTable] = Field(min_length=1)
    columns: list[ColumnOfTable] = Field(min_length=1)

    def setting_of(self, row: RowOfTable, column: Column, scale: Scale) -> str:
        """The setting of a cell."""
        return row.setting_for(column.label, scale, self.column_settings)

    def metric_of(self, row: Row, column: ColumnOfTable | None = None) -> Metric:
        """The metric of a row, or of its cell in ``column``."""
        metric = (column.metric if column else None) or row.metric or self.metric
        return metric.at_mix(column.mix) if column and column.mix else metric


class ComputedSpec(Typed):
    """A table without runs. Papers' packages define its kinds (:mod:`fedrepro.support.papers`).

    Attributes:
        kind: which kind of table.
        title: its heading.
        study: the study that it is read from, if any (:mod:`fedrepro.analysis.studies`).
        heading: of the single part, with a column for each metric; None: one part for each metric,
            with a column for each method.
        of_methods: whether the rows under ``heading`` are methods rather than data sets.
    """

    kind: str
    title: str
    study: ClassVar[str | None] = None
    heading: ClassVar[str | None] = None
    of_methods: ClassVar[bool] = False

    def counted_in(self) -> Mapping[str, str]:
        """Printed data set -> the setting in whose prepared data it is counted."""
        return {}
