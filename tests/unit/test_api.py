"""`import fedrepro as fr`: runs on arrays, what they say of themselves, and the notebook."""

import ast
import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import make_dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import fedrepro as fr
from fedrepro.config.loading import load as load_workbench
from fedrepro.config.targets import RunKey
from fedrepro.engine.method import Method
from fedrepro.report.cells import tables
from fedrepro.report.cells.claims import judge_compact
from fedrepro.report.papers import published
from fedrepro.report.papers.leads import Word
from fedrepro.run import scoring
from fedrepro.run.runner import Progress
from fedrepro.run.state import State
from fedrepro.support.errors import UserError
from support.numbers_in_text import numbers_in
from support.places import ROOT
from support.refusals import Fault, refused
from support.report_world import make_world, write_run
from support.scripts import script
from support.tiny_run import carry_out, run_spec


def samples(seed: int, n: int = 40) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return (np.eye(3)[y] + 0.3 * rng.normal(size=(n, 3))).astype(np.float32), y


CLIENTS, TEST = [samples(1), samples(2, 24)], samples(3, 50)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 3))


@pytest.fixture(scope="module")
def run() -> fr.Run:
    return fr.train("fedavg", "logistic", CLIENTS, rounds=3, test=TEST)


def test_the_scores_are_those_of_the_model(run: fr.Run) -> None:
    x, y = map(torch.as_tensor, TEST)
    with torch.no_grad():
        logits = run.model(x)
    end = run.rounds.iloc[-1]
    assert run.rounds["round"].tolist() == [1, 2, 3]
    assert end["test_accuracy"] == (logits.argmax(1) == y).double().mean().item() > 0.5
    assert end["test_loss"] == pytest.approx(nn.functional.cross_entropy(logits, y).item(), 1e-5)
    assert run.clients["train_samples"].unique().tolist() == [40, 24]
    assert not run.model.training


def test_rounds_are_evaluated_as_often_as_asked() -> None:
    run = fr.train("fedavg", "logistic", CLIENTS, rounds=5, evaluate_every=3)
    assert run.rounds["round"].tolist() == [3, 5] == sorted({*run.clients["round"]})
    with refused(key="evaluate.every", value=0):
        fr.train("fedavg", "logistic", CLIENTS, rounds=5, evaluate_every=0)


def test_a_run_follows_from_its_seed_and_its_hyperparameters(run: fr.Run) -> None:
    def rounds(method: str = "fedavg", seed: int = 1, **more: float) -> pd.DataFrame:
        return fr.train(
            method, "logistic", CLIENTS, rounds=3, test=TEST, seed=seed, **more
        ).rounds.drop(columns="bytes_up")

    first = run.rounds.drop(columns="bytes_up")
    assert rounds().equals(first)
    assert rounds("fedprox", mu=0.0).equals(first)
    assert not rounds("fedprox", mu=5.0).equals(first)
    assert not rounds(seed=2).equals(first)


def test_a_part_s_own_rate_is_named_with_the_part() -> None:
    given = {"lr": 0.2, "fedadam.lr": 0.3}
    run = fr.train("fedprox+fedadam", "logistic", CLIENTS, rounds=1, test=TEST, **given)
    said = run.manifest["run"]
    assert (said["optimizer"]["lr"], said["hyperparameters"]["fedadam"]["lr"]) == (0.2, 0.3)
    with refused(names=("fedavg.mu", "hyperparameter")):
        fr.train("fedprox", "logistic", CLIENTS, rounds=1, test=TEST, **{"fedavg.mu": 1.0})


@pytest.mark.parametrize("name", [n for n in (*dir(Method), "inner") if not n.startswith("_")])
def test_an_own_hyperparameter_takes_no_name_that_methods_use(name: str) -> None:
    """Of a class without source, such as one that was typed after ``python``."""
    mine = make_dataclass("Mine", [(name, float, 0.5)], bases=(Method,), frozen=True)
    mine.__module__ = "__main__"
    with refused(names=name):
        fr.train(mine, "logistic", CLIENTS, rounds=1, test=TEST)


def test_clients_have_the_optimizer_and_the_executor_that_are_asked_for() -> None:
    adam = {"lr": 0.01, "weight_decay": 0.1, "betas": (0.5, 0.9)}
    run = fr.train("fedavg", "logistic", CLIENTS, rounds=1, test=TEST, optimizer="adam", **adam)
    known = {"name": "adam", "momentum": 0.0, **adam, "betas": [0.5, 0.9]}
    assert run.manifest["run"]["optimizer"] == known
    # It is refused with this executor only.
    drops = nn.Sequential(nn.Dropout(), nn.Linear(3, 3))
    fr.train("fedavg", drops, CLIENTS, rounds=1, test=TEST)
    with refused(file="executor", value="vectorised", names="dropout"):
        fr.train("fedavg", drops, CLIENTS, rounds=1, test=TEST, executor="vectorised")


