"""What is drawn of the models that a run kept: the commands on finished runs of a few seconds."""

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from fedrepro.analysis.kept_models import open_kept
from fedrepro.analysis.landscape import scorer
from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.engine import tree
from fedrepro.engine.net import Net
from fedrepro.engine.task import CLASSIFICATION
from fedrepro.models import registry as models
from fedrepro.run.store import load_tree, save_tree
from fedrepro.support.rng import stream
from support.finished_runs import make_runs

EXPERIMENT = """\
system: superfed
title: Tiny
paper: none
settings:
  kept:
    dataset: mnist5k
    partition: {scheme: shards, clients: 5, classes_per_client: 2, seed: 1}
    model: logistic
    rounds: 4
    participation: 1.0
    epochs: 1
    batch_size: 100
    optimizer: {lr: 0.1}
    methods: {ima: {window: 2, start: 0.5, decay: 0.0}}
    save_models_at: {fedavg: [2, 3, 4], ima+fedavg: [4]}
  some: {extends: kept, participation: 0.6, cohorts: {stream: numpy_legacy, seed: 1}}
  any: {extends: kept, partition: {scheme: shards, clients: 5, classes_per_client: 2}}
  one: {extends: kept, participation: 0.2}
"""
FOLDER = Path("results/runs/superfed/kept/fedavg/seed1")
PLANES = Path("results/landscapes/superfed/kept")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with finished runs of two seeds, and one of IMA's."""
    root = tmp_path_factory.mktemp("finished")
    runs = (("fedavg", 1), ("fedavg", 2), ("ima+fedavg", 1), ("fedprox", 1))
    make_runs(root, EXPERIMENT, [("superfed/kept", *run) for run in runs])
    return root


