"""Evaluate a finished run's synthetic set: for training, visually, and for privacy."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrepro.analysis import judging
from fedrepro.analysis.finished import Finished, open_run
from fedrepro.config.settings import Evaluator
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.data.catalogue.catalogue import Weights
from fedrepro.data.fetching.weights import is_there, read_weights
from fedrepro.data.tensors.samples import ClientData, Scaling, TensorSamples
from fedrepro.engine.method import SAMPLES
from fedrepro.engine.tree import Tree
from fedrepro.measures import over_clients
from fedrepro.models.pretrained import features, inception
from fedrepro.models.registry import INCEPTION, LearnedWeights
from fedrepro.run.input_artifacts import MODEL
from fedrepro.run.results import made_of
from fedrepro.support.errors import missing_value, refusal
from fedrepro.support.rng import numpy_stream

ATTACKED = 1000  # members, and as many non-members, in the attack
PAIRS = 10  # nearest pairs to keep
SLACK = 1e-3  # how far an input may leave its range, as a share of the range
STAND_IN = "Fréchet distance in the features of a classifier trained here on real samples: no FID"
NO_FID = "Inception's weights are not there"

Progress = Callable[[float], None]


def quality_of(
    workbench: Workbench, run: RunKey, progress: Progress = lambda share: None
) -> tuple[dict[str, Any], Tree]:
    """Evaluate the synthetic set of a finished run, as its setting's ``evaluator`` requests.

    Args:
        progress: called with the finished share.

    Returns:
        First, as JSON values: ``of`` (the run and its manifest's seal), ``judge``,
        ``samples``, ``classes``, ``numbers`` (shares from 0 to 1, None if undefined; those
        of :data:`fedrepro.measures.registry.SETS`, two of real images that only pages show, and
        ``validation_accuracy`` where clients keep validation samples), ``training``, ``clients``,
        ``by_class``, ``pairs``, ``stand_in`` and ``no_fid`` in words.
        Second, the nearest pairs as images: ``made`` and ``real``, uint8 [pairs, channels, h, w].

    Raises:
        UserError: if the run is missing or generates no samples, or if its setting has no evaluator
            or no held-out client samples.
    """
    opened = open_run(workbench, run)
    evaluator = opened.spec.setting.evaluator
    if evaluator is None:
        raise missing_value(run.setting, "evaluator", "how a set is evaluated")
    # As bytes in [0, 1], whatever the setting's scaling: the evaluated set is then the exported
    # one, and methods with another scaling are evaluated like the rest (item 43).
    made, test = _in_unit(synthetic_of(opened)), _in_unit(opened.tested_on)
    held = [_in_unit(samples) for samples in _held_out(opened)]
    samples = _clients(opened).samples
    kept = [_in_unit(samples.some(each)) for each in opened.partition.validation or ()]
    training, everything = _in_unit(samples.some(_rows(opened))), _in_unit(samples)
    classes = opened.dataset.classes
    real = _as_many(test, made.y, classes, run.seed)
    # First, as the file of Inception may be of another kind.
    fid, no_fid = _fid(workbench, evaluator, made, test)
    progress(0.05)

    once = judging.train(made, classes, evaluator, run.seed, 1, workbench.plugins)
    whole = judging.train(made, classes, evaluator, run.seed, evaluator.epochs, workbench.plugins)
    progress(0.4)
    # The same for every run on these data, so that distances are comparable.
    eye = judging.train(everything, classes, evaluator, 0, evaluator.real_epochs, workbench.plugins)
    progress(0.8)
    numbers = {
        **_accuracies("accuracy", whole, held, test),
        **_accuracies("one_epoch", once, held, test),
        **({"validation_accuracy": _over_clients(whole, kept)[0]} if kept else {}),
        **_seen_by(eye, made, real, test),
        **_privacy(made, real, training, test, run.seed),
        **_traffic(opened, whole),
        "fid": fid,
    }
    progress(0.95)
    pairs, images = _pairs(opened, made, training)
    return {
        "of": made_of([opened.record]),
        "judge": evaluator.model_dump(mode="json"),
        "samples": len(made),
        "classes": classes,
        "numbers": {name: _finite(value) for name, value in sorted(numbers.items())},
        "training": {
            "epochs": whole.epochs,
            "loss": _finite(whole.loss),
            "converged": whole.converged,
        },
        "clients": [
            {
                "client": client,
                "samples": len(each),
                "accuracy": _finite(judging.accuracy(whole.module, each)),
                "one_epoch": _finite(judging.accuracy(once.module, each)),
            }
            for client, each in enumerate(held)
        ],
        "by_class": _by_class(eye, made, real, classes),
        "pairs": pairs,
        "stand_in": STAND_IN,
        "no_fid": no_fid,
    }, images


def synthetic_of(opened: Finished) -> TensorSamples:
    """A run's labelled set.

    Raises:
        UserError: if its artifact is something else, or not a set for this data set.
    """
    where = f"{opened.record.folder}/{MODEL}"
    if opened.facts.get("part") != SAMPLES or "y" not in opened.left:
        why = f"{opened.spec.method} leaves no labelled samples: expected a synthetic set"
        raise refusal(where, why)
    x, y = opened.left["x"].to(torch.get_default_dtype()), opened.left["y"].long()
    if opened.dataset.train.x.dtype != np.uint8 or opened.dataset.task != "classification":
        raise refusal(opened.dataset.name, "expected images with classes, to judge a set by")
    shape, classes = opened.dataset.input_shape, opened.dataset.classes
    if tuple(x.shape) != (len(y), *shape) or not len(y):
        raise refusal(where, f"samples of shape {tuple(x.shape)}: expected {(len(y), *shape)}")
    if not 0 <= int(y.min()) <= int(y.max()) < classes:
        raise refusal(where, f"a label is not from 0 to {classes - 1}")
    scaling = opened.plan.networks.scaling
    ends = scaling(torch.tensor([0, 255], dtype=torch.uint8, device=x.device).view(2, 1, 1, 1))
    slack = SLACK * (ends[1] - ends[0])
    if not ((x >= ends[0] - slack) & (x <= ends[1] + slack)).all():  # also true of NaN
        raise refusal(where, "a value is outside the range of images as the setting scales it")
    return TensorSamples(x, y, scaling)


def _clients(opened: Finished) -> ClientData:
    clients = opened.plan.federation.clients
    assert isinstance(clients, ClientData)
    return clients


def _rows(opened: Finished) -> NDArray[np.int64]:
    """Rows of the clients' training samples in the data set's training split, each once."""
    return np.unique(np.concatenate(opened.partition.train))


def _in_unit(samples: TensorSamples) -> TensorSamples:
    """Images as bytes, which become inputs in [0, 1]."""
    images = samples.x if samples.x.dtype == torch.uint8 else samples.scaling.to_bytes(samples.x)
    return TensorSamples(images, samples.y, Scaling(None, None))


def _held_out(opened: Finished) -> list[TensorSamples]:
    shares = opened.partition.test
    if not shares:
        needed = "a share, as synthetic sets are judged by samples that clients hold out"
        raise missing_value(f"partition {opened.partition.name}", "test_fraction", needed)
    return [_clients(opened).samples.some(each) for each in shares]


def _as_many(test: TensorSamples, like: Tensor, classes: int, seed: int) -> TensorSamples:
    """As many real samples of each class as ``like`` has labels, or all available ones."""
    random = numpy_stream(seed, "quality", "real")
    labels, chosen = test.y.cpu().numpy(), []
    for label, wanted in enumerate(np.bincount(like.cpu().numpy(), minlength=classes)):
        own = np.flatnonzero(labels == label)
        chosen.append(np.sort(random.permutation(own)[:wanted]))
    return test.some(np.concatenate(chosen).astype(np.int64))


def _accuracies(
    name: str, trained: judging.Trained, held: list[TensorSamples], test: TensorSamples
) -> dict[str, float]:
    """The accuracy over clients, its spread, and the accuracy on test samples."""
    average, deviation = _over_clients(trained, held)
    accuracy = judging.accuracy(trained.module, test)
    return {name: average, f"{name}_std": deviation, f"test_{name}": accuracy}


def _over_clients(trained: judging.Trained, held: list[TensorSamples]) -> tuple[float, float]:
    """The mean over clients weighted by samples, its spread unweighted, as printed (item 41)."""
    values = np.array([judging.accuracy(trained.module, samples) for samples in held])
    sizes = np.array([len(samples) for samples in held], dtype=np.float64)
    return over_clients.average(values, sizes), over_clients.deviation(values)


def _seen_by(
    eye: judging.Trained, made: TensorSamples, real: TensorSamples, test: TensorSamples
) -> dict[str, float]:
    ours, theirs, all_theirs = (judging.features(eye.module, each) for each in (made, real, test))
    precision, recall = judging.precision_and_recall(ours, theirs)
    return {
        "stand_in": judging.frechet(_wide(ours), _wide(all_theirs)),
        # The result for equally many real samples: the best that a set of this size can reach.
        "stand_in_of_real": judging.frechet(_wide(theirs), _wide(all_theirs)),
        "precision": precision,
        "recall": recall,
        "recognised": judging.accuracy(eye.module, made),
        "real_accuracy": judging.accuracy(eye.module, test),
        "diversity": _ratio(judging.diversity(*_inputs(made)), _inputs(real)),
        "feature_diversity": _ratio(judging.diversity(ours, made.y), (theirs, real.y)),
    }


def _privacy(
    made: TensorSamples,
    real: TensorSamples,
    training: TensorSamples,
    test: TensorSamples,
    seed: int,
) -> dict[str, float]:
    random = numpy_stream(seed, "quality", "attack")
    size = min(ATTACKED, len(training), len(test))
    members, others = (
        each.some(np.sort(random.permutation(len(each))[:size]))(0, size)[0]
        for each in (training, test)
    )
    inputs, _ = _inputs(training)
    shown, _ = _inputs(made)
    away, _ = judging.nearest(shown, inputs)
    usual, _ = judging.nearest(_inputs(real)[0], inputs)
    return {
        # Relative to real samples outside training: 1 is their distance, 0 a copy.
        "nearest": float(away.mean() / usual.mean()),
        "membership": judging.membership(shown, members, others),
    }


def _traffic(opened: Finished, classifier: judging.Trained) -> dict[str, float]:
    """Megabytes per round, both directions; and FedAvg's, for the evaluator's classifier."""
    manifest, cohort = opened.record.manifest, opened.plan.federation.context.cohort_size
    total = manifest["bytes_down"] + manifest["bytes_up"]
    leaves = (*classifier.module.parameters(), *classifier.module.buffers())
    size = sum(leaf.numel() * leaf.element_size() for leaf in leaves if leaf.is_floating_point())
    return {
        "megabytes": total / manifest["rounds_done"] / 1e6,
        "fedavg_megabytes": 2 * cohort * size / 1e6,
    }


def _fid(
    workbench: Workbench, evaluator: Evaluator, made: TensorSamples, test: TensorSamples
) -> tuple[float, str]:
    """The distance over the whole test set, all images as bytes; or NaN and the reason."""
    entry: Weights | None = workbench.catalogue_weights.get(INCEPTION)
    if not evaluator.fid:
        return math.nan, "not asked for"
    if entry is None or not is_there(entry):
        return math.nan, NO_FID
    content, _ = read_weights(INCEPTION, entry)
    network = inception(LearnedWeights(entry.name, content)).to(made.y.device)
    ours, theirs = (_wide(features(network, each.x)) for each in (made, test))
    return judging.frechet(ours, theirs), ""


def _pairs(
    opened: Finished, made: TensorSamples, training: TensorSamples
) -> tuple[list[dict[str, float]], Tree]:
    """The nearest pairs of a made and a training image: their rows and distances; the images."""
    away, which = judging.nearest(_inputs(made)[0], _inputs(training)[0])
    order = away.argsort(stable=True)[:PAIRS]
    rows = which[order]  # of `training`
    described = [
        {"made": int(one), "real": int(_rows(opened)[other]), "distance": float(away[one])}
        for one, other in zip(order.tolist(), rows.tolist(), strict=True)
    ]
    return described, {"made": made.x[order], "real": training.x[rows]}


def _by_class(
    eye: judging.Trained, made: TensorSamples, real: TensorSamples, classes: int
) -> list[dict[str, Any]]:
    pixels = judging.diversity(*_inputs(made)), judging.diversity(*_inputs(real))
    rows = []
    for label in range(classes):
        own = made.some(np.flatnonzero(made.y.cpu().numpy() == label))
        ours, theirs = (each.get(label, math.nan) for each in pixels)
        rows.append(
            {
                "class": label,
                "samples": len(own),
                "diversity": _finite(ours / theirs if theirs else math.nan),
                "recognised": _finite(judging.accuracy(eye.module, own)),
            }
        )
    return rows


def _ratio(ours: Mapping[int, float], real: tuple[Tensor, Tensor]) -> float:
    """The mean distance within classes, relative to that of real samples, over common classes."""
    theirs = judging.diversity(*real)
    shares = [ours[label] / theirs[label] for label in ours if theirs.get(label)]
    return math.fsum(shares) / len(shares) if shares else math.nan


def _inputs(samples: TensorSamples) -> tuple[Tensor, Tensor]:
    return samples(0, len(samples))


def _wide(features: Tensor) -> NDArray[np.float64]:
    return features.double().cpu().numpy()


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