def test_numpy_numbers_are_numbers_and_torch_devices_are_devices(run: fr.Run) -> None:
    three, one = np.int64(3), np.int32(1)
    same = fr.train(
        "fedprox",
        "logistic",
        CLIENTS,
        rounds=three,
        test=TEST,
        epochs=one,
        batch_size=np.int64(32),
        lr=np.float64(0.1),
        seed=one,
        device=torch.device("cpu"),
        mu=np.float32(0.0),
    )
    assert same.rounds["test_loss"].equals(run.rounds["test_loss"])


def test_torch_data_sets_and_modules_of_ones_own() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = network()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)

    data = [TensorDataset(*map(torch.as_tensor, pair)) for pair in CLIENTS]
    by_name = fr.train("ima+fedavg", Own(), data, rounds=2)
    by_function = fr.train("ima+fedavg", lambda shape, classes: Own(), CLIENTS, rounds=2)
    assert by_name.rounds.equals(by_function.rounds)
    assert by_name.rounds["client_accuracy"].notna().all()  # on a fifth that each holds out
    assert by_name.clients["test_samples"].unique().tolist() == [8, 5]
    assert isinstance(by_name.model, Own)


def test_what_is_not_kept_goes_with_its_object() -> None:
    run = fr.train("fedavg", "logistic", CLIENTS, rounds=1)
    folder = run.folder.parent
    assert folder.is_dir()
    del run
    assert not folder.exists()


def test_rounds_that_are_dropped_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(rounds: int) -> fr.Run:
        folder = tmp_path / "run"
        return fr.train("fedavg", "logistic", CLIENTS, rounds=rounds, test=TEST, folder=folder)

    def fails_in_round_12(_plan: object, state: State, *_: object) -> Iterator[Any]:
        if state.done == 12:
            raise ArithmeticError
        return iter(())

    with monkeypatch.context() as patch:
        patch.setattr(scoring, "files_of_round", fails_in_round_12)
        with pytest.raises(ArithmeticError):
            train(30)
    lost = "to 10 .* 30, is 2"
    with pytest.warns(UserWarning, match=lost) as said:
        assert train(2).rounds["round"].tolist() == [1, 2]
    assert said[0].filename == __file__


def test_what_is_kept_is_not_made_again_and_can_be_loaded(tmp_path: Path) -> None:
    def train(module: nn.Module, **more: Any) -> fr.Run:
        folder = tmp_path / "run"
        return fr.train("fedavg", module, CLIENTS, rounds=1, test=TEST, folder=folder, **more)

    def written() -> int:
        return (tmp_path / "run/manifest.json").stat().st_mtime_ns

    first, same = train(module := network()), train(module)
    assert same.rounds.equals(first.rounds)
    assert fr.load(tmp_path / "run").rounds.equals(first.rounds)
    with refused(names=("overwrite", "finished")):
        train(other := nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3)))
    at = written()
    train(other, overwrite=True)
    assert written() != at
    for file_of_another in ("clients", "model"):
        with refused(names=("damaged", "replaced")):
            getattr(first, file_of_another)
    assert first.rounds.equals(same.rounds)  # read before
    (tmp_path / "run/rounds.parquet").write_bytes(b"")
    with refused(names="damaged"):
        fr.load(tmp_path / "run")


def test_runs_of_a_workbench_are_found_by_name() -> None:
    with warnings.catch_warnings():  # code that is not blessed may be told
        warnings.simplefilter("ignore")
        heart = fr.load("aaggff/heart", "fedavg", 2, root=ROOT)  # a committed reference result
    assert (heart.method, heart.seed) == ("fedavg", 2)
    assert heart.rounds["round"].tolist() == list(range(20, 201, 20))
    with refused("missing", names="fedrepro run aaggff/heart fedavg --seed 77"):
        fr.load("aaggff/heart", "fedavg", 77, root=ROOT)


@pytest.mark.parametrize(
    "seed", [1.7, True, "1", "one", -1, [1], float("nan"), np.float64(1.5)], ids=repr
)
def test_what_is_no_seed_loads_no_run(seed: Any) -> None:
    with refused("value", key="seed"):
        fr.load("aaggff/heart", "fedavg", seed, root=ROOT)


