"""What a table's metric stands for: a run's values round by round, their unit, their better end."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedrepro.config.tables import Least, Metric, Mix, OverClients, Quality, Reached, RoundsTo
from fedrepro.run import over_clients
from fedrepro.run.results import RunRecord

Series = list[tuple[float, float]]

Columns = Mapping[str, list[float]]

NAMES = {
    "accuracy": "accuracy",
    "top5": "top-5 accuracy",
    "auroc": "AUROC",
    "loss": "loss",
    "ece": "expected calibration error",
    "mce": "maximum calibration error",
    "accuracy_batch": "accuracy of mini-batches",
    "top5_batch": "top-5 accuracy of mini-batches",
    "ece_batch": "expected calibration error of mini-batches",
    "mce_batch": "maximum calibration error of mini-batches",
}
# One number a round: its column in rounds.parquet, its words, its unit, whether more is better.
NUMBERS = {
    "accuracy": ("test_accuracy", "accuracy", "%", True),
    "loss": ("test_loss", "loss", "", False),
    "ensemble_accuracy": ("ensemble_accuracy", "ensemble's accuracy", "%", True),
    "ensemble_loss": ("ensemble_loss", "ensemble's loss", "", False),
    "distillation_loss": ("distillation_loss", "distillation loss", "", False),
}
# Printed as percentages; the more, the better.
SHARES = ("accuracy", "top5", "auroc", "accuracy_batch", "top5_batch")
Summary = Callable[[np.ndarray, np.ndarray | None], float]
SUMMARIES: Mapping[str, tuple[str, Summary]] = {
    "average": ("average over clients", over_clients.average),
    "worst": ("worst tenth of clients", over_clients.worst),
    "best": ("best tenth of clients", over_clients.best),
    "gini": (
        "Gini coefficient over clients × 100",
        lambda values, sizes: over_clients.gini(values),
    ),
    # Of two clients in the cross-silo tables, as a tenth is at least one; else of two tenths.
    "gap": (
        "best tenth of clients less the worst",
        lambda values, sizes: over_clients.best(values, sizes) - over_clients.worst(values, sizes),
    ),
}


@dataclass(frozen=True)
class Measure:
    """A metric, read off a run.

    Attributes:
        words: its name in a caption.
        unit: of its printed values, or "".
        rising: whether more is better.
        series: a run's (round, value in printed units) of every evaluated round.
        without: what to say of a finished run that has no value, or "".
        together: the number of several runs, one a seed; None: the mean of their values.
        apart: why a printed number of this kind is none that ours could be held against, or "".
    """

    words: str
    unit: str
    rising: bool
    series: Callable[[RunRecord], Series]
    without: str = ""
    together: Callable[[Sequence[RunRecord]], float] | None = None
    apart: str = ""


def measure_of(metric: Metric) -> Measure:
    """The measure of a metric of an experiment file."""
    if isinstance(metric, OverClients):
        return _over_clients(metric)
    if isinstance(metric, RoundsTo):
        return _rounds_to(metric)
    if isinstance(metric, Quality):
        return _quality(metric.quality)
    if isinstance(metric, Reached):
        return _reached(metric.reached_in_steps_of)
    if isinstance(metric, Least):
        return _least(metric.least)
    column, words, unit, rising = NUMBERS[metric]
    without = "" if column.startswith("test_") else f"the method has no {words}"
    return Measure(words, unit, rising, lambda record: _of_number(record, metric), without)


def _of_number(record: RunRecord, name: str) -> Series:
    column, _, unit, _ = NUMBERS[name]
    return _by_round(record, column, 100.0 if unit else 1.0)


def _by_round(record: RunRecord, column: str, factor: float) -> Series:
    rounds, values = record.rounds.get("round", []), record.rounds.get(column, [])
    return [(number, factor * value) for number, value in zip(rounds, values, strict=False)]


def _rounds_to(metric: RoundsTo) -> Measure:
    """One value: the first evaluated round that reaches the target.

    Of a speed-up this is one run's part; who knows both runs divides.
    """
    target, several = metric.rounds_to, metric.mean_of

    def series(record: RunRecord) -> Series:
        accuracies = _by_round(record, "test_accuracy", 100.0)
        numbers, values = [each[0] for each in accuracies], [each[1] for each in accuracies]
        means = [
            math.fsum(values[end - several : end]) / several
            for end in range(several, len(values) + 1)
        ]
        # In shares the target is met to rounding: 0.6 is 59.999999999999993 %.
        met = (mean >= target - 1e-9 for mean in means)
        reached = itertools.compress(numbers[several - 1 :], met)
        return [(number, number) for number in itertools.islice(reached, 1)]

    mean = f"mean accuracy of {several} evaluated rounds" if several > 1 else "accuracy"
    words, without = f"rounds until the {mean} is {target:g} %", f"never reached {target:g} %"
    if metric.speed_up:
        return Measure(
            f"speed-up: {words}, without the wrapper by with it", "", True, series, without
        )
    return Measure(words, "rounds", False, series, without)


# Name -> words, unit, whether more is better. Shares are given in percent.
QUALITY: Mapping[str, tuple[str, str, bool]] = {
    "accuracy": ("accuracy of a classifier trained on the synthetic set, over clients", "%", True),
    "accuracy_std": ("spread of that accuracy over clients", "points", False),
    "one_epoch": ("accuracy after one epoch on the synthetic set, over clients", "%", True),
    "one_epoch_std": ("spread of that accuracy over clients", "points", False),
    "test_accuracy": ("accuracy of a classifier trained on the synthetic set", "%", True),
    "test_one_epoch": ("accuracy after one epoch on the synthetic set", "%", True),
    "fid": ("Fréchet inception distance", "", False),
    "stand_in": ("Fréchet distance in the features of a classifier of ours, no FID", "", False),
    "precision": ("precision of samples", "%", True),
    "recall": ("recall of samples", "%", True),
    "diversity": ("distance within a class, of that of real images", "%", True),
    "feature_diversity": ("the same in a classifier's features", "%", True),
    "recognised": ("images that a classifier of real ones takes for their class", "%", True),
    "nearest": ("distance to the nearest training image, of that of real images", "%", True),
    "membership": ("area under the ROC curve of a membership attack", "%", False),
    "megabytes": ("megabytes sent in a round", "MB", False),
    "fedavg_megabytes": ("megabytes that FedAvg of the classifier would send", "MB", False),
}
APART = {
    "fid": "The printed FID compares 100 images in [0, 1] with the first 128 test images in "
    "[-1, 1] (item 40); ours takes the whole test set, on one scale.",
    "stand_in": "It is no FID, but a distance in the features of a classifier of ours.",
}


def _quality(name: str) -> Measure:
    """One value, of the set that the run left after its last round."""
    words, unit, rising = QUALITY[name]
    factor = 100.0 if unit in ("%", "points") else 1.0

    def series(record: RunRecord) -> Series:
        value = record.quality.get("numbers", {}).get(name)
        number = float(record.manifest.get("rounds_done", 0))
        return [] if value is None else [(number, factor * value)]

    without = "has no FID" if name == "fid" else "has not been judged"
    return Measure(words, unit, rising, series, without, apart=APART.get(name, ""))


def _reached(step: float) -> Measure:
    """The greatest multiple of ``step`` percent that a run reaches; of several runs, the least."""

    def value(record: RunRecord) -> float:
        most = max(value for _, value in _of_number(record, "accuracy"))
        return step * math.floor((most + 1e-9) / step)

    def series(record: RunRecord) -> Series:
        return [(record.rounds["round"][-1], value(record))] if record.rounds else []

    return Measure(
        f"greatest multiple of {step:g} % that the accuracy reaches with all seeds",
        "%",
        True,
        series,
        together=lambda records: min(map(value, records)),
    )


def _least(name: str) -> Measure:
    """The least over rounds; of several runs, of the mean over them."""
    _, words, unit, _ = NUMBERS[name]

    def series(record: RunRecord) -> Series:
        found = _of_number(record, name)
        return [min(found, key=lambda at: at[1])] if found else []

    def together(records: Sequence[RunRecord]) -> float:
        curves = [dict(_of_number(record, name)) for record in records]
        rounds = set.intersection(*map(set, curves))
        return min(math.fsum(curve[number] for curve in curves) for number in rounds) / len(curves)

    what = f"least {words} of a round, of the mean over seeds"
    return Measure(what, unit, False, series, f"the method has no {words}", together)


def _over_clients(metric: OverClients) -> Measure:
    words, summary = SUMMARIES[metric.over_clients]
    weighable = metric.over_clients != "gini"
    how = ", weighted by test samples" if weighable and metric.weighted else ""
    share = metric.of in SHARES
    factor = 100.0 if share and metric.over_clients != "gini" else 1.0

    def series(record: RunRecord) -> Series:
        if metric.of not in record.clients:
            return []
        if metric.mix != "fixed" and record.mixtures:
            values, sizes = mixed(record.mixtures, metric.of, metric.mix)
            found = [(record.rounds["round"][-1], values, sizes)]
        else:
            found = by_client(record.clients, metric.of)
        return [
            (number, factor * summary(values, sizes if metric.weighted else None))
            for number, values, sizes in found
        ]

    units = {"gini": "", "gap": "points"}
    return Measure(
        f"{NAMES[metric.of]}, {words}{how}",
        units.get(metric.over_clients, "%") if share else "",
        share and metric.over_clients not in ("gini", "gap"),
        series,
        "has no scores of clients",
    )


def by_client(columns: Columns, of: str) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """(round, values [clients], test samples [clients]) of every evaluated round."""
    rows = zip(columns["round"], columns[of], columns["test_samples"], strict=True)
    found = []
    for number, group in itertools.groupby(rows, key=lambda row: row[0]):
        _, values, sizes = (np.array(column) for column in zip(*group, strict=True))
        found.append((number, values, sizes))
    return found


def mixed(columns: Columns, of: str, mix: Mix) -> tuple[np.ndarray, np.ndarray]:
    """Every client's value [clients] at a mixture other than the fixed one, and its test samples.

    ``columns`` are those of mixtures.parquet; :data:`fedrepro.config.tables.Mix` says what they
    mean. Of equally good weights the least counts. What is a mean over mini-batches is at the
    mixture that is best in accuracies so counted.
    """
    weights = np.unique(columns["weight"])

    def by_client(name: str) -> np.ndarray:
        return np.array(columns[name]).reshape(-1, len(weights))

    guide = "accuracy_batch" if of.endswith("_batch") else "accuracy"
    accuracy, values = by_client(guide), by_client(of)
    sizes = by_client("test_samples")[:, 0]
    if mix == "best":
        return values[:, np.nanmean(accuracy, axis=0).argmax()], sizes
    # A client without test samples has no accuracy, and chooses nothing.
    chosen = np.where(np.isnan(accuracy), -1.0, accuracy).argmax(axis=1)
    if of == guide:
        return values[np.arange(len(values)), chosen], sizes
    return values[:, np.unique(chosen[sizes > 0])].max(axis=1), sizes


def until(series: Series, round: int | None) -> Series:
    """Its part up to and with a round; all of it for None."""
    return [at for at in series if round is None or at[0] <= round]


def last(series: Series, rounds: int) -> float | None:
    """The mean of the last ``rounds`` values; None without any, or with one that is no number."""
    values = [value for _, value in series[-rounds:]]
    if not values or not all(map(math.isfinite, values)):
        return None
    return math.fsum(values) / len(values)


def fewer(series: Series, rounds: int) -> str:
    """What to say of :func:`last` over ``rounds`` values where there are fewer, or nothing."""
    there = len(series)
    return f"is the mean of {there} evaluated rounds, not of {rounds}" if there < rounds else ""
