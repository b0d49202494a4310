"""Landscapes: directions, surfaces, and the command on a finished run."""

import json
import math
import shutil
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

from fedrepro.analysis.landscape import (
    DIRECTIONS,
    axes,
    coordinates,
    line,
    plane,
    point,
    random_directions,
    require_same_shape,
    rows,
    scorer,
)
from fedrepro.cli.main import main
from fedrepro.engine import tree
from fedrepro.engine.evaluate import evaluate
from fedrepro.engine.net import Net
from fedrepro.engine.task import CLASSIFICATION, MULTI_LABEL
from fedrepro.engine.tree import Tree
from fedrepro.models import registry as models
from fedrepro.support import checksummed_json
from fedrepro.support.rng import stream
from support.finished_runs import make_runs
from support.refusals import refused

RUN = ("superfed/tiny", "fedavg", "--seed", "1")
RESULT = Path("results/landscapes/superfed/tiny/fedavg/seed1.json")


def test_random_directions_are_as_long_as_filters() -> None:
    net = Net(models.build("superfed_resnet9", (3, 28, 28), 10))
    centre = net.init(stream(1, "init"))
    one, other = random_directions(centre, (stream(1, "a"), stream(1, "b")))
    for name, leaf in centre.items():
        for direction in (one[name], other[name]):
            if leaf.dim() < 2:
                assert (direction == 0).all()  # BatchNorm's
            else:
                torch.testing.assert_close(
                    direction.flatten(1).norm(dim=1), leaf.flatten(1).norm(dim=1)
                )
    matrix = "head.0.weight"
    angle = torch.cosine_similarity(one[matrix].flatten(), other[matrix].flatten(), dim=0)
    assert abs(float(angle)) < 5 / one[matrix].numel() ** 0.5
    again, _ = random_directions(centre, (stream(1, "a"), stream(1, "b")))
    assert torch.equal(again[matrix], one[matrix])
    swapped, same = random_directions(centre, (stream(1, "b"), stream(1, "a")))
    assert torch.equal(swapped[matrix], other[matrix]) and torch.equal(same[matrix], one[matrix])
    # A filter is one output's: of its kernels each keeps the length that was drawn.
    deep = next(name for name, leaf in centre.items() if leaf.dim() == 4 and leaf.shape[1] > 1)
    kernels = one[deep].flatten(2).norm(dim=2) / centre[deep].flatten(2).norm(dim=2)
    assert kernels.std() > 0.01


def test_surfaces_have_rows_of_equal_y() -> None:
    """A bowl around (1, 2) with different slopes, and a place where there is no number."""

    def score(params: Tree) -> tuple[float, float]:
        x, y = params["w"].tolist()
        return (math.inf if x > 2 else (x - 1) ** 2 + 10 * (y - 2) ** 2), x + 100 * y

    directions = {"w": torch.tensor([1.0, 0.0])}, {"w": torch.tensor([0.0, 1.0])}
    found = rows(score, {"w": torch.tensor([1.0, 2.0])}, directions, [-1, 0, 2], [0, 1])
    assert [*found] == [
        ([1, 0, None], [200, 201, 203]),
        ([11, 10, None], [300, 301, 303]),
    ]


@pytest.mark.parametrize("third", [[2.0, 2.0], [0.0, 0.0], [1.0, 1.0]])
def test_models_on_a_line_span_no_plane(third: list[float]) -> None:
    first, second = torch.zeros(2), torch.ones(2)
    with refused(names=("models", "three")):
        plane({"w": first}, {"w": second}, {"w": torch.tensor(third)})
    with refused(names=("models", "three")):
        plane({"w": first}, {"w": first}, {"w": torch.tensor([3.0, 1.0])})


def bowl(params: Tree) -> tuple[float, float]:
    """Loss |w - (1, 2, 3)|^2, accuracy the first number."""
    away = params["w"] - torch.tensor([1.0, 2.0, 3.0])
    return float(away.square().sum()), float(params["w"][0])


def model(*values: float) -> Tree:
    return {"w": torch.tensor(values)}


def test_line_between_two_models() -> None:
    first, second = model(1.0, 2.0, 5.0), model(1.0, 2.0, 2.0)
    loss, accuracy = line(bowl, first, second, [0.0, 0.25, 0.5, 1.0, 1.5])
    assert loss == [1, 0.0625, 0.25, 4, 12.25]  # beta is the share of the first
    assert accuracy == [1] * 5
    assert line(bowl, first, model(math.nan, 0, 0), [0.5])[0] == [None]


