"""What tables and figures ask of a run: a measure, and how one number is made of it.

Each kind of metric is a class here, which says in YAML what it needs and how it is read.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fedrepro.config.values import PositiveWhole
from fedrepro.measures import registry
from fedrepro.measures.base import Measure, Mix, Per, Reading, Record, Series
from fedrepro.support.errors import nearest
from fedrepro.support.plugins import NONE
from fedrepro.support.typed_yaml import Real, Typed, expected, later, plain_or


def named(
    *per: Per, among: Callable[[Measure], bool] = lambda measure: True
) -> tuple[BeforeValidator, WithJsonSchema]:
    """Refuses names of other measures; the schema has the package's, and lets one's own pass."""

    def check(value: object, info: ValidationInfo) -> object:
        folders = info.context or NONE
        found = registry.find(value, *per, folders=folders) if isinstance(value, str) else None
        if found is None or not among(found):
            known = registry.known(*per, folders=folders)
            choices = sorted(name for name, each in known.items() if among(each))
            one_of = (
                f"one of {', '.join(choices)}" if choices else "a file in a folder own.measures"
            )
            text = f"{one_of}{nearest(value, choices)}"
            raise PydanticCustomError("expected", "{text}", {"text": text})
        return value

    ours = [name for name, each in registry.packaged(*per).items() if among(each)]
    either: list[dict[str, object]] = [{"enum": ours}, {"description": "One of your own."}]
    return BeforeValidator(check), WithJsonSchema({"type": "string", "anyOf": either})


class MetricKind(Typed):
    """What kinds of metrics have.

    Attributes:
        analysis: the folder in results/ of the JSON that a rule makes of each of its runs.
        key: in YAML, the one that tells the kind.
    """

    analysis: ClassVar[Literal["quality"] | None] = None
    key: ClassVar[str]

    @property
    def reading(self) -> Reading:
        """How it is read off runs."""
        raise NotImplementedError

    @property
    def curve(self) -> "MetricKind":
        """What is drawn round by round: of one number of a whole run, what it is a number of."""
        return self

    @property
    def of_a_run(self) -> bool:
        """Whether it is one number of a whole run, whichever rounds a table counts."""
        return self.curve is not self

    @property
    def same_axes(self) -> bool:
        """Whether the panels of a row share their axes."""
        return False

    @property
    def of_both(self) -> "MetricKind | None":
        """What of a run and of its rival is divided by one another; None: it has no rival."""
        return None

    @property
    def selection(self) -> str:
        """What is chosen on test samples, in words, or ""."""
        return ""

    @property
    def as_released(self) -> bool:
        """Whether it is read as a released code has it."""
        return False

    def at_mix(self, mix: Mix) -> Self:
        """At another mixture of clients' two models, where there are such."""
        return self


class OfMeasure(MetricKind):
    """A kind that is about one measure, which it keeps where that is one's own."""

    kinds: ClassVar[tuple[Per, ...]]
    _own: Measure | None = PrivateAttr(default=None)

    @property
    def measured(self) -> str:
        """The measure's name."""
        raise NotImplementedError

    @property
    def measure(self) -> Measure:
        return self._own or registry.the(self.measured, *self.kinds)

    @model_validator(mode="after")
    def _find(self, info: ValidationInfo) -> Self:
        if self.measured not in registry.packaged(*self.kinds):
            folders = info.context or NONE
            self._own = registry.the(self.measured, *self.kinds, folders=folders)
        return self


class OfRounds(OfMeasure):
    """A number of every evaluated round, by its name alone; or one's own measure of a run."""

    kinds = ("round", "run")
    name: Annotated[str, *named("round", "run")]

    @model_validator(mode="before")
    @classmethod
    def _by_its_name(cls, value: Any) -> Any:
        return value if isinstance(value, Mapping | cls) else {"name": value}

    @model_serializer
    def _written(self) -> str:
        return self.name

    @property
    def measured(self) -> str:
        return self.name

    @property
    def reading(self) -> Reading:
        measure = self.measure
        return Reading(measure.words, measure.unit, measure.rising, measure.series, measure.without)

    @property
    def of_a_run(self) -> bool:
        return self.measure.per == "run"

    @property
    def same_axes(self) -> bool:
        return self.measure.same_axes


ACCURACY = OfRounds(name="accuracy")