def test_a_seed_is_of_a_method_and_a_method_is_a_name(tmp_path: Path) -> None:
    run = fr.train("fedavg", "logistic", CLIENTS, rounds=1, folder=tmp_path / "run", **TESTED)
    with refused("value", key="seed", value=2):
        fr.load(run.folder, seed=2)
    for seed in (1, 1.0, np.int64(1)):
        assert fr.load(run.folder, seed=seed).seed == 1  # type: ignore[arg-type]
        with refused("missing"):  # a seed, of which there is no run
            fr.load("aaggff/heart", "fedavg", 76 + seed, root=ROOT)  # type: ignore[arg-type]
    assert len(fr.compare(run, average_across=np.True_)) == 1  # type: ignore[arg-type]
    for show in (fr.compare, fr.plot):
        with refused("value", key="of"):
            show([run, run], of=5)  # type: ignore[arg-type]
    for method in (["fedavg"], 1, np.array([1, 2])):
        with refused(key="method"):
            fr.load("aaggff/heart", method, 1, root=ROOT)  # type: ignore[arg-type]


def test_each_seed_is_its_own_run_and_comes_before_a_reference_result(tmp_path: Path) -> None:
    bench = load_workbench(make_world(tmp_path))
    setting = "ima/fmnist-shards2-demo"
    for seed, value in ((0, 0.25), (1, 0.5)):
        write_run(bench, RunKey(setting, "fedavg", seed), [value])
        write_run(bench, RunKey(setting, "fedavg", seed), [0.9], reference=True)
    write_run(bench, RunKey(setting, "fedavg", 2), [0.75], reference=True)
    for seed, value in ((0, 0.25), (1, 0.5), (None, 0.5), (2, 0.75)):
        run = fr.load(setting, "fedavg", seed, root=tmp_path)
        assert run.rounds["test_accuracy"].tolist() == [value]
        assert run.seed == (1 if seed is None else seed)


def test_what_clients_hold_out_follows_from_the_fraction_and_the_seed() -> None:
    def sizes(**given: Any) -> list[int]:
        run = fr.train("fedavg", "logistic", CLIENTS, rounds=1, **given)
        shares.append(run.manifest["data"]["partition_sha256"])
        return run.clients["train_samples"].unique().tolist()

    shares: list[str] = []
    assert sizes() == sizes(seed=2) == [32, 19]  # a fifth
    assert shares[0] != shares[1]
    assert sizes(test=TEST, test_fraction=0.0) == sizes(test=TEST) == [40, 24]
    with refused(names=("test", "set")):
        sizes(test_fraction=0.0)
    assert sizes(test=TEST, test_fraction=0.5) == sizes(test_fraction=0.5) == [20, 12]