def test_plane_through_three_models() -> None:
    """Every model is where its coordinates say, and the surface has its loss there."""
    models = [model(0.0, 1.0, 2.0), model(2.0, 2.0, 2.0), model(1.0, 5.0, 4.0)]
    directions = plane(*models)
    lengths = [float(tree.square_norm(each)) for each in directions]
    assert lengths == pytest.approx([1, 1]) and abs(float(tree.dot(*directions))) < 1e-6
    plain = plane(*models, unit=False)  # stretched, as in IMA's text
    for stretched, unit, length in zip(plain, directions, (5**0.5, 13.8**0.5), strict=True):
        torch.testing.assert_close(stretched["w"] * length, unit["w"])
    places = [coordinates(each, models[0], directions) for each in models]
    xs, ys = axes(places, points=5)
    assert len(xs) == len(ys) == 5 and xs[0] < 0 < xs[-1] and ys[0] < 0 < ys[-1]
    steps = {round(b - a, 6) for a, b in pairwise(xs)}
    assert len(steps) == 1
    for (x, y), each in zip(places, models, strict=True):
        torch.testing.assert_close(point(models[0], directions, x, y)["w"], each["w"])
        ((loss, _),) = rows(bowl, models[0], directions, [x], [y])
        assert loss[0] == pytest.approx(bowl(each)[0], rel=1e-5)


def test_a_flat_plane_has_the_margin_of_its_length() -> None:
    """On all four sides, so that the models do not stand at its edge."""
    xs, ys = axes([(0.0, 0.0), (10.0, 0.2), (4.0, 0.1)], points=3, margin=0.1)
    assert xs == pytest.approx([-1, 5, 11]) and ys == pytest.approx([-1, 0.1, 1.2])


def test_rows_can_be_gone_on_with() -> None:
    models = [model(0.0, 1.0, 2.0), model(2.0, 2.0, 2.0), model(1.0, 5.0, 4.0)]
    directions = plane(*models)
    xs, ys = [0.0, 1.0], [0.0, 1.0, 2.0]
    whole = list(rows(bowl, models[0], directions, xs, ys))
    begun = rows(bowl, models[0], directions, xs, ys)
    kept = [next(begun)]
    kept += rows(bowl, models[0], directions, xs, ys[len(kept) :])
    assert kept == whole


def test_models_that_span_no_landscape() -> None:
    one, two = model(0.0, 1.0, 2.0), model(2.0, 2.0, 2.0)
    with refused(names=("models", "three")):
        plane(one, two, model(1.0, 1.5, 2.0))
    narrow = {"w": torch.zeros(2)}
    with refused("value", key="w", names=("3", "2")):
        require_same_shape([one, two, narrow])
    with refused("value", key="b", names="missing"):
        require_same_shape([one, two, {**two, "b": torch.zeros(1)}])
    with refused("value", key="b", names="missing"):
        line(bowl, one, {**two, "b": torch.zeros(1)}, [0.5])


@pytest.mark.parametrize("name", ["ima_fmnist_cnn", "ima_digits_cnn", "logistic"])
def test_scorer_is_evaluation(name: str) -> None:
    shape = (3, 28, 28) if name == "ima_digits_cnn" else (1, 28, 28)
    net = Net(models.build(name, shape, 10))
    params, rng = net.init(stream(1, "init")), stream(1, "samples")
    x, y = torch.randn(130, *shape, generator=rng), torch.randint(10, (130,), generator=rng)
    loss, accuracy = scorer(net, CLASSIFICATION, x, y)(params)
    found = evaluate(net, CLASSIFICATION, params, lambda a, b: (x[a:b], y[a:b]), 130)
    assert (loss, accuracy) == pytest.approx((found["loss"], found["accuracy"]), rel=1e-6)
    assert net.module.training


def test_pools_of_other_kinds_and_after_other_layers_are_scored_as_they_are() -> None:
    """What makes pooling quick is for pools of 2 x 2 after a ReLU."""
    net = Net(
        nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), nn.BatchNorm2d(3), nn.MaxPool2d(2),
            nn.ReLU(), nn.MaxPool2d(2, padding=1), nn.Tanh(), nn.MaxPool2d(2, stride=1),
            nn.ReLU(), nn.MaxPool2d(2, dilation=2), nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True), nn.Flatten(),
            nn.Linear(12, 4),
        )
    )  # fmt: skip
    params, rng = net.init(stream(1, "init")), stream(1, "samples")
    params = {name: leaf - 0.7 if name == "2.weight" else leaf for name, leaf in params.items()}
    x, y = torch.randn(250, 1, 61, 61, generator=rng), torch.randint(2, (250, 4), generator=rng)
    for task, targets in ((MULTI_LABEL, y.float()), (CLASSIFICATION, y.sum(1) % 4)):
        loss, accuracy = scorer(net, task, x, targets)(params)
        found = evaluate(net, task, params, lambda a, b, t=targets: (x[a:b], t[a:b]), 250)
        assert (loss, accuracy) == pytest.approx((found["loss"], found["accuracy"]), rel=1e-5)