class OverClients(OfMeasure):
    """What clients score on their own test samples, or report, as one number over all of them.

    ``average``, ``worst`` and ``best`` are in printed units (percent), the latter two over the
    tenth of clients, but at least one, with the worst or best scores; ``gini`` is Gini's
    coefficient times 100, ``gap`` the greatest tenth less the least.
    """

    kinds = ("client",)
    of: Annotated[str, *named("client")]
    over_clients: Literal["average", "worst", "best", "gini", "gap"]
    weighted: bool = Field(
        default=True, description="Averages weigh clients by test samples, as AAggFF's code does."
    )
    mix: Mix = Field(
        default="fixed", description="At which mixture, where clients mix two models of theirs."
    )

    @property
    def measured(self) -> str:
        return self.of

    @property
    def reading(self) -> Reading:
        from fedrepro.measures.clients import SUMMARIES

        measure, summary = self.measure, SUMMARIES[self.over_clients]
        samples = measure.weighed_by.replace("_", " ").replace("train ", "training ")
        how = f", weighted by {samples}" if summary.weighable and self.weighted else ""
        return Reading(
            f"{measure.words}, {summary.words}{how}",
            summary.unit(measure),
            summary.rising(measure),
            self._series,
            measure.without,
        )

    def _series(self, record: Record) -> Series:
        from fedrepro.measures.clients import SUMMARIES, by_client, mixed

        if self.of not in record.clients:
            return []
        measure, summary = self.measure, SUMMARIES[self.over_clients]
        if self.mix != "fixed" and self.of in record.mixtures:
            values, sizes = mixed(record.mixtures, self.of, self.mix)
            found = [(record.rounds["round"][-1], values, sizes)]
        else:
            found = by_client(record.clients, self.of, measure.weighed_by)
        factor = summary.factor(measure)
        return [
            (number, factor * summary.of(values, sizes if self.weighted else None, measure.rising))
            for number, values, sizes in found
        ]

    @property
    def selection(self) -> str:
        return {
            "best": "the mixture that is best on average is chosen on test samples",
            "released": "each client's mixture is chosen on its own test samples",
        }.get(self.mix, "")

    @property
    def as_released(self) -> bool:
        return self.mix == "released" or self.measure.as_released

    def at_mix(self, mix: Mix) -> Self:
        return self.model_copy(update={"mix": mix})


class RoundsTo(MetricKind):
    """The first evaluated round after which the test accuracy is at least so many percent."""

    key = "rounds_to"
    rounds_to: Annotated[Real, Field(gt=0, le=100), expected("a percentage above 0, up to 100")]
    mean_of: PositiveWhole = later(
        1, "The mean accuracy of so many evaluated rounds counts, not each round's own."
    )
    speed_up: bool = later(
        False, "How many times as many rounds it takes without the row's wrapper (`around`)."
    )

    @property
    def reading(self) -> Reading:
        several, target = self.mean_of, f"{self.rounds_to:g} %"
        mean = f"mean accuracy of {several} evaluated rounds" if several > 1 else "accuracy"
        words, without = f"rounds until the {mean} is {target}", f"never reached {target}"
        if self.speed_up:
            words = f"speed-up: {words}, without the wrapper by with it"
        unit = "" if self.speed_up else "rounds"
        return Reading(words, unit, self.speed_up, self._series, without)

    def _series(self, record: Record) -> Series:
        """One value. Of a speed-up this is one run's part; who knows both runs divides."""
        several, accuracies = self.mean_of, ACCURACY.measure.series(record)
        numbers, values = [each[0] for each in accuracies], [each[1] for each in accuracies]
        means = [
            math.fsum(values[end - several : end]) / several
            for end in range(several, len(values) + 1)
        ]
        # In shares the target is met to rounding: 0.6 is 59.999999999999993 %.
        met = (mean >= self.rounds_to - 1e-9 for mean in means)
        reached = itertools.compress(numbers[several - 1 :], met)
        return [(number, number) for number in itertools.islice(reached, 1)]

    @property
    def curve(self) -> MetricKind:
        return ACCURACY

    @property
    def of_both(self) -> MetricKind | None:
        return self.model_copy(update={"speed_up": False}) if self.speed_up else None