def test_a_landed_result_has_its_own_rounds_and_no_model() -> None:
    """The files in its folder have the rounds of all methods and seeds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        landed = fr.load("aaggff/compact-silos", "fedavg", np.int64(2), root=ROOT)
    assert landed.rounds["round"].tolist() == [10, 20, 30]
    assert landed.clients["client"].tolist() == list(range(10))
    with refused(names=("results", "models")):
        _ = landed.model


def lossless(method: str, seed: int, values: list[float]) -> fr.Run:
    run = finished(method, seed, values)
    vars(run)["_read"]["rounds.parquet"]["loss"] = np.nan
    return run


def finished(method: str, seed: int, values: list[float]) -> fr.Run:
    named = {"setting": "own/arrays", "method": method, "seed": seed}
    about: dict[str, Any] = {"run": named, "arithmetic": "per client"}
    run = fr.Run(Path(), about)
    columns = {"round": range(1, len(values) + 1), "test_accuracy": values}
    vars(run)["_read"] = {"rounds.parquet": pd.DataFrame(columns)}
    return run


def diverged(method: str, seed: int, values: list[float]) -> fr.Run:
    """In the last round, whose number is of no model."""
    run = finished(method, seed, values)
    run.manifest["diverged_at"] = len(values)
    return run


def test_a_diverged_run_is_marked_and_never_averaged() -> None:
    good = [finished("a", 1, [0.5, 0.7]), finished("a", 2, [0.5, 0.6])]
    bad = [finished("b", 1, [0.5, 0.8]), diverged("b", 2, [0.4, 0.333])]
    table = fr.compare({"good": good, "bad": bad})
    assert table["diverged"].to_dict() == {"good": 0, "bad": 1}
    assert table.loc["good", "mean"] == pytest.approx(0.65)
    assert table.loc["bad", ["mean", "std", "gain"]].isna().all()
    assert fr.compare({"bad": bad, "good": good})["gain"].isna().all()
    drawn = fr.plot({"good": good, "bad": bad}).svg
    assert any(numbers_in(said) == [2, 2, 0.45] for said in re.findall(r"bad \(.*?0\.45", drawn))


def test_a_run_that_diverges_in_its_first_round_says_so() -> None:
    wide = nn.Sequential(
        nn.Linear(3, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 3)
    )
    run = fr.train("fedavg", wide, CLIENTS, rounds=3, test=TEST, lr=1e9)
    assert run.diverged_at == 1
    assert fr.compare([run])["diverged"].tolist() == [1]
    for shown in (run._repr_html_(), repr(run)):
        assert "fedavg" in shown and "own/arrays" in shown and "diverged" in shown
        assert numbers_in(shown)[:2] == [1, 1]  # the seed and the round


def test_what_diverged_at_once_does_not_keep_others_from_being_drawn() -> None:
    gone = diverged("b", 1, [0.5])
    drawn = fr.plot([finished("a", 1, [0.5, 0.7]), gone]).svg
    assert re.search(r"\ba [a-z ]+ 0\.7\b", drawn)
    assert re.search(r"\bb \(diverged: seed 1 in round 1\), not ", drawn)
    with refused(names=("diverged", "1", "test_accuracy")):
        fr.plot([gone])
    with refused(names=("diverged", "runs")):
        fr.plot({"b": [gone], "c": [gone]})


def test_a_seed_that_diverged_at_once_is_left_out_of_its_group_which_says_so() -> None:
    gone = diverged("b", 1, [0.5])
    for group in ([gone, finished("b", 2, [0.5, 0.7])], [finished("b", 2, [0.5, 0.7]), gone]):
        said = "b (diverged: seed 1 in round 1, left out)"
        drawn = fr.plot({"b": group}).svg
        assert f"{said} ends at 0.7" in drawn and f">{said}</text>" in drawn
    later = diverged("b", 3, [0.3, 0.9])  # its first round counts
    drawn = fr.plot({"b": [gone, finished("b", 2, [0.5, 0.7]), later]}).svg
    assert "seed 1 in round 1, left out, seed 3 in round 2) ends at 0.4" in drawn
    with refused(names=("b", "loss")):
        fr.plot({"b": [lossless("b", 1, [0.2]), lossless("b", 2, [0.2])]}, of="loss")


def test_a_notebook_shows_a_run_as_a_curve_with_its_end(tmp_path: Path) -> None:
    shown = finished("ima+<b>", 3, [0.5, 0.875])._repr_html_()
    assert shown.startswith("<figure><svg ") and "<b>ima+&lt;b&gt;</b>, own/arrays" in shown
    assert re.search(r"seed 3: [a-z ]+ 0\.875 [a-z ]+ 2\b", shown)
    assert "var(" not in shown  # it needs no style sheet
    gone = fr.Run(tmp_path, finished("a", 1, []).manifest)
    assert gone._repr_html_() == "<p><b>a</b>, own/arrays, seed 1</p>"


def test_an_unfinished_run_is_marked_and_comes_before_a_reference_result(tmp_path: Path) -> None:
    bench = load_workbench(make_world(tmp_path))
    run = RunKey("ima/fmnist-shards2-demo", "fedavg", 1)
    write_run(bench, run, [0.9], reference=True)

    def stop_after(last: int) -> None:
        def report(progress: Progress) -> None:
            if progress.round > last:
                raise StopIteration

        with pytest.raises(StopIteration):
            carry_out(tmp_path / run.folder, run_spec(checkpoint_every=2), report)

    stop_after(1)  # before the first checkpoint
    with pytest.warns(UserWarning, match="stopped"):
        assert fr.load(run.setting, "fedavg", root=tmp_path).finished
    stop_after(5)
    warned = r"seed1\.partial: unfinished, 4 of 12 .* test/blobs, is ima/fmnist"
    with pytest.warns(UserWarning, match=warned):
        begun = fr.load(run.setting, "fedavg", root=tmp_path)
    assert (begun.finished, begun.method, begun.seed) == (False, "fedavg", 1)
    assert "seed 1, unfinished" in begun._repr_html_()
    assert begun.rounds["round"].tolist() == [1, 2, 3, 4]
    assert begun.clients["client"].dtype == np.int64
    with refused(names=("seed1.partial", "unfinished")):
        _ = begun.model
    with refused(names=("fedavg", "1", "unfinished")):
        fr.compare([begun])
    with refused(names=("unfinished", "setting")):
        fr.load(tmp_path / run.folder)


def test_comparison_is_paired_by_seed() -> None:
    ours = [finished("a", 1, [0.1, 0.5, 0.7]), finished("a", 2, [0.1, 0.3, 0.3])]
    theirs = [finished("b", 2, [0.2, 0.4, 0.6]), finished("b", 1, [0.2, 0.6, 0.6])]
    table = fr.compare([ours, theirs], last=2)
    assert table.loc["a"].tolist() == [2, 0, pytest.approx(0.45), pytest.approx(0.3 / 2**0.5), 0, 2]
    assert table.loc["b", "gain"] == pytest.approx((0.0 + 0.2) / 2)
    assert fr.compare({"x": ours[0], "y": theirs})["seeds"].to_dict() == {"x": 1, "y": 2}


def test_seeds_of_different_arithmetic_are_not_averaged() -> None:
    ours = [finished("a", 1, [0.1]), finished("a", 2, [0.3])]
    ours[1].manifest["arithmetic"] = "stacked"
    assert len(fr.compare({"one": ours[0], "other": ours[1]})) == 2
    for show in (fr.compare, fr.plot):
        with refused(names=("both", "stacked")):
            show({"both": ours})


def test_a_gain_is_over_the_seeds_that_both_have() -> None:
    """Without any, it is the difference of the means."""
    ours = [finished("a", 1, [0.5]), finished("a", 2, [0.3])]
    theirs = [finished("b", 2, [0.7]), finished("b", 3, [1.0])]
    others = [finished("c", 3, [0.7]), finished("c", 4, [0.9])]
    table = fr.compare([ours, theirs, others])
    assert table["gain"].tolist() == pytest.approx([0, 0.4, 0.4])
    assert table["mean"].tolist() == pytest.approx([0.4, 0.85, 0.8])
    assert table["paired"].tolist() == [2, 1, 0]


class Backwards(nn.Module):
    """A loss that takes targets first."""

    def forward(self, target: Tensor, output: Tensor) -> Tensor:
        return (target - output.argmax(-1)).float()


HALF, TESTED = {"test_fraction": 0.5}, {"test": TEST}


@pytest.mark.parametrize(
    ("one", "other", "column", "alike"),
    [(TESTED, {"test": samples(4, 50)}, "test_accuracy", False),
     (TESTED, {}, "test_accuracy", False),
     ({}, HALF, "test_accuracy", False),
     ({}, HALF, "client_accuracy", False),
     (TESTED, TESTED | HALF, "test_accuracy", True),
     (TESTED, TESTED | {"validation": 0.2}, "test_accuracy", True),
     (HALF, HALF | {"validation": 0.2}, "client_accuracy", True),
     ({"validation": 0.2}, {"validation": 0.4}, "validation_accuracy", False),
     ({"validation": 0.2}, {"validation": 0.2, "lr": 0.5}, "validation_accuracy", True),
     (TESTED, {}, "bytes_up", True)],
)  # fmt: skip
def test_runs_that_were_scored_on_other_samples_have_no_gain(
    one: dict[str, Any], other: dict[str, Any], column: str, alike: bool
) -> None:
    ours, theirs = (
        fr.train("fedavg", "logistic", CLIENTS, rounds=1, **keys) for keys in (one, other)
    )
    with nullcontext() if alike else pytest.warns(UserWarning, match="compare: b"):
        table = fr.compare({"a": ours, "b": theirs}, of=column)
    with nullcontext() if alike else pytest.warns(UserWarning, match="plot: b"):
        fr.plot({"a": ours, "b": theirs}, of=column)
    assert table["gain"].isna().tolist() == [False, not alike]
    assert table["paired"].tolist() == [1, int(alike)] and table["mean"].notna().all()


@pytest.mark.parametrize(
    ("column", "tested", "alike"),
    [("test_accuracy", True, False), ("test_loss", True, False), ("test_top5", True, True),
     ("client_accuracy", True, True), ("test_accuracy", False, True)],
)  # fmt: skip
def test_no_gain_of_clients_own_samples_over_the_test_set(
    column: str, tested: bool, alike: bool
) -> None:
    """A method without a shared model is scored on what clients hold out, also with a test set."""
    keys: dict[str, Any] = HALF | (TESTED if tested else {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # training says so, too
        runs = {
            method: fr.train(method, "logistic", CLIENTS, rounds=1, **keys)
            for method in ("fedavg", "local")
        }
    with nullcontext() if alike else pytest.warns(UserWarning, match="compare: local"):
        table = fr.compare(runs, of=column)
    assert table["gain"].isna().tolist() == [False, not alike]


@pytest.mark.parametrize(
    ("given", "key"),
    [({"validation": np.array([0.1, 0.2])}, "validation"), ({"overwrite": [1]}, "overwrite"),
     *(({key: np.array([1, 2])}, key) for key in ("task", "executor", "weights")),
     ({"measures": np.array(0.5)}, "measures"), ({"callbacks": np.array(0.5)}, "callbacks"),
     ({"lr_schedule": {1.0, 0.5}}, "lr_schedule"), ({"epochs": 2**70}, "epochs"),
     ({"model": int}, "model"), ({"loss": lambda target, output: output}, "loss"),
     ({"measures": lambda y_true, y_pred: 0.0}, "measures"),
     ({"measures": partial(lambda target, output, scale: 0.0, scale=2)}, "measures"),
     ({"loss": Backwards()}, "loss")],
)  # fmt: skip
def test_an_argument_of_another_kind_is_refused(given: dict[str, Any], key: str) -> None:
    """Also a function whose first argument is the targets, as scikit-learn's are."""
    model = given.pop("model", "logistic")
    with refused("value", key=key):
        fr.train("fedavg", model, CLIENTS, **{"rounds": 1, "test": TEST, **given})