EXPERIMENT = """\
system: superfed
title: Tiny
paper: none
settings:
  tiny:
    dataset: mnist5k
    partition: {scheme: iid, clients: 4, test_fraction: 0.2}
    model: logistic
    rounds: ROUNDS
    participation: 0.5
    epochs: 1
    batch_size: 100
    optimizer: {lr: 0.1}
"""


def experiment(root: Path, **changes: str) -> None:
    """Write the experiment file; two rounds unless told otherwise."""
    text = EXPERIMENT
    for old, new in ({"ROUNDS": "2"} | changes).items():
        text = text.replace(old, new)
    (root / "config/experiments/superfed.yaml").write_text(text)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the run is finished."""
    root = tmp_path_factory.mktemp("finished")
    make_runs(root, EXPERIMENT.replace("ROUNDS", "2"), [("superfed/tiny", "fedavg", 1)])
    return root


@pytest.fixture
def bench(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to be changed."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that the command says."""
    capsys.readouterr()
    assert main(["landscape", *(arguments or RUN)]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and not RESULT.exists()
    return line


def test_command(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["landscape", *RUN]) == 0
    assert capsys.readouterr().out == f"{RESULT}\n"
    found = json.loads(RESULT.read_text())
    named = {"of", "what", "seal"}
    assert set(found) - named == {"directions", "x", "y", "loss", "accuracy"}
    assert found["directions"] == DIRECTIONS
    assert found["x"] == found["y"] and found["x"][0] == -1 and found["x"][-1] == 1
    assert [len(row) for row in found["loss"]] == [21] * 21
    # In the middle is the model itself.
    rounds = pd.read_parquet("results/runs/superfed/tiny/fedavg/seed1/rounds.parquet")
    middle = found["loss"][10][10], found["accuracy"][10][10]
    last = rounds["test_loss"].iloc[-1], rounds["test_accuracy"].iloc[-1]
    assert middle == pytest.approx(last, rel=1e-6)
    assert found["loss"][0][0] != found["loss"][0][20]
    before = RESULT.read_bytes()
    assert main(["landscape", *RUN]) == 0
    assert RESULT.read_bytes() == before


def test_without_a_test_set_clients_hold_out_samples(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the data set has none, at the centre stands the mean over all that clients hold out."""
    meta = bench / "results/data/mnist5k/meta.json"
    about = checksummed_json.parsed(meta)
    del about["splits"]["test"]
    checksummed_json.write(meta, about, "data/mnist5k/meta")
    shutil.rmtree(bench / "results/downloads")  # or the data would be prepared again
    experiment(bench, **{"    rounds": "    evaluate: {clients: true}\n    rounds"})
    assert main(["run", *RUN]) == 0
    assert main(["landscape", *RUN]) == 0
    found = json.loads(RESULT.read_text())
    rounds = pd.read_parquet("results/runs/superfed/tiny/fedavg/seed1/rounds.parquet")
    assert found["loss"][10][10] == pytest.approx(rounds["test_loss"].iloc[-1], rel=1e-6)


def test_what_is_refused(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ("superfed/tiny", "scaffold", "--seed", "1")
    assert f"fedrepro run {' '.join(run)}" in refusal(capsys, *run)
    assert "'fedavg'" in refusal(capsys, "superfed/tiny", "fedavgg", "--seed", "1")
    assert "'superfed/tiny'" in refusal(capsys, "superfed/tin", *RUN[1:])
    assert "--seed: -1" in refusal(capsys, *RUN[:2], "--seed", "-1")
    experiment(bench, ROUNDS="3")
    assert ": rounds " in refusal(capsys)
    experiment(bench)
    model = bench / "results/runs/superfed/tiny/fedavg/seed1/model.safetensors"
    whole = model.read_bytes()
    model.write_bytes(whole[:100])
    assert "damaged" in refusal(capsys)
    model.write_bytes(whole)
    shutil.rmtree(bench / "results/partitions")
    assert "results/partitions/" in refusal(capsys)
    shutil.rmtree(bench / "results/data")
    assert "results/data/mnist5k: " in refusal(capsys)
