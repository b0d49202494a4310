"""The package's measures, one class each.

These classes only describe the measures, so that a change of words does not invalidate a run.
Tasks compute the scores of models (:mod:`fedrepro.engine.task`), methods report their own metrics,
and :mod:`fedrepro.analysis.quality_of_run` computes the measures of synthetic sets.
"""

from fedrepro.measures.base import Measure, Record


# --- of each client, on its own test samples: columns of clients.parquet -----------------------
class OfClient(Measure):
    """A score of each client's model."""

    per = "client"
    from_outputs = True


class Accuracy(OfClient):
    name, words, unit, higher_is_better = "accuracy", "accuracy", "%", True


class Top5(OfClient):
    name, words, unit, higher_is_better = "top5", "top-5 accuracy", "%", True


class Auroc(OfClient):
    name, words, unit, higher_is_better = "auroc", "AUROC", "%", True


class Loss(OfClient):
    name, words, higher_is_better = "loss", "loss", False


class Ece(OfClient):
    name, words, higher_is_better = "ece", "expected calibration error", False


class Mce(OfClient):
    name, words, higher_is_better = "mce", "maximum calibration error", False


class Mse(OfClient):
    name, words, higher_is_better = "mse", "mean squared error", False


class Mae(OfClient):
    name, words, higher_is_better = "mae", "mean absolute error", False


class R2(OfClient):
    name, words, higher_is_better = "r2", "R²", True


class OverBatches(OfClient):
    """A mean over mini-batches, as SuPerFed's code measures (discrepancy 24)."""

    as_released = True
    guide = "accuracy_batch"


class AccuracyBatch(OverBatches):
    name, words, unit, higher_is_better = "accuracy_batch", "accuracy of mini-batches", "%", True


class Top5Batch(OverBatches):
    name, words, unit, higher_is_better = "top5_batch", "top-5 accuracy of mini-batches", "%", True


class EceBatch(OverBatches):
    name, words, higher_is_better = "ece_batch", "expected calibration error of mini-batches", False


class MceBatch(OverBatches):
    name, words, higher_is_better = "mce_batch", "maximum calibration error of mini-batches", False


# --- of each evaluated round: columns of rounds.parquet ----------------------------------------
class OfRound(Measure):
    """A number of the shared model, of the ensemble, or of the method."""

    per = "round"

    @property
    def without(self) -> str:
        return f"the method has no {self.words}"


class SharedAccuracy(OfRound):
    name, words, unit, higher_is_better = "accuracy", "accuracy", "%", True
    column, without = "test_accuracy", "has no accuracy"
    same_axes = validated = True


class SharedLoss(OfRound):
    name, words, higher_is_better = "loss", "loss", False
    column, without = "test_loss", ""
    validated = True


class SharedMse(OfRound):
    name, words, higher_is_better = "mse", "mean squared error", False
    column, without = "test_mse", "predicts no numbers"


class SharedMae(OfRound):
    name, words, higher_is_better = "mae", "mean absolute error", False
    column, without = "test_mae", "predicts no numbers"


class SharedR2(OfRound):
    name, words, higher_is_better = "r2", "R²", True
    column, without = "test_r2", "predicts no numbers"


class SharedAuroc(OfRound):
    name, words, unit, higher_is_better = "auroc", "AUROC", "%", True
    column, without = "test_auroc", "has no AUROC on the test set"


class EnsembleAccuracy(OfRound):
    name, words, unit, higher_is_better = "ensemble_accuracy", "ensemble's accuracy", "%", True
    title = "Ensemble's test accuracy"
    about = "of the round's clients together, as the server weighs them"


class EnsembleLoss(OfRound):
    name, words, higher_is_better = "ensemble_loss", "ensemble's loss", False
    title = "Ensemble's test loss"
    about = "of the round's clients together, as the server weighs them"


class DistillationLoss(OfRound):
    name, words, higher_is_better = "distillation_loss", "distillation loss", False
    about = (
        "after the server's epochs, the Kullback-Leibler divergence of the server's model from the "
        "pseudo-labels on its own images"
    )


class CriticLoss(OfRound):
    name, words, higher_is_better = "critic_loss", "critic's loss", False
    about = (
        "the mean over the round's steps of the critic's loss, its gradient penalty included; its "
        "negative is near the Wasserstein distance between real and made images"
    )


class GeneratorLoss(OfRound):
    name, words, higher_is_better = "generator_loss", "generator's loss", False
    about = (
        "the mean over the round's steps of the critic's score of made images, negated; its level "
        "has no meaning of its own, as the critic's scores have none"
    )


# --- of the synthetic set that a run left: numbers of its quality.json -------------------------
class OfSet(Measure):
    """A measure of a synthetic set: its name is a key in ``numbers`` of the set's quality.json."""

    per = "run"
    without = "has not been judged"

    def of_run(self, record: Record) -> float | None:
        value: float | None = record.quality.get("numbers", {}).get(self.name)
        return value


class SetAccuracy(OfSet):
    name, unit, higher_is_better = "accuracy", "%", True
    words = "accuracy of a classifier trained on the synthetic set, over clients"


class SetAccuracyStd(OfSet):
    name, unit, higher_is_better = "accuracy_std", "points", False
    words = "spread of that accuracy over clients"


class OneEpoch(OfSet):
    name, unit, higher_is_better = "one_epoch", "%", True
    words = "accuracy after one epoch on the synthetic set, over clients"


class OneEpochStd(OfSet):
    name, unit, higher_is_better = "one_epoch_std", "points", False
    words = "spread of that accuracy over clients"


class SetTestAccuracy(OfSet):
    name, unit, higher_is_better = "test_accuracy", "%", True
    words = "accuracy of a classifier trained on the synthetic set"


class SetTestOneEpoch(OfSet):
    name, unit, higher_is_better = "test_one_epoch", "%", True
    words = "accuracy after one epoch on the synthetic set"


class Fid(OfSet):
    name, words, higher_is_better = "fid", "Fréchet inception distance", False
    without = "has no FID"
    incomparable = (
        "The printed FID compares 100 images in [0, 1] with the first 128 test images in "
        "[-1, 1] (item 40); ours takes the whole test set, on one scale."
    )


class StandIn(OfSet):
    name, higher_is_better = "stand_in", False
    words = "Fréchet distance in the features of a classifier of ours, no FID"
    incomparable = "It is no FID, but a distance in the features of a classifier of ours."


class Precision(OfSet):
    name, words, unit, higher_is_better = "precision", "precision of samples", "%", True


class Recall(OfSet):
    name, words, unit, higher_is_better = "recall", "recall of samples", "%", True


class Diversity(OfSet):
    name, unit, higher_is_better = "diversity", "%", True
    words = "distance within a class, of that of real images"


class FeatureDiversity(OfSet):
    name, unit, higher_is_better = "feature_diversity", "%", True
    words = "the same in a classifier's features"


class Recognised(OfSet):
    name, unit, higher_is_better = "recognised", "%", True
    words = "images that a classifier of real ones takes for their class"


class Nearest(OfSet):
    name, unit, higher_is_better = "nearest", "%", True
    words = "distance to the nearest training image, of that of real images"


class Membership(OfSet):
    name, unit, higher_is_better = "membership", "%", False
    words = "area under the ROC curve of a membership attack"


class Megabytes(OfSet):
    name, words, unit, higher_is_better = "megabytes", "megabytes sent in a round", "MB", False


class FedavgMegabytes(OfSet):
    name, unit, higher_is_better = "fedavg_megabytes", "MB", False
    words = "megabytes that FedAvg of the classifier would send"
