"""Metrics of tables and figures: a measure, and how it is reduced to one number.

Each kind of metric is a class here, with its keys in YAML.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

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

from fedrepro.measures import registry
from fedrepro.measures.base import Measure, Mix, Per, Quantity, Record, Series
from fedrepro.support.errors import nearest
from fedrepro.support.plugins import NONE
from fedrepro.support.typed_yaml import PositiveWhole, Real, Typed, expected, later, under

StatisticName = Literal["average", "worst", "best", "gini", "gap"]


def named(
    *per: Per, among: Callable[[Measure], bool] = lambda measure: True
) -> tuple[BeforeValidator, WithJsonSchema]:
    """The annotations of a measure's name: others are refused; the schema lists the package's."""

    def check(value: object, info: ValidationInfo) -> object:
        folders = info.context or NONE
        measure = registry.find(value, *per, folders=folders) if isinstance(value, str) else None
        if measure is None or not among(measure):
            known = registry.known(*per, folders=folders)
            choices = sorted(name for name, each in known.items() if among(each))
            one_of = f"one of {', '.join(choices)}" if choices else "a file in plugins.measures"
            over = f", or of clients {{ of: accuracy, over_clients: {value} }}"
            hint = over if value in get_args(StatisticName) else nearest(value, choices)
            text = f"{one_of}{hint}"
            raise PydanticCustomError("expected", "{text}", {"text": text})
        return value

    ours = [name for name, each in registry.packaged(*per).items() if among(each)]
    either: list[dict[str, object]] = [{"enum": ours}, {"description": "A plug-in."}]
    return BeforeValidator(check), WithJsonSchema({"type": "string", "anyOf": either})


class MetricKind(Typed):
    """The base of all kinds of metrics.

    Attributes:
        analysis: the folder in results/ with the JSON files that a rule derives from its runs.
        key: the YAML key that identifies the kind.
    """

    analysis: ClassVar[Literal["quality"] | None] = None
    key: ClassVar[str]

    @property
    def quantity(self) -> Quantity:
        """How to read it from runs."""
        raise NotImplementedError

    @property
    def curve(self) -> "MetricKind":
        """The metric to draw round by round; for one number per run, that of its rounds."""
        return self

    @property
    def on_test_set(self) -> bool:
        """True if it reads scores of the shared model on the test set, where the data have one."""
        return False

    @property
    def of_both(self) -> "MetricKind | None":
        """For a ratio of a run and its rival, the metric to divide; None if there is no rival."""
        return None

    def at_mix(self, mix: Mix) -> Self:
        """The metric at another mixture of clients' two models, where there are two."""
        return self

    def unreached(self, record: Record, rounds: int) -> float | None:
        """The number, that of all rounds, of a run that never reached its target; None if none."""
        return None


class OfMeasure(MetricKind):
    """A metric of one measure, which it stores if that is a plug-in."""

    kinds: ClassVar[tuple[Per, ...]]
    named_in: ClassVar[str]  # the key with the measure's name
    _own: Measure | None = PrivateAttr(default=None)

    @property
    def measured(self) -> str:
        """The measure's name."""
        return str(getattr(self, self.named_in))

    @property
    def measure(self) -> Measure:
        return self._own or registry.the(self.measured, *self.kinds)

    @property
    def on_test_set(self) -> bool:
        scores = self.measure.from_outputs or self.measure.column.startswith("test_")
        return self.measure.per == "round" and scores

    @model_validator(mode="after")
    def _find(self, info: ValidationInfo) -> Self:
        if self.measured not in registry.packaged(*self.kinds):
            folders = info.context or NONE
            self._own = registry.the(self.measured, *self.kinds, folders=folders)
        return self


class OfRounds(OfMeasure):
    """A measure of every evaluated round, written as its name; or a plug-in's measure of a run.

    Attributes:
        name: the measure's name, such as `accuracy` or `loss`.
    """

    kinds = ("round", "run")
    named_in = "name"
    name: Annotated[str, *named("round", "run")]

    @model_validator(mode="before")
    @classmethod
    def _by_its_name(cls, value: Any) -> Any:
        return value if isinstance(value, Mapping | cls) else {"name": value}

    @model_serializer
    def _written(self) -> str:
        return self.name

    @property
    def quantity(self) -> Quantity:
        return self.measure.quantity


