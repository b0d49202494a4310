"""Every number of a judged set, from its run's files; classifiers are trained as documented."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedrepro.analysis import judging
from fedrepro.config.loading import load
from fedrepro.config.settings import Evaluator
from fedrepro.data.tensors.samples import Scaling, TensorSamples
from fedrepro.run.store import load_tree
from support.by_hand import auroc, numpy_stream
from support.synthetic_world import FOLDER, RESULT

Array = NDArray[Any]


def samples(x: Array, y: Array) -> TensorSamples:
    return TensorSamples(torch.from_numpy(x), torch.from_numpy(y), Scaling(None, None))


def apart(one: Array, other: Array) -> Array:
    """Euclidean distances [n, m]."""
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1) - 2 * one @ other.T
    return np.sqrt(np.maximum(squares, 0))


def frechet(one: Array, other: Array) -> float:
    covariances = [np.cov(each, rowvar=False) for each in (one, other)]
    values, vectors = np.linalg.eigh(covariances[0])
    half = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    roots = np.sqrt(np.maximum(np.linalg.eigvalsh(half @ covariances[1] @ half), 0))
    means = one.mean(0) - other.mean(0)
    return float(means @ means + np.trace(sum(covariances)) - 2 * roots.sum())


def spread(x: Array, y: Array) -> dict[int, float]:
    """The mean distance of two different samples of a class."""
    found = {}
    for label in range(10):
        own = apart(x[y == label], x[y == label])
        found[label] = own[np.triu_indices(len(own), 1)].mean()
    return found


def inside(made: Array, real: Array) -> float:
    """The share of ``made`` within some real sample's third nearest real neighbour."""
    radii = np.sort(apart(real, real), axis=1)[:, 3]
    return float((apart(made, real) <= radii).any(1).mean())


def test_every_number(judged_copy: Path) -> None:
    found = json.loads(RESULT.read_text())
    numbers, data = found["numbers"], Path("results/data/mnist5k")
    (train_x, train_y), (test_x, test_y) = (
        [np.load(data / f"{split}_{part}.npy") for part in "xy"] for split in ("train", "test")
    )
    with np.load(load(Path.cwd()).setting("fedevg/digits").partition_path(1)) as arrays:
        rows = {n: np.split(arrays[n], arrays[f"{n}_ends"][:-1]) for n in ("train", "test")}
    assert len({len(each) for each in rows["test"]}) > 1
    left, _ = load_tree(FOLDER / "model.safetensors")
    x, y = (left["x"] * 255).round().to(torch.uint8).numpy(), left["y"].numpy()
    judge = Evaluator(model="twonn", epochs=60, real_epochs=1)
    trained = np.sort(np.concatenate(rows["train"]))

    # --- the classifier that is trained on the set
    for name, epochs in (("accuracy", 60), ("one_epoch", 1)):
        student = judging.train(samples(x, y), 10, judge, 1, epochs).module
        each = [
            judging.accuracy(student, samples(train_x[own], train_y[own])) for own in rows["test"]
        ]
        sizes = [len(own) for own in rows["test"]]
        assert numbers[name] == pytest.approx(np.average(each, weights=sizes))
        assert numbers[f"{name}_std"] == pytest.approx(np.std(each))
        assert [client[name] for client in found["clients"]] == pytest.approx(each)
        whole = judging.accuracy(student, samples(test_x, test_y))
        assert numbers[f"test_{name}"] == pytest.approx(whole)

    # --- the classifier that is trained on real samples, the same for all runs
    eye = judging.train(samples(train_x, train_y), 10, judge, 0, 1).module
    random, chosen = numpy_stream(1, "quality", "real"), []
    for label in range(10):
        own = random.permutation(np.flatnonzero(test_y == label))
        chosen.append(np.sort(own[: (y == label).sum()]))
    real_x, real_y = (part[np.concatenate(chosen)] for part in (test_x, test_y))
    ours, theirs, every = (
        judging.features(eye, samples(*each)).double().numpy()
        for each in ((x, y), (real_x, real_y), (test_x, test_y))
    )
    assert numbers["stand_in"] == pytest.approx(frechet(ours, every), rel=1e-3)
    assert numbers["stand_in_of_real"] == pytest.approx(frechet(theirs, every), rel=1e-3)
    assert numbers["precision"] == pytest.approx(inside(ours, theirs), abs=0.021)
    assert numbers["recall"] == pytest.approx(inside(theirs, ours), abs=0.021)
    assert numbers["recognised"] == judging.accuracy(eye, samples(x, y))
    assert numbers["real_accuracy"] == judging.accuracy(eye, samples(test_x, test_y))
    flat = {
        name: part.reshape(len(part), -1) / 255
        for name, part in (("made", x), ("real", real_x), ("test", test_x))
    }
    flat["train"] = train_x[trained].reshape(len(trained), -1) / 255
    for name, one, other in (
        ("diversity", flat["made"], flat["real"]),
        ("feature_diversity", ours, theirs),
    ):
        mine, real = spread(one, y), spread(other, real_y)
        ratios = [mine[label] / real[label] for label in range(10)]
        assert numbers[name] == pytest.approx(np.mean(ratios), rel=1e-4)
        if name == "diversity":
            said = [each["diversity"] for each in found["by_class"]]
            assert said == pytest.approx(ratios, rel=1e-4)

    # --- privacy
    nearest = apart(flat["made"], flat["train"]).min(1)
    usual = apart(flat["real"], flat["train"]).min(1)
    assert numbers["nearest"] == pytest.approx(nearest.mean() / usual.mean(), rel=1e-4)
    random, size = numpy_stream(1, "quality", "attack"), min(1000, len(trained), len(test_y))
    members, others = (
        flat[name][random.permutation(len(flat[name]))[:size]] for name in ("train", "test")
    )
    scores = -np.concatenate([apart(each, flat["made"]).min(1) for each in (members, others)])
    expected = auroc(scores[:, None], np.repeat([1, 0], size))
    assert numbers["membership"] == pytest.approx(expected, abs=1e-3)
    order = np.argsort(nearest)[:10]
    assert [pair["distance"] for pair in found["pairs"]] == pytest.approx(
        nearest[order].tolist(), rel=1e-3
    )
    assert {pair["made"] for pair in found["pairs"]} == {*order.tolist()}
    assert all(math.isfinite(number) for number in numbers.values() if number is not None)