def test_overwrite_is_read_as_in_files(tmp_path: Path) -> None:
    for rounds, overwrite in ((2, "no"), (1, "no"), (1, "yes")):
        with refused() if (rounds, overwrite) == (1, "no") else nullcontext():
            fr.train("fedavg", "logistic", CLIENTS, rounds=rounds, test=TEST,
                     folder=tmp_path / "run", overwrite=overwrite)  # fmt: skip


def test_curves_are_drawn_as_a_file_of_their_own(tmp_path: Path) -> None:
    ours = [finished("a", 1, [0.1, 0.5, 0.7]), finished("a", 2, [0.1, 0.3, 0.3])]
    drawn = fr.plot({"ours <1>": ours, "theirs": finished("b", 1, [0.2, 0.6, 0.6])})
    drawn.save(tmp_path / "curves.svg")
    root = ElementTree.parse(tmp_path / "curves.svg").getroot()
    told = str(root.get("aria-label")).split(", ")
    assert "ours <1> " in told[0] and numbers_in(told[0])[-1] == 0.5
    assert "theirs " in told[1] and numbers_in(told[1]) == [0.6]
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"ours <1>", "theirs", "round", "test accuracy"} <= set(words)
    assert "var(" not in drawn.svg  # it needs no style sheet
    assert len(repr(drawn)) < 80  # what a notebook writes beside it
    with refused(names=("theirs", "loss")):
        fr.plot({"theirs": lossless("b", 1, [0.2])}, of="loss")