ACCURACY = OfRounds(name="accuracy")


# By mixture: what it selects on test samples, and where it is read; without an entry, neither.
BY_EACH = "each client's mixture is chosen on its own test samples", "at each client's best mixture"
CHOSEN = {
    "best": (
        "the mixture that is best on average is chosen on test samples",
        "at the mixture that is best on average",
    ),
    "cross_fitted": (
        "the mixture of each half of the clients is chosen on test samples of the other",
        "at the mixture that is best for the other half of clients",
    ),
    "own": BY_EACH,
    "released": BY_EACH,
}


class OverClients(OfMeasure):
    """Clients' scores on their own test samples, or values they report, reduced to one number.

    ``average``, ``worst`` and ``best`` are in printed units (percent); the latter two average the
    worst or best tenth of clients, but at least one. ``gini`` is the Gini coefficient times 100,
    ``gap`` the mean of the greatest tenth minus that of the least.

    Attributes:
        of: the measure's name.
        over_clients: how the clients' values become one number.
        weighted: weight clients by test samples, as AAggFF's code does.
        mix: the mixture, where clients interpolate between two models.
    """

    kinds = ("client",)
    named_in = "of"
    of: Annotated[str, *named("client")]
    over_clients: StatisticName
    weighted: bool = True
    mix: Mix = "fixed"

    @property
    def quantity(self) -> Quantity:
        from fedrepro.measures.clients import STATISTICS

        measure, statistic = self.measure, STATISTICS[self.over_clients]
        samples = measure.weighed_by.replace("_", " ").replace("train ", "training ")
        how = f", weighted by {samples}" if statistic.weighable and self.weighted else ""
        selection, mixture = CHOSEN.get(self.mix, ("", ""))
        is_highest = self.mix == "released" and self.of != measure.guide
        return Quantity(
            f"{measure.words}, {statistic.words}{how}",
            statistic.unit(measure),
            statistic.higher_is_better(measure),
            self._series,
            measure.without,
            remark=self._without_value,
            selection=selection,
            mixture="highest over the mixtures that clients choose" if is_highest else mixture,
            as_released=self.mix == "released" or measure.as_released,
            needs_clients=self._needs_clients,
        )

    def _without_value(self, record: Record) -> str:
        from fedrepro.measures.clients import without_value

        # What a method reports is of the cohort: the others' lack of it is no trouble.
        scored = self.measure.from_outputs and self.of in record.clients
        return without_value(record.clients, self.of) if scored else ""

    def _series(self, record: Record) -> Series:
        from fedrepro.measures.clients import STATISTICS, by_client, mixed

        if self.of not in record.clients:
            return []
        measure, statistic = self.measure, STATISTICS[self.over_clients]
        if self.mix != "fixed" and self.of in record.mixtures:
            values, sizes = mixed(record.mixtures, self.of, measure.guide, self.mix)
            # After the last round that it played, not of those that a summary takes.
            done = record.manifest.get("rounds_done", record.rounds["round"][-1])
            rows = [(float(done), values, sizes)]
        else:
            rows = by_client(record.clients, self.of, measure.weighed_by)
        factor = statistic.factor(measure)
        series = [
            (
                number,
                factor
                * statistic.of(values, sizes if self.weighted else None, measure.higher_is_better),
            )
            for number, values, sizes in rows
        ]
        means = record.rounds.get(f"client_{self.of}", ())
        if self._needs_clients or not means:
            return series
        rounds = zip(record.rounds["round"], means, strict=True)
        first = series[0][0] if series else math.inf
        earlier = [(n, factor * mean) for n, mean in rounds if n < first and mean is not None]
        return [*earlier, *series]

    @property
    def _needs_clients(self) -> bool:
        return self.mix != "fixed" or self.over_clients != "average" or self.weighted

    def at_mix(self, mix: Mix) -> Self:
        return self.model_copy(update={"mix": mix})


Percentage = Annotated[Real, Field(gt=0, le=100), expected("a percentage above 0, up to 100")]


class OfAccuracy(MetricKind):
    """One number of a run, read from the test accuracies of its rounds."""

    @property
    def on_test_set(self) -> bool:
        return True

    @property
    def curve(self) -> MetricKind:
        return ACCURACY


