"""Tables of experiment files: rows of settings, columns of methods, and what is measured."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from fedrepro.config.values import (
    SCALES,
    Composition,
    PositiveWhole,
    Scale,
    SettingInstead,
    SettingName,
)
from fedrepro.support.typed_yaml import Real, Typed, expected, later


class PublishedTable(Typed):
    """Which printed table of the system's paper a table answers."""

    table: str


# Where a client's model lies between the shared one (weight 0) and its own (1): at the method's own
# weight; at the one of 0, .1 .. 1 whose accuracy is best on average, the same for all clients; or
# as SuPerFed's code has it (discrepancies 23 and 24): every client's accuracy at the weight that is
# best on its own test samples, all else the greatest value over the weights that any client chose.
Mix = Literal["fixed", "best", "released"]


class OverClients(Typed):
    """What clients score on their own test samples, as one number over all of them.

    ``average``, ``worst`` and ``best`` are in printed units (percent), the latter two over the
    tenth of clients, but at least one, with the least or greatest scores; ``gini`` is Gini's
    coefficient times 100, ``gap`` best less worst.
    """

    of: Literal[
        "accuracy", "top5", "auroc", "loss", "ece", "mce",
        "accuracy_batch", "top5_batch", "ece_batch", "mce_batch",
    ]  # fmt: skip
    over_clients: Literal["average", "worst", "best", "gini", "gap"]
    weighted: bool = Field(
        default=True, description="Averages weigh clients by test samples, as AAggFF's code does."
    )
    mix: Mix = Field(
        default="fixed", description="At which mixture, where clients mix two models of theirs."
    )


class RoundsTo(Typed):
    """The first evaluated round after which the test accuracy is at least so many percent."""

    rounds_to: Annotated[Real, Field(gt=0, le=100), expected("a percentage above 0, up to 100")]
    mean_of: PositiveWhole = later(
        1, "The mean accuracy of so many evaluated rounds counts, not each round's own."
    )
    speed_up: bool = later(
        False, "How many times as many rounds it takes without the row's wrapper (`around`)."
    )


class Quality(Typed):
    """A number of what judges the synthetic set that a run left (:mod:`fedrepro.analysis.quality`).

    ``accuracy`` is of a classifier trained on the set to convergence, on what clients hold out,
    weighted by samples, and ``accuracy_std`` its spread over clients, unweighted (item 41);
    ``one_epoch`` and ``one_epoch_std`` after a single epoch; ``test_accuracy`` and
    ``test_one_epoch`` on the data set's test samples. ``stand_in`` is a Fréchet distance in the
    features of a classifier trained here: no FID.
    """

    quality: Literal[
        "accuracy", "accuracy_std", "one_epoch", "one_epoch_std", "test_accuracy", "test_one_epoch",
        "fid", "stand_in", "precision", "recall", "diversity", "feature_diversity", "recognised",
        "nearest", "membership", "megabytes", "fedavg_megabytes",
    ]  # fmt: skip


class Reached(Typed):
    """The greatest multiple of so many percent that the test accuracy has in every seed's run."""

    reached_in_steps_of: Annotated[
        Real, Field(gt=0, le=100), expected("a percentage above 0, up to 100")
    ]


class Least(Typed):
    """The least over rounds of the mean over seeds."""

    least: Literal["loss", "ensemble_loss", "distillation_loss"]


KINDS: Mapping[str, type[Typed]] = {
    "rounds_to": RoundsTo, "quality": Quality, "reached_in_steps_of": Reached, "least": Least
}  # fmt: skip


def _tag_of_metric(value: object) -> str:
    for key, kind in KINDS.items():
        if isinstance(value, kind) or (isinstance(value, Mapping) and key in value):
            return kind.__name__
    return "OverClients" if isinstance(value, Mapping | OverClients) else "plain"


Metric = Annotated[
    Annotated[
        Literal["accuracy", "loss", "ensemble_accuracy", "ensemble_loss", "distillation_loss"],
        Tag("plain"),
    ]
    | Annotated[OverClients, Tag("OverClients")]
    | Annotated[RoundsTo, Tag("RoundsTo")]
    | Annotated[Reached, Tag("Reached")]
    | Annotated[Least, Tag("Least")]
    | Annotated[Quality, Tag("Quality")],
    Discriminator(_tag_of_metric),
]


class Summary(Typed):
    """How a run's learning curve becomes one number: the mean of its last evaluated rounds."""

    over: Literal["last"] = "last"
    rounds: PositiveWhole = 1
    up_to: PositiveWhole | None = later(None, "The last round that counts, where a run has more.")