def test_a_chart_is_saved_as_its_name_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = fr.plot([finished("a", 1, [0.1, 0.5])])
    drawn.save(tmp_path / "curve.PNG")
    assert (tmp_path / "curve.PNG").read_bytes().startswith(b"\x89PNG")
    for name in ("curve.pdf", "curve"):
        with refused(names=(name, ".svg", ".png")):
            drawn.save(tmp_path / name)
    monkeypatch.setattr("fedrepro.report.pages.downloads.has_png", lambda: False)
    with refused(names=("installed", "save")):
        drawn.save(tmp_path / "other.png")
    assert [path.name for path in tmp_path.iterdir()] == ["curve.PNG"]


def test_a_module_without_a_head_serves_methods_that_need_none() -> None:
    """FedDisco counts classes, not outputs."""
    run = fr.train("feddisco", network(), CLIENTS, rounds=2, test=TEST)
    assert run.rounds["test_loss"].iloc[-1] < run.rounds["test_loss"].iloc[0]
    with refused(file="model Sequential", names=("`body`", "`head`")):
        fr.train("feduv", network(), CLIENTS, rounds=1)


def test_batchnorm_with_a_mini_batch_of_one_sample_is_one_line() -> None:
    """40 and 24 samples: 39 leave one of the first client's."""
    net = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    fr.train("fedavg", net, CLIENTS, rounds=1, test=TEST, batch_size=38)
    with refused(names=("batch_size", "39", "40")):
        fr.train("fedavg", net, CLIENTS, rounds=1, test=TEST, batch_size=39)


def test_a_module_and_torch_are_left_as_they_were() -> None:
    own, threads = network(), torch.get_num_threads()
    before = [leaf.clone() for leaf in own.parameters()]
    torch.set_num_threads(3)
    try:
        run = fr.train("fedavg", own, CLIENTS, rounds=2, test=TEST)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    trained = run.model
    assert trained is not own
    assert all(map(torch.equal, own.parameters(), before))
    assert not any(map(torch.equal, trained.parameters(), before))


def test_a_model_that_clients_keep_is_none_and_a_part_of_one_is_told() -> None:
    """Their own are not in the file, which has what each of them started with."""
    shared = {"local": None, "fedper": "part", "ditto": "whole", "median+lg_fedavg": "part"}
    for method, told in shared.items():
        run = fr.train(method, "twonn", CLIENTS, rounds=1, test_fraction=0.2)
        file = run.folder / "model.safetensors"
        if told is None:
            with refused("missing", names="local"):
                _ = run.model
            with refused("missing", names="initial"):
                fr.train("fedavg", "twonn", CLIENTS, rounds=1, initial=file)
            continue
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert isinstance(run.model, nn.Module)
            assert len(said) == (told == "part"), method
            fr.train("fedavg", "twonn", CLIENTS, rounds=1, initial=file)
        assert len(said) == 2 * (told == "part"), method
        assert all(each.filename == __file__ for each in said)