class RoundsTo(OfAccuracy):
    """The first evaluated round with a test accuracy of at least ``rounds_to`` percent.

    Attributes:
        rounds_to: the accuracy to reach, in percent.
        mean_of: use the mean accuracy of this many evaluated rounds, not each round's own.
        speed_up: divide the rounds without the row's `wrapper` by the rounds with it.
    """

    key = "rounds_to"
    rounds_to: Percentage
    mean_of: PositiveWhole = later(1)
    speed_up: bool = later(False)

    @property
    def quantity(self) -> Quantity:
        several, target = self.mean_of, f"{self.rounds_to:g} %"
        mean = f"mean accuracy of {several} evaluated rounds" if several > 1 else "accuracy"
        words, without = f"rounds until the {mean} is {target}", f"never reached {target}"
        if self.speed_up:
            words = f"speed-up: {words}, without the wrapper by with it"
        said = words, "" if self.speed_up else "rounds", self.speed_up
        reaches = self.rounds_to if several == 1 else math.inf
        return Quantity(*said, self._series, without, of_a_run=True, reaches=reaches)

    def _series(self, record: Record) -> Series:
        """One value: the rounds. For a speed-up, the caller divides the values of both runs."""
        several, accuracies = self.mean_of, ACCURACY.measure.series(record)
        numbers, values = [each[0] for each in accuracies], [each[1] for each in accuracies]
        means = [
            math.fsum(values[end - several : end]) / several
            for end in range(several, len(values) + 1)
        ]
        # Allow for rounding: an accuracy of 0.6 is 59.999999999999993 %.
        met = (mean >= self.rounds_to - 1e-9 for mean in means)
        reached = itertools.compress(numbers[several - 1 :], met)
        return [(number, number) for number in itertools.islice(reached, 1)]

    @property
    def of_both(self) -> MetricKind | None:
        return self.model_copy(update={"speed_up": False}) if self.speed_up else None

    def unreached(self, record: Record, rounds: int) -> float | None:
        return float(rounds)


class MegabytesTo(OfAccuracy):
    """The megabytes that all clients receive and send until a test accuracy is reached.

    The round is the first evaluated one with at least ``megabytes_to`` percent. Rounds that are not
    evaluated count as the next that is.

    Attributes:
        megabytes_to: the accuracy to reach, in percent.
    """

    key = "megabytes_to"
    megabytes_to: Percentage

    @property
    def quantity(self) -> Quantity:
        target = f"{self.megabytes_to:g} %"
        words = f"megabytes received and sent until the accuracy is {target}"
        said, without = (words, "MB", False), f"never reached {target}"
        return Quantity(*said, self._series, without, of_a_run=True, reaches=self.megabytes_to)

    def _series(self, record: Record) -> Series:
        reached = RoundsTo(rounds_to=self.megabytes_to)._series(record)
        sent = self._sent(record)
        return [
            (number, math.fsum(megabytes for at, megabytes in sent if at <= number))
            for number, _ in reached
        ]

    def unreached(self, record: Record, rounds: int) -> float | None:
        """Those of all rounds; of a run that stopped before, at the rate of the rounds it ran."""
        sent = self._sent(record)
        total = math.fsum(megabytes for _, megabytes in sent)
        return total * (rounds / sent[-1][0]) if sent else None

    def _sent(self, record: Record) -> Series:
        """The megabytes since the evaluated round before, by round."""
        columns = (record.rounds.get(name, ()) for name in ("round", "bytes_down", "bytes_up"))
        sent, last = [], 0.0
        for number, down, up in zip(*columns, strict=True):
            sent.append((number, (number - last) * (down + up) / 1e6))
            last = number
        return sent


class Reached(OfAccuracy):
    """The greatest multiple of this many percent that every seed's test accuracy reaches.

    Attributes:
        reached_in_steps_of: the step, in percent.
    """

    key = "reached_in_steps_of"
    reached_in_steps_of: Percentage

    @property
    def quantity(self) -> Quantity:
        return Quantity(
            f"greatest multiple of {self.reached_in_steps_of:g} % that the accuracy reaches with "
            "all seeds",
            "%",
            True,
            lambda record: (
                [(record.rounds["round"][-1], self._value(record))]
                if ACCURACY.measure.series(record)
                else []
            ),
            together=lambda records: min(map(self._value, records)),
            of_a_run=True,
            reaches=math.inf,
        )

    def _value(self, record: Record) -> float:
        most = max(value for _, value in ACCURACY.measure.series(record))
        return self.reached_in_steps_of * math.floor((most + 1e-9) / self.reached_in_steps_of)