class Place(Typed):
    """One setting of a figure; at scale demo the setting named by ``demo`` stands in for it."""

    label: str
    setting: SettingName
    demo: SettingName | None = None

    def setting_at(self, scale: Scale) -> str:
        return self.demo if scale == "demo" and self.demo else self.setting

    def setting_for(self, column: str, scale: Scale, instead: Mapping[str, str]) -> str:
        """The setting under the label ``column``, for which ``instead`` may name another one."""
        if scale == "demo" and self.demo:
            instead = {label: name for label, name in instead.items() if "*" in name}
        return instead.get(column, "*").replace("*", self.setting_at(scale))


INSTEAD = (
    "By a column's label, its setting instead of the row's, for which * stands. One without * is "
    "not for a row's `demo`."
)


def named_settings(key: str, places: Sequence[Place]) -> Iterator[tuple[str, str | None]]:
    """Where places under a key name a setting, and which."""
    for place in places:
        yield f"{key}.{place.label}.setting", place.setting
        yield f"{key}.{place.label}.demo", place.demo


AROUND = "A wrapper, such as ima, that is put around "


def wrapped(around: str | None, methods: Sequence[str]) -> tuple[str, ...]:
    """Methods in a wrapper, if there is one."""
    return tuple(f"{around}+{method}" if around else method for method in methods)


class Row(Place):
    """One setting of a table and what is measured there."""

    around: Composition | None = later(None, AROUND + "the methods of all columns.")
    metric: Metric | None = Field(default=None, description="What differs from the table's metric.")
    published: dict[str, str] = Field(
        default={},
        description="The printed row: its values in reports/papers/. Its `method` is what the row "
        "adds to the columns' printed names.",
    )


class RowOfTable(Row):
    """A row, some of whose cells may have a setting of their own."""

    instead: dict[str, SettingInstead] = later({}, INSTEAD)
    demo_instead: dict[str, SettingName] = later({}, "The same of the row's `demo`.")

    def setting_for(self, column: str, scale: Scale, instead: Mapping[str, str]) -> str:
        """The setting of the cell under the label ``column``; ``instead`` is the table's."""
        if scale == "demo" and self.demo and column in self.demo_instead:
            return self.demo_instead[column]
        return super().setting_for(column, scale, {**instead, **self.instead})


class Column(Typed):
    """One method of a table, or several of which the best counts."""

    label: str
    method: Composition | Annotated[list[Composition], Field(min_length=1)]
    demo: Composition | Annotated[list[Composition], Field(min_length=1)] | None = None
    around: Composition | None = later(None, AROUND + "each of them.")
    published: str | dict[str, str] | None = Field(
        default=None,
        description="The printed name of the column, or what differs from the printed row.",
    )
    mix: Mix | None = Field(default=None, description="Instead of the metric's mixture.")

    def methods_at(self, scale: Scale) -> tuple[str, ...]:
        chosen = self.demo if scale == "demo" and self.demo else self.method
        return wrapped(self.around, (chosen,) if isinstance(chosen, str) else chosen)


def settings_instead(
    places: Sequence[Place], instead: Mapping[str, str]
) -> Iterator[tuple[str, str | None]]:
    """Where ``instead`` names a setting, and which."""
    for label in instead:
        for place in places:
            for scale in SCALES:
                yield f"instead.{label}", place.setting_for(label, scale, instead)


class ColumnOfTable(Column):
    """A column that may measure something else than its rows do."""

    metric: Metric | None = later(None, "Instead of the row's.")


class Table(Typed):
    """A published table: rows of settings, columns of methods."""

    title: str
    published: PublishedTable | None = None
    metric: Metric = "accuracy"
    summary: Summary = Summary()
    instead: dict[str, SettingInstead] = later({}, INSTEAD)
    rows: list[RowOfTable] = Field(min_length=1)
    columns: list[ColumnOfTable] = Field(min_length=1)

    def setting_of(self, row: RowOfTable, column: Column, scale: Scale) -> str:
        """The setting of a cell."""
        return row.setting_for(column.label, scale, self.instead)

    def metric_of(self, row: Row, column: ColumnOfTable | None = None) -> Metric:
        """What a row measures, in a column as far as that has a say."""
        metric = (column.metric if column else None) or row.metric or self.metric
        if isinstance(metric, OverClients) and column and column.mix:
            return metric.model_copy(update={"mix": column.mix})
        return metric


class ComputedSpec(Typed):
    """A table without runs. Its kinds are in papers' packages (:mod:`fedrepro.support.papers`).

    Attributes:
        study: what it is read from, if that is made first (:mod:`fedrepro.analysis.studies`).
        heading: of all cells, with a column for each metric; None: there is a part for each metric,
            with a column for each method.
        of_methods: whether the rows under ``heading`` are methods, not data sets.
    """

    kind: str
    title: str
    study: ClassVar[str | None] = None
    heading: ClassVar[str | None] = None
    of_methods: ClassVar[bool] = False

    def counted_in(self) -> Mapping[str, str]:
        """Printed data set -> the setting in whose prepared data it is counted."""
        return {}