def test_no_model_is_loaded_from_a_changed_file(tmp_path: Path) -> None:
    first = fr.train("fedavg", "logistic", CLIENTS, rounds=1, folder=tmp_path / "run")
    fr.train("fedavg", "logistic", CLIENTS, rounds=1, seed=2, folder=tmp_path / "other")
    shutil.copy(tmp_path / "other/model.safetensors", tmp_path / "run")
    with refused("damaged", file="/run", names="model.safetensors"):
        _ = first.model


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            {"method": "fedprax", "mu": 1.0},
            {"key": "method", "value": "fedprax", "names": ("'fedprox'", "'fedper'", "method")},
        ),
        (
            {"method": "ima+fedprox_mu0.5", "mu": 1.0},
            {"key": "method", "value": "fedprox_mu0.5", "names": ("0.5", "arguments")},
        ),
        (
            {"method": "fedprox_nu0.5"},
            {"key": "method", "value": "fedprox_nu0.5", "names": ("'mu'", "fedprox")},
        ),
        ({"method": "fedgo"}, {"key": "method", "value": "fedgo", "names": "require"}),
        ({"model": "logistik"}, {"key": "name", "value": "logistik", "names": "'logistic'"}),
        (
            {"method": "ima+superfed_mm", "start": 0.5},
            {"names": ("'start'", "hyperparameter")},
        ),
        ({"mu": 1.0}, {"names": ("'mu'", "hyperparameter")}),
        ({"rounds": 0}, {"key": "rounds", "value": 0, "names": "1"}),
        ({"clients": []}, {"key": "clients", "value": [], "names": "samples"}),
        (
            {"clients": [samples(1), (np.ones((5, 2), np.float32), np.ones(5, int))]},
            {"key": "clients.1", "value": "[2] of float32"},
        ),
        (
            {"clients": [(np.ones((5, 2)), np.ones(4, int))]},
            {"key": "clients.0", "value": "[5, 2] and [4]", "names": "classes"},
        ),
        ({"clients": [(np.ones((5, 2)), np.ones(5))]}, {"key": "clients.0.y", "value": "float64"}),
        (
            {"clients": [([[1.0, 2.0], [3.0]], [0, 1])]},
            {"key": "clients.0.x, row 1", "value": [1], "names": ("clients.0.x", "1", "shape")},
        ),
        (
            {"clients": [([[1.0], [np.inf]], [0, 1])]},
            {"key": "clients.0.x, row 1", "names": ("clients.0.x", "1", "inf", "finite")},
        ),
        (
            {"test": (np.array([[1.0, np.nan, 0.0]]), [0])},
            {"key": "test.x, row 0", "names": ("test.x", "0", "nan")},
        ),
        (
            {"clients": [(np.array([[1e300]]), [0])]},
            {"key": "clients.0.x, row 0", "value": 1e300, "names": "300"},
        ),
        ({"clients": [(3, 4)]}, {"key": "clients.0", "value": "[] and []", "names": "classes"}),
        (
            {"clients": [(np.ones((3, 2)), [0, 1, -1])]},
            {"key": "clients.0.y, row 2", "value": -1, "names": ("clients.0.y", "2")},
        ),
        ({"learning_rate": 0.1}, {"names": ("'learning_rate'", "constant_server_lr", "'lr'")}),
        ({"fraction": 0.1}, {"names": ("'fraction'", "'participation'")}),
        ({"batchsize": 8}, {"names": ("'batchsize'", "'batch_size'")}),
        ({"n_clients": 8}, {"names": ("'n_clients'", "'clients'")}),
        ({"hyperparameter": 8}, {"names": ("'hyperparameter'", "sample_weighted")}),
        ({"device": torch.device("mps")}, {"key": "device", "value": "mps"}),
        ({"device": "mps"}, {"key": "device", "value": "mps"}),
        ({"seed": -1}, {"key": "seed", "value": -1, "names": "0"}),
        ({"executor": "paralel"}, {"key": "executor", "value": "paralel", "names": "'parallel'"}),
        ({"optimizer": "adm"}, {"key": "optimizer.name", "value": "adm", "names": "'adam'"}),
        (
            {"optimizer": "adam", "momentum": 0.9},
            {"key": "optimizer.momentum", "value": 0.9, "names": "`betas`"},
        ),
        ({"model": 3}, {"key": "model", "value": 3}),
        (
            {"model": nn.Linear(3, 2)},
            {"key": "outputs", "file": "model Linear", "value": 2, "names": ("Linear", "3")},
        ),
        (
            {"model": nn.Linear(4, 3)},
            {"names": ("Linear", "torch.float32")},
        ),
        (
            {"clients": [(np.ones((3, 2)), np.array([1, 2, 3]))]},
            {
                "key": "clients",
                "value": "classes from 1 to 3",
                "names": ("1", "3", "0", "numbered"),
            },
        ),
        (
            {"clients": [(np.ones((3, 2)), np.array([0, 1, 3]))]},
            {"names": ("clients", "2", "samples", "0", "3")},
        ),
        (
            {"test": (TEST[0][:2], np.array([0, 3]))},
            {"names": ("test", "3", "samples", "0")},
        ),
        ({"clients": [3]}, {"names": ("pairs", "data")}),
    ],
)
def test_a_mistake_is_one_line(change: dict[str, Any], fault: Fault) -> None:
    given = {"method": "fedavg", "model": "logistic", "clients": CLIENTS, "rounds": 1, **change}
    with refused(**fault):
        fr.train(**given)