@pytest.fixture
def bench(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def landscape(*words: str, method: str = "fedavg", points: int = 5) -> dict[str, Any]:
    arguments = ["--points", str(points), "--samples", "300"]
    assert main(["landscape", "superfed/kept", method, "--seed", "1", "--through", *words,
                 *arguments]) == 0  # fmt: skip
    path = PLANES / method / "seed1" / f"{'-'.join(words)}_{points}x300.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main([*arguments]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    return line


def test_a_plane_goes_through_its_models(bench: Path) -> None:
    """Marks have the loss of the models themselves; the corners stand on the plane."""
    found = landscape("2", "3", "4")
    names = [mark["name"] for mark in found["marks"]]
    assert [re.findall(r"\d+", name) for name in names] == [["2"], ["3"], ["4"], []]
    assert [name.partition(",")[0] for name in names] == ["global"] * 3 + ["mean"]
    assert [len(row) for row in found["loss"]] == [5] * 5 and found["samples"] == 300
    assert found["precision"] == "float32"
    run = open_kept(load(bench), RunKey("superfed/kept", "fedavg", 1))
    context = run.plan.federation.context
    score = scorer(context.net, context.task, *run.samples(300))
    globals_ = [run.model(word).params for word in ("2", "3", "4")]
    mean = tree.weighted_sum(tree.stack(globals_), torch.full((3,), 1 / 3))
    for mark, params in zip(found["marks"], [*globals_, mean], strict=True):
        assert (mark["loss"], mark["accuracy"]) == pytest.approx(score(params), rel=1e-5)
        assert mark["away"] == pytest.approx(0, abs=1e-4)
    x, y = found["marks"][2]["x"], found["marks"][2]["y"]
    distance = math.sqrt(float(tree.square_norm(tree.subtract(globals_[2], globals_[0]))))
    assert math.hypot(x, y) == pytest.approx(distance, rel=1e-4)
    # The last global model is the run's: its accuracy stands in its rounds, on all samples.
    rounds = pd.read_parquet(FOLDER / "rounds.parquet")
    every = scorer(context.net, context.task, *run.samples(10**6))
    assert every(globals_[2])[1] == pytest.approx(rounds["test_accuracy"].iloc[-1])


def test_clients_of_a_round_are_averaged_by_their_samples(bench: Path) -> None:
    """With all clients the average is what the server has, off their plane in general."""
    found = landscape("4.1", "4.2", "4.client4")
    names = [mark["name"] for mark in found["marks"]]
    assert names == ["client 0", "client 1", "client 4", "average", "global, round 4"]
    assert found["marks"][4]["away"] > 1e-2
    run = open_kept(load(bench), RunKey("superfed/kept", "fedavg", 1))
    every, server = run.model("4.average").params, run.model("4").params
    for name, leaf in server.items():
        torch.testing.assert_close(every[name], leaf)
    plan = replace(run.plan, client_sizes=[10, 30, 5, 15, 40])
    unequal = replace(run, plan=plan)
    assert unequal.shares([1, 0, 4]).tolist() == pytest.approx([3 / 8, 1 / 8, 4 / 8])


def test_a_line_leads_from_one_model_to_the_other(bench: Path) -> None:
    """From the average of IMA's last clients to the moving average: mean of two such."""
    found = landscape("4.average", "4", method="ima+fedavg", points=9)
    ends = found["loss"][2], found["loss"][6]  # at 0 and 1
    assert found["x"][2] == 0 and found["x"][6] == 1
    marks = [mark["loss"] for mark in found["marks"]]
    assert ends == pytest.approx(marks[:2], rel=1e-4)
    assert [mark["name"] for mark in found["marks"]] == ["average, round 4", "IMA, round 4", "mean"]
    assert found["marks"][2]["x"] == pytest.approx(0.5, abs=1e-4)
    assert landscape("last", "2")["marks"][0]["name"] == "last"


def test_a_plane_is_gone_on_with(bench: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = landscape("2", "3", "4")
    scored: list[int] = []

    def counted(*arguments: Any) -> Any:
        made = scorer(*arguments)

        def score(params: Any) -> tuple[float, float]:
            scored.append(1)
            if stop_after is not None and len(scored) > stop_after:
                raise KeyboardInterrupt
            return made(params)

        return score

    monkeypatch.setattr("fedrepro.analysis.landscape.scorer", counted)
    arguments = ["landscape", "superfed/kept", "fedavg", "--seed", "1", "--through", "2", "3", "4",
                 "--points", "5", "--samples", "300"]  # fmt: skip
    path = PLANES / "fedavg/seed1/2-3-4_5x300.json"
    path.unlink()
    stop_after: int | None = 13
    assert main(arguments) == 130 and not path.exists()
    stop_after = None
    scored.clear()
    assert main(arguments) == 0
    assert json.loads(path.read_text()) == whole
    assert len(scored) == 3 * 5 + 4  # three of five rows, and the marks
    assert list(path.parent.iterdir()) == [path]


def test_what_a_landscape_refuses(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def through(*words: str, method: str = "fedavg") -> str:
        return refused(
            capsys, "landscape", "superfed/kept", method, "--seed", "1", "--through", *words
        )

    assert "landscape: models: ['2']: " in through("2")
    assert "model: '1': " in through("1", "2") and ": 2, 3, 4\n" in through("1", "2")
    assert "0, 1, 2, 3, 4" in through("4.client7", "2")
    assert "1 to 5" in through("4.9", "2")
    said = through("lats", "2")
    assert "model: 'lats': " in said and "'last'?" in said
    assert "landscape: three" in through("2", "3", "2")
    assert "landscape: two" in through("2", "2")
    said = through("2", "3", "4", method="fedprox")
    assert "`save_models_at: { fedprox: [ROUND, ...] }`" in said
    assert "fedrepro run superfed/kept fedprox --seed 1" in said
    other = Net(models.build("twonn", (1, 28, 28), 10)).init(stream(1, "init"))
    save_tree(bench / "other.safetensors", other)
    assert "shape" in through("2", "other.safetensors")
    assert "model: 'nowhere.safetensors': " in through("2", "nowhere.safetensors")
    kept = bench / FOLDER / "round2-global.safetensors"
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    assert "damaged" in through("2", "3")
    grid = ("landscape", "superfed/kept", "fedavg", "--seed", "1", "--through", "3", "4")
    assert "--points: 1" in refused(capsys, *grid, "--points", "1")
    assert "--samples: 0" in refused(capsys, *grid, "--samples", "0")


def test_decomposition_of_two_runs(bench: Path) -> None:
    """The five terms sum to the loss of the averaged models, which is the server's."""
    assert main(["decompose", "superfed/kept", "fedavg", "--seeds", "1", "2"]) == 0
    found = json.loads(
        Path("results/decompositions/superfed/kept/fedavg/seeds1-2_2000.json").read_text()
    )
    assert re.findall(r"\d+", found["estimates"]) == ["5"]
    assert found["samples"] == 1000 and [each["round"] for each in found["rounds"]] == [2, 3, 4]
    last = found["rounds"][-1]
    terms = ("train_bias", "heterogeneous_bias", "variance", "covariance", "locality")
    assert math.fsum(last[term] for term in terms) == pytest.approx(last["loss"], abs=1e-10)
    assert last["loss"] - last["ensemble_loss"] == pytest.approx(last["locality"], abs=1e-12)
    run = open_kept(load(bench), RunKey("superfed/kept", "fedavg", 1))
    x, y = run.samples(1000)
    losses = []
    for seed in (1, 2):
        params, _ = load_tree(FOLDER.with_name(f"seed{seed}") / "round4-global.safetensors")
        outputs = run.plan.federation.context.net.predict(params, x).softmax(-1)
        one_hot = torch.nn.functional.one_hot(y, 10)
        losses.append(float((outputs - one_hot).square().mean()))
    assert last["loss"] == pytest.approx(sum(losses) / 2, rel=1e-4)
    assert last["slope"] == pytest.approx(2, abs=0.2)
    assert 0 < last["cka"] < 1 and last["distance"] > 0


def test_what_a_decomposition_refuses(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def decompose(setting: str, *seeds: str) -> str:
        return refused(capsys, "decompose", f"superfed/{setting}", "fedavg", "--seeds", *seeds)

    assert "seeds: [1, 1]" in decompose("kept", "1", "1")
    assert "fedrepro run superfed/kept fedavg --seed 3" in decompose("kept", "1", "3")
    assert "--seeds: -1" in decompose("kept", "1", "-1")
    for seed in ("1", "2"):
        for setting in ("any", "one"):
            assert main(["run", f"superfed/{setting}", "fedavg", "--seed", seed]) == 0
    said = decompose("any", "1", "2")
    assert re.search(r"\b1\b.*\b2\b.*`partition", said)
    assert "clients" in decompose("one", "1", "2")
    assert main(["run", "superfed/kept", "fedprox", "--seed", "2"]) == 0
    kept = refused(capsys, "decompose", "superfed/kept", "fedprox", "--seeds", "1", "2")
    assert "`save_models_at: " in kept


def test_with_some_clients_it_says_what_is_estimated(bench: Path) -> None:
    """The cohorts are drawn by a seed of their own: three of five take part in both runs."""
    for seed in ("1", "2"):
        assert main(["run", "superfed/some", "fedavg", "--seed", seed]) == 0
    assert (
        main(["decompose", "superfed/some", "fedavg", "--seeds", "1", "2", "--samples", "50"]) == 0
    )
    path = Path("results/decompositions/superfed/some/fedavg/seeds1-2_50.json")
    found = json.loads(path.read_text())
    assert {each["clients"] for each in found["rounds"]} == {3}
    assert re.findall(r"\d+", found["estimates"]) == ["3", "5"]


def test_disk_use_is_said_before_a_run(
    bench: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three rounds of five clients and the server: 18 models of 7,850 numbers."""
    shutil.rmtree(FOLDER)
    capsys.readouterr()
    assert main(["run", "superfed/kept", "fedavg", "--seed", "1"]) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert re.search(r"\b18\b.* 0\.0 MB.*\b3\b.* 1 MB", first)
    kept = list(FOLDER.glob("round*.safetensors"))
    assert len(kept) == 18
    shutil.rmtree(FOLDER)
    usage = shutil.disk_usage(bench)._replace(free=1000)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    said = refused(capsys, "run", "superfed/kept", "fedavg", "--seed", "1")
    assert "`save_models_at`" in said and not FOLDER.exists()


@pytest.mark.parametrize("name", ["ima_fmnist_cnn", "ima_digits_cnn"])
def test_a_landscape_in_bfloat16_is_nearly_the_same(name: str) -> None:
    shape = (3, 28, 28) if name == "ima_digits_cnn" else (1, 28, 28)
    net = Net(models.build(name, shape, 10))
    params, rng = net.init(stream(1, "init")), stream(1, "samples")
    x, y = torch.randn(50, *shape, generator=rng), torch.randint(10, (50,), generator=rng)
    exact, _ = scorer(net, CLASSIFICATION, x, y)(params)
    rough, _ = scorer(net, CLASSIFICATION, x, y, bfloat16=True)(params)
    assert rough != exact and rough == pytest.approx(exact, rel=5e-3)