class Least(OfMeasure):
    """The minimum over rounds of the mean over seeds.

    Attributes:
        least: the name of a measure that is better when lower, such as `loss`.
    """

    kinds = ("round",)
    key = named_in = "least"
    least: Annotated[str, *named("round", among=lambda measure: not measure.higher_is_better)]

    @property
    def curve(self) -> OfRounds:
        curve = OfRounds.model_construct(name=self.least)
        curve._own = self._own
        return curve

    @property
    def quantity(self) -> Quantity:
        measure = self.measure

        def series(record: Record) -> Series:
            points = measure.series(record)
            return [min(points, key=lambda at: at[1])] if points else []

        def together(records: Sequence[Record]) -> float:
            curves = [dict(measure.series(record)) for record in records]
            rounds = set.intersection(*map(set, curves))
            sums = (math.fsum(curve[number] for curve in curves) for number in rounds)
            return min(sums) / len(curves)

        words = f"least {measure.words} of a round, of the mean over seeds"
        without = f"the method has no {measure.words}"
        return Quantity(words, measure.unit, False, series, without, together, of_a_run=True)


if TYPE_CHECKING:
    SetMeasure = str
else:  # every one of SETS of measures/built_in.py
    SetMeasure = Literal[tuple(registry.SETS)]


class Quality(MetricKind):
    """A measure of the quality of a run's synthetic set (:mod:`fedrepro.analysis.judging`).

    ``accuracy`` is that of a classifier trained on the set to convergence, on clients' held-out
    samples, weighted by samples; ``accuracy_std`` is its unweighted standard deviation over clients
    (item 41). ``one_epoch`` and ``one_epoch_std`` are the same after one epoch; ``test_accuracy``
    and ``test_one_epoch`` use the data set's test samples. ``stand_in`` is a Fréchet distance in
    the features of a classifier trained here, which is not the FID.

    Attributes:
        quality: which measure, a row of measures/built_in.py that says in words what it is.
    """

    key = "quality"
    analysis = "quality"
    quality: SetMeasure

    @property
    def quantity(self) -> Quantity:
        return registry.SETS[self.quality].quantity


KINDS = [kind for kind in under(MetricKind) if "key" in vars(kind)]


def _kind_of(value: object) -> str:
    """The name of the kind that a value is, or seems meant to be."""
    if isinstance(value, MetricKind):
        return type(value).__name__
    if not isinstance(value, Mapping):
        return OfRounds.__name__
    return next((kind for kind in KINDS if kind.key in value), OverClients).__name__


# In YAML and its schema, a measure of rounds is a name.
_NAME = named("round", "run")[1]
if TYPE_CHECKING:
    Metric = MetricKind
else:
    _tagged = (Annotated[kind, Tag(kind.__name__)] for kind in (OverClients, *KINDS))
    _plain = Annotated[OfRounds, Tag("OfRounds"), _NAME]
    Metric = Annotated[reduce(or_, _tagged, _plain), Discriminator(_kind_of)]


class SearchedScore(OfRounds):
    """A measure that is computed on validation samples as well as on test samples."""

    name: Annotated[str, *named("round", among=lambda measure: measure.validated)]


class ValidatedQuality(Quality):
    """The quality of a synthetic set that is also computed on clients' validation samples."""

    quality: Literal["accuracy"]


def _searched_kind(value: object) -> str:
    """The name of the kind of a search's metric, or "plain"."""
    if isinstance(value, Quality) or (isinstance(value, Mapping) and Quality.key in value):
        return ValidatedQuality.__name__
    return OverClients.__name__ if isinstance(value, Mapping | OverClients) else "plain"


SearchMetric = Annotated[
    Annotated[SearchedScore, Tag("plain"), WithJsonSchema({"enum": ["accuracy", "loss"]})]
    | Annotated[OverClients, Tag(OverClients.__name__)]
    | Annotated[ValidatedQuality, Tag(ValidatedQuality.__name__)],
    Discriminator(_searched_kind),
]
