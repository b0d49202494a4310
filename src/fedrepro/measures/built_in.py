"""The package's measures, a row each: name, words, unit, whether higher is better, and the rest.

These rows only describe the measures, so that a change of words does not invalidate a run.
Tasks compute the scores of models (:mod:`fedrepro.engine.task`), methods report their own metrics,
and :mod:`fedrepro.analysis.quality_of_run` computes the measures of synthetic sets.
"""

from collections.abc import Callable

from fedrepro.measures.base import Measure, Record

MORE, LESS = True, False  # is better


class BuiltIn(Measure):
    """A row of one of the tables below, as which it is pickled."""

    def __reduce__(self) -> tuple[Callable[..., Measure], tuple[str, str]]:
        return of_row, (self.per, self.name)


def of_row(per: str, name: str) -> Measure:
    """The measure of a client, a round or a run that has this name."""
    return {"client": CLIENTS, "round": ROUNDS, "run": SETS}[per][name]


class OfClient(BuiltIn):
    """A score of each client's model, on its own test samples: a column of clients.parquet."""

    per = "client"
    from_outputs = True


class OfRound(BuiltIn):
    """A number of the shared model, of the ensemble, or of the method: a column of rounds.parquet.

    Each evaluated round has one.
    """

    per = "round"

    @property
    def without(self) -> str:
        return f"the method has no {self.words}"


class OfSet(BuiltIn):
    """A measure of the synthetic set that a run left.

    Its name is a key in ``numbers`` of the set's quality.json.
    """

    per = "run"
    without = "has not been judged"

    def of_run(self, record: Record) -> float | None:
        value: float | None = record.quality.get("numbers", {}).get(self.name)
        return value


def row(
    name: str, words: str, unit: str, higher_is_better: bool, **others: object
) -> dict[str, object]:
    """The attributes of a measure; ``others`` are those that not every measure has."""
    return {
        "name": name, "words": words, "unit": unit, "higher_is_better": higher_is_better, **others
    }  # fmt: skip


def _table(base: type[Measure], *rows: dict[str, object]) -> dict[str, Measure]:
    """A measure of each row, by name."""
    return {str(each["name"]): type(str(each["name"]), (base,), each)() for each in rows}


# A mean over mini-batches, as SuPerFed's code measures (discrepancy 24).
OVER_BATCHES: dict[str, object] = {"as_released": True, "guide": "accuracy_batch"}

CLIENTS = _table(
    OfClient,
    row("accuracy", "accuracy", "%", MORE),
    row("top5", "top-5 accuracy", "%", MORE),
    row("auroc", "AUROC", "%", MORE),
    row("loss", "loss", "", LESS),
    row("ece", "expected calibration error", "", LESS),
    row("mce", "maximum calibration error", "", LESS),
    row("mse", "mean squared error", "", LESS),
    row("mae", "mean absolute error", "", LESS),
    row("r2", "R²", "", MORE),
    row("accuracy_batch", "accuracy of mini-batches", "%", MORE, **OVER_BATCHES),
    row("top5_batch", "top-5 accuracy of mini-batches", "%", MORE, **OVER_BATCHES),
    row("ece_batch", "expected calibration error of mini-batches", "", LESS, **OVER_BATCHES),
    row("mce_batch", "maximum calibration error of mini-batches", "", LESS, **OVER_BATCHES),
)

NO_NUMBERS = "predicts no numbers"
OF_ENSEMBLE = "of the round's clients together, as the server weighs them"

ROUNDS = _table(
    OfRound,
    row(
        "accuracy", "accuracy", "%", MORE, column="test_accuracy", without="has no accuracy",
        same_axes=True, validated=True,
    ),
    row("loss", "loss", "", LESS, column="test_loss", without="", validated=True),
    row("mse", "mean squared error", "", LESS, column="test_mse", without=NO_NUMBERS),
    row("mae", "mean absolute error", "", LESS, column="test_mae", without=NO_NUMBERS),
    row("r2", "R²", "", MORE, column="test_r2", without=NO_NUMBERS),
    row("auroc", "AUROC", "%", MORE, column="test_auroc", without="has no AUROC on the test set"),
    row(
        "ensemble_accuracy", "ensemble's accuracy", "%", MORE, title="Ensemble's test accuracy",
        about=OF_ENSEMBLE,
    ),
    row(
        "ensemble_loss", "ensemble's loss", "", LESS, title="Ensemble's test loss",
        about=OF_ENSEMBLE,
    ),
    row(
        "distillation_loss", "distillation loss", "", LESS,
        about="after the server's epochs, the Kullback-Leibler divergence of the server's model "
        "from the pseudo-labels on its own images",
    ),
    row(
        "critic_loss", "critic's loss", "", LESS,
        about="the mean over the round's steps of the critic's loss, its gradient penalty "
        "included; its negative is near the Wasserstein distance between real and made images",
    ),
    row(
        "generator_loss", "generator's loss", "", LESS,
        about="the mean over the round's steps of the critic's score of made images, negated; "
        "its level has no meaning of its own, as the critic's scores have none",
    ),
)  # fmt: skip

_TRAINED = "accuracy of a classifier trained on the synthetic set"
_ONE_EPOCH = "accuracy after one epoch on the synthetic set"
_SPREAD = "spread of that accuracy over clients"

SETS = _table(
    OfSet,
    row("accuracy", f"{_TRAINED}, over clients", "%", MORE),
    row("accuracy_std", _SPREAD, "points", LESS),
    row("one_epoch", f"{_ONE_EPOCH}, over clients", "%", MORE),
    row("one_epoch_std", _SPREAD, "points", LESS),
    row("test_accuracy", _TRAINED, "%", MORE),
    row("test_one_epoch", _ONE_EPOCH, "%", MORE),
    row(
        "fid", "Fréchet inception distance", "", LESS, without="has no FID",
        incomparable="The printed FID compares 100 images in [0, 1] with the first 128 test images "
        "in [-1, 1] (item 40); ours takes the whole test set, on one scale.",
    ),
    row(
        "stand_in", "Fréchet distance in the features of a classifier of ours, no FID", "", LESS,
        incomparable="It is no FID, but a distance in the features of a classifier of ours.",
    ),
    row("precision", "precision of samples", "%", MORE),
    row("recall", "recall of samples", "%", MORE),
    row("diversity", "distance within a class, of that of real images", "%", MORE),
    row("feature_diversity", "the same in a classifier's features", "%", MORE),
    row("recognised", "images that a classifier of real ones takes for their class", "%", MORE),
    row("nearest", "distance to the nearest training image, of that of real images", "%", MORE),
    row("membership", "area under the ROC curve of a membership attack", "%", LESS),
    row("megabytes", "megabytes sent in a round", "MB", LESS),
    row("fedavg_megabytes", "megabytes that FedAvg of the classifier would send", "MB", LESS),
)  # fmt: skip