def test_editors_know_the_types_of_everything_public() -> None:
    """What `__getattr__` finds, type checkers find in the imports for them."""
    tree = ast.parse(Path(fr.__file__).read_text(encoding="utf-8"))
    (block,) = (each for each in tree.body if isinstance(each, ast.If))
    imports = [each for each in block.body if isinstance(each, ast.ImportFrom)]
    found = {name.name: each.module for each in imports for name in each.names}
    assert found == {name: getattr(fr, name).__module__ for name in fr.__all__}


def test_methods_are_listed_and_their_room_stays_a_room() -> None:
    from fedrepro.methods import fedprox

    assert fr.methods().loc["fedprox", "hyperparameters"]["mu"] == 0.01
    assert isinstance(fedprox, type(json))
    assert {"train", "methods"} <= set(dir(fr))
    with pytest.raises(AttributeError):
        SimpleNamespace(name=fr.nothing)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Runs a notebook where it is: its variables. What is saved in it is what its cells show."""

    def play(name: str) -> dict[str, Any]:
        monkeypatch.setenv("FEDREPRO_METHODS", "")  # undone afterwards, also what a notebook sets
        space: dict[str, Any] = {}
        for cell, shown in script("notebooks").play(ROOT / "docs" / name, space):
            stored = [{**each, "execution_count": None} for each in cell["outputs"]]
            assert stored == [{**each, "execution_count": None} for each in shown], cell["source"]
        return space

    return play


def test_the_notebook_runs_from_arrays_to_a_curve(play: Any) -> None:
    accuracies = fr.compare(play("notebook.ipynb")["runs"])["mean"]
    assert list(accuracies.index) == ["fedavg", "fedprox", "scaffold"] and accuracies.min() > 0.75


def test_the_notebook_of_a_csv_file_scores_each_hospital(play: Any) -> None:
    means = fr.compare(play("notebook_data.ipynb")["runs"])["mean"]
    assert means["ditto"] > means["fedavg"] > 0.8


def test_the_notebook_of_an_own_method_plays_it(play: Any) -> None:
    means = fr.compare(play("notebook_method.ipynb")["runs"])["mean"]
    assert means["power 1"] == means["FedAvg"] < means["power 0.5"]


def test_the_notebook_of_a_claim_reads_what_landed(play: Any) -> None:
    """It reaches the lead that pages show."""
    space = play("notebook_claim.ipynb")
    papers, bench, target = published.load(ROOT), load_workbench(ROOT), space["table"]
    (claim,) = (each for each in papers.claims if each.name == space["claim"]["name"])
    computed = {("aaggff", target.item): tables.compute(bench, target, papers)}
    found = judge_compact(bench, claim, computed, 0.5)
    assert found and found.overall and found.overall.lead == pytest.approx(space["overall"].lead)
    assert space["overall"].is_above(0.0) == (found.word == Word.HOLDS)
    assert space["run"].method == space["ours"]


def test_a_model_that_sets_torch_s_default_dtype_is_refused() -> None:
    def made(shape: tuple[int, ...], classes: int) -> nn.Module:
        torch.set_default_dtype(torch.float64)
        return nn.Linear(shape[0], classes)

    with pytest.raises(UserError, match=r"torch\.set_default_dtype: torch\.float64"):
        fr.train("fedavg", made, CLIENTS, rounds=1)
    assert torch.get_default_dtype() is torch.float32