class Reached(MetricKind):
    """The greatest multiple of so many percent that the test accuracy has in every seed's run."""

    key = "reached_in_steps_of"
    reached_in_steps_of: Annotated[
        Real, Field(gt=0, le=100), expected("a percentage above 0, up to 100")
    ]

    @property
    def reading(self) -> Reading:
        return Reading(
            f"greatest multiple of {self.reached_in_steps_of:g} % that the accuracy reaches with "
            "all seeds",
            "%",
            True,
            lambda record: (
                [(record.rounds["round"][-1], self._value(record))] if record.rounds else []
            ),
            together=lambda records: min(map(self._value, records)),
        )

    def _value(self, record: Record) -> float:
        most = max(value for _, value in ACCURACY.measure.series(record))
        return self.reached_in_steps_of * math.floor((most + 1e-9) / self.reached_in_steps_of)

    @property
    def curve(self) -> MetricKind:
        return ACCURACY


class Least(OfMeasure):
    """The least over rounds of the mean over seeds."""

    kinds = ("round",)
    key = "least"
    least: Annotated[str, *named("round", among=lambda measure: not measure.rising)]

    @property
    def measured(self) -> str:
        return self.least

    @property
    def curve(self) -> OfRounds:
        curve = OfRounds.model_construct(name=self.least)
        curve._own = self._own
        return curve

    @property
    def reading(self) -> Reading:
        measure = self.measure

        def series(record: Record) -> Series:
            found = measure.series(record)
            return [min(found, key=lambda at: at[1])] if found else []

        def together(records: Sequence[Record]) -> float:
            curves = [dict(measure.series(record)) for record in records]
            rounds = set.intersection(*map(set, curves))
            sums = (math.fsum(curve[number] for curve in curves) for number in rounds)
            return min(sums) / len(curves)

        words = f"least {measure.words} of a round, of the mean over seeds"
        without = f"the method has no {measure.words}"
        return Reading(words, measure.unit, False, series, without, together)


class Quality(MetricKind):
    """A number of what judges the synthetic set that a run left (:mod:`fedrepro.analysis.quality`).

    ``accuracy`` is of a classifier trained on the set to convergence, on what clients hold out,
    weighted by samples, and ``accuracy_std`` its spread over clients, unweighted (item 41);
    ``one_epoch`` and ``one_epoch_std`` after a single epoch; ``test_accuracy`` and
    ``test_one_epoch`` on the data set's test samples. ``stand_in`` is a Fréchet distance in the
    features of a classifier trained here: no FID.
    """

    key = "quality"
    analysis = "quality"
    quality: Literal[
        "accuracy", "accuracy_std", "one_epoch", "one_epoch_std", "test_accuracy", "test_one_epoch",
        "fid", "stand_in", "precision", "recall", "diversity", "feature_diversity", "recognised",
        "nearest", "membership", "megabytes", "fedavg_megabytes",
    ]  # fmt: skip

    @property
    def reading(self) -> Reading:
        measure = registry.SETS[self.quality]
        return Reading(
            measure.words,
            measure.unit,
            measure.rising,
            measure.series,
            measure.without,
            incomparable=measure.incomparable,
        )


KINDS: tuple[type[MetricKind], ...] = (RoundsTo, Quality, Reached, Least)


def _kind_of(value: object) -> str:
    """The name of the kind that a value is, or is meant to be."""
    if isinstance(value, MetricKind):
        return type(value).__name__
    if not isinstance(value, Mapping):
        return OfRounds.__name__
    return next((kind for kind in KINDS if kind.key in value), OverClients).__name__


# In YAML and its schema, a round's measure is a name.
_NAME = named("round", "run")[1]
Metric = Annotated[
    Annotated[OfRounds, Tag("OfRounds"), _NAME]
    | Annotated[OverClients, Tag("OverClients")]
    | Annotated[RoundsTo, Tag("RoundsTo")]
    | Annotated[Reached, Tag("Reached")]
    | Annotated[Least, Tag("Least")]
    | Annotated[Quality, Tag("Quality")],
    Discriminator(_kind_of),
]


class SearchedScore(OfRounds):
    """A score that there is on validation samples as on test samples."""

    name: Annotated[str, *named("round", among=lambda measure: measure.validated)]


SearchMetric = Annotated[
    Annotated[SearchedScore, Tag("plain"), WithJsonSchema({"enum": ["accuracy", "loss"]})]
    | Annotated[OverClients, Tag("OverClients")],
    plain_or(OverClients),
]
