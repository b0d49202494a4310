"""Decompositions and landscapes of finished runs, recomputed in numpy from the files alone.

Clients are unequal in size and classes; cohorts are not the first clients, and those of two seeds
differ. So weights, clients, classes, seeds and rounds that stand for one another all show.
"""

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.support.rng import stream
from support.finished_runs import make_runs

Array = NDArray[Any]
EXPERIMENT = """\
system: superfed
title: Tiny
paper: none
settings:
  kept:
    dataset: mnist5k
    partition: {scheme: dirichlet, clients: 6, alpha: 0.3, minimum: 20, seed: 1}
    model: logistic
    rounds: 3
    participation: 0.84
    epochs: 1
    batch_size: 100
    optimizer: {lr: 0.3}
    save_models_at: {fedavg: [2, 3]}
"""
SETTING, SEEDS = "superfed/kept", (1, 2, 3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("finished")
    make_runs(root, EXPERIMENT, [(SETTING, "fedavg", seed) for seed in SEEDS])
    return root


@pytest.fixture(autouse=True)
def _there(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished)


# --- from files ----------------------------------------------------------------------------------
def model(seed: int, name: str) -> dict[str, Array]:
    folder = Path(f"results/runs/{SETTING}/fedavg/seed{seed}")
    found = load_file(folder / f"{name}.safetensors")
    return {key: leaf.astype(float) for key, leaf in found.items()}


def cohort(seed: int, number: int) -> set[int]:
    folder = Path(f"results/runs/{SETTING}/fedavg/seed{seed}")
    names = [file.stem for file in folder.glob(f"round{number}-client*.safetensors")]
    return {int(name.partition("client")[2]) for name in names}


def held() -> list[Array]:
    """The rows that each client trains on."""
    path = load(Path.cwd()).setting(SETTING).partition_path(1)
    with np.load(path) as arrays:
        return np.split(arrays["train"], arrays["train_ends"][:-1])


def samples(number: int) -> tuple[Array, Array]:
    """The test samples of an analysis, as the model gets them."""
    data = Path("results/data/mnist5k")
    about = json.loads((data / "meta.json").read_text())
    x, y = np.load(data / "test_x.npy"), np.load(data / "test_y.npy")
    order = torch.randperm(len(y), generator=stream(0, "samples of an analysis")).numpy()[:number]
    return (x[order].reshape(number, -1) / 255 - about["mean"][0]) / about["std"][0], y[order]


def mean(models: list[dict[str, Array]], shares: Array) -> dict[str, Array]:
    return {n: sum(p * m[n] for p, m in zip(shares, models, strict=True)) for n in models[0]}


def logits(params: dict[str, Array], x: Array) -> Array:
    return x @ params["head.weight"].T + params["head.bias"]


def softmax(z: Array) -> Array:
    powers = np.exp(z - z.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def distance(one: dict[str, Array], other: dict[str, Array]) -> float:
    return math.sqrt(sum(((one[name] - other[name]) ** 2).sum() for name in one))


def cka(one: Array, other: Array) -> float:
    """Kornblith et al., eq. 3: HSIC of linear kernels."""
    size = len(one)
    centre = np.eye(size) - 1 / size
    k, l = (centre @ (z @ z.T) @ centre for z in (one, other))  # noqa: E741
    return float((k * l).sum() / math.sqrt((k * k).sum() * (l * l).sum()))


# --- what the commands say ----------------------------------------------------------------------
def test_every_number_of_a_decomposition() -> None:
    """IMA's Theorem 1, as means over seeds of products of what every client's model says."""
    number_of_samples = 150
    assert main(["decompose", SETTING, "fedavg", "--seeds", *map(str, SEEDS),
                 "--samples", str(number_of_samples)]) == 0  # fmt: skip
    path = f"results/decompositions/{SETTING}/fedavg/seeds1-2-3_{number_of_samples}.json"
    found = json.loads(Path(path).read_text())
    x, y = samples(number_of_samples)
    targets, rows = np.eye(10)[y], held()
    classes = np.load("results/data/mnist5k/train_y.npy")
    assert len({len(each) for each in rows}) == 6
    assert [each["round"] for each in found["rounds"]] == [2, 3]
    everyone = [sorted(cohort(seed, number)) for seed in SEEDS for number in (2, 3)]
    assert any(each != [*range(5)] for each in everyone)
    for entry in found["rounds"]:
        number = entry["round"]
        clients = sorted(set.intersection(*(cohort(seed, number) for seed in SEEDS)))
        assert entry["clients"] == len(clients) < 6
        sizes = np.array([len(rows[k]) for k in clients], float)
        p = sizes / sizes.sum()
        models = [[model(s, f"round{number}-client{k}") for k in clients] for s in SEEDS]
        averages = [mean(each, p) for each in models]
        each = np.array([[softmax(logits(m, x)) for m in per_seed] for per_seed in models])
        fma = np.array([softmax(logits(m, x)) for m in averages])
        ensemble = np.einsum("k,skno->sno", p, each)
        own = np.array([np.isin(y, classes[rows[k]]) for k in clients])[:, :, None]
        bias = p[:, None, None] * (each.mean(0) - targets)
        train, other = (bias * own).sum(0), (bias * ~own).sum(0)
        away = p[:, None, None] * (each - each.mean(0))
        variance = (away**2).sum(1).mean()
        everything = (away.sum(1) ** 2).mean()
        loss = ((fma - targets) ** 2).mean()
        among = ((ensemble - targets) ** 2).mean()
        gap = math.sqrt(((ensemble[0] - fma[0]) ** 2).mean())
        near = []
        for scale in (1 / 16, 1 / 32):
            drawn = [mean([averages[0], m], np.array([1 - scale, scale])) for m in models[0]]
            outputs = sum(q * softmax(logits(m, x)) for q, m in zip(p, drawn, strict=True))
            near.append(math.sqrt(((outputs - fma[0]) ** 2).mean()))
        pairs = [
            np.mean([cka(logits(a, x), logits(b, x)) for a, b in combinations(per_seed, 2)])
            for per_seed in models
        ]
        furthest = [
            max(distance(m, average) for m in per_seed)
            for per_seed, average in zip(models, averages, strict=True)
        ]
        expected = {
            "train_bias": (train * (train + other)).mean(),
            "heterogeneous_bias": (other * (train + other)).mean(),
            "variance": variance,
            "covariance": everything - variance,
            "locality": loss - among,
            "total": loss,
            "loss": loss,
            "ensemble_loss": among,
            "distance": np.mean(furthest),
            "gap": gap,
            "cka": np.mean(pairs),
        }
        for name, value in expected.items():
            assert entry[name] == pytest.approx(value, rel=2e-4, abs=2e-6), (number, name)
        assert entry["slope"] == pytest.approx(math.log2(near[0] / near[1]), abs=0.05)
        assert train.any() and other.any()


def cross_entropy(params: dict[str, Array], x: Array, y: Array) -> tuple[float, float]:
    z = logits(params, x)
    return float(-np.log(softmax(z))[np.arange(len(y)), y].mean()), float((z.argmax(1) == y).mean())


def landscape(*words: str) -> dict[str, Any]:
    assert main(["landscape", SETTING, "fedavg", "--seed", "2", "--through", *words,
                 "--points", "5", "--samples", "200"]) == 0  # fmt: skip
    path = Path(f"results/landscapes/{SETTING}/fedavg/seed2/{'-'.join(words)}_5x200.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_every_number_of_a_plane_through_clients() -> None:
    x, y = samples(200)
    there = sorted(cohort(2, 3))
    words = [f"3.client{there[0]}", f"3.client{there[-1]}", "3.2"]
    found = landscape(*words)
    chosen = [there[0], there[-1], there[1]]
    models = [model(2, f"round3-client{k}") for k in chosen]
    sizes = np.array([len(held()[k]) for k in chosen], float)
    flat = [np.concatenate([m[name].ravel() for name in m]) for m in models]
    one = (flat[1] - flat[0]) / np.linalg.norm(flat[1] - flat[0])
    other = flat[2] - flat[0] - ((flat[2] - flat[0]) @ one) * one
    other /= np.linalg.norm(other)
    marks = [*models, mean(models, sizes / sizes.sum()), model(2, "round3-global")]
    names = [*(f"client {k}" for k in chosen), "average", "global, round 3"]
    assert [each["name"] for each in found["marks"]] == names
    for mark, params in zip(found["marks"], marks, strict=True):
        away = np.concatenate([params[name].ravel() for name in params]) - flat[0]
        place = away @ one, away @ other
        assert (mark["x"], mark["y"]) == pytest.approx(place, rel=1e-3, abs=1e-4)
        left = math.sqrt(max(away @ away - place[0] ** 2 - place[1] ** 2, 0))
        assert mark["away"] == pytest.approx(left, rel=1e-2, abs=1e-3)
        assert (mark["loss"], mark["accuracy"]) == pytest.approx(
            cross_entropy(params, x, y), rel=1e-4
        )
    for row, at_y in enumerate(found["y"]):
        for column, at_x in enumerate(found["x"]):
            at = flat[0] + at_x * one + at_y * other
            params, start = {}, 0
            for name, leaf in models[0].items():
                params[name] = at[start : start + leaf.size].reshape(leaf.shape)
                start += leaf.size
            expected = cross_entropy(params, x, y)[0]
            assert found["loss"][row][column] == pytest.approx(expected, rel=1e-3)


def test_every_number_of_a_line() -> None:
    x, y = samples(200)
    there = sorted(cohort(2, 2))
    found = landscape(f"2.client{there[-1]}", "3")
    first, second = model(2, f"round2-client{there[-1]}"), model(2, "round3-global")
    for share, loss, accuracy in zip(found["x"], found["loss"], found["accuracy"], strict=True):
        at = mean([first, second], np.array([1 - share, share]))
        assert (loss, accuracy) == pytest.approx(cross_entropy(at, x, y), rel=1e-4)
    assert found["distance"] == pytest.approx(distance(first, second), rel=1e-4)
    # Of different rounds: their plain mean.
    assert [mark["x"] for mark in found["marks"]] == pytest.approx([0, 1, 0.5], abs=1e-3)


def test_a_landscape_is_not_continued_with_the_rows_of_another(finished: Path) -> None:
    path = finished / f"results/landscapes/{SETTING}/fedavg/seed2/2-3-3.1_5x200.json"
    whole = landscape("2", "3", "3.1")
    path.unlink()
    wrong = [[[0.0] * 5, [0.0] * 5]] * 2
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"of another plane": wrong}))
    assert landscape("2", "3", "3.1") == whole
