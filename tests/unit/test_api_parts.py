"""Parts of `import fedrepro as fr`, each by what goes in and comes out: nothing is trained."""

import hashlib
import math
import random
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import fedrepro as fr
from fedrepro.api import callbacks, charts, given, surroundings, training
from fedrepro.engine.executor_facts import PER_CLIENT
from fedrepro.measures.base import Measure
from fedrepro.methods.fedavg import FedAvg
from fedrepro.run.runner import Progress
from fedrepro.support.errors import UserError
from fedrepro.support.plugins import NONE
from support.refusals import refused
from support.tiny_run import run_spec


def run_of(columns: dict[str, list[float]], seed: int = 1, diverged: int | None = None) -> fr.Run:
    about = {"run": {"setting": "own/arrays", "method": "m", "seed": seed}}
    about |= {"arithmetic": "per client"}  # type: ignore[dict-item]
    run = fr.Run(Path(), {**about, "diverged_at": diverged})
    length = len(next(iter(columns.values())))
    table = pd.DataFrame({"round": range(1, length + 1), **columns})
    vars(run)["_read"] = {"rounds.parquet": table}
    return run


# --- charts and comparisons -----------------------------------------------------------------------
@pytest.mark.parametrize("diverged", [None, 1, 3, 4, 9])
def test_a_curve_ends_before_the_round_in_which_its_run_diverged(diverged: int | None) -> None:
    """And leaves out what is not finite."""
    values = [0.5, math.nan, 0.25, math.inf, 0.75]
    found = charts.points_of(run_of({"x": values}, diverged=diverged), "x")
    wanted = [
        (number, value)
        for number, value in enumerate(values, 1)
        if math.isfinite(value) and number < (diverged or 99)
    ]
    assert [*found] == wanted


@pytest.mark.parametrize(
    ("tables", "score"),
    [
        ([{"test_accuracy": [0.5], "test_loss": [1.0]}] * 2, "test_accuracy"),
        ([{"test_accuracy": [0.5], "test_loss": [1.0]}, {"test_loss": [1.0]}], "test_loss"),
        ([{"test_accuracy": [math.nan], "test_loss": [1.0]}] * 2, "test_loss"),
        ([{"test_accuracy": [math.nan, 0.5]}, {"test_accuracy": [0.5]}], "test_accuracy"),
        ([{"test_loss": [1.0], "client_accuracy": [0.5]}] * 2, "client_accuracy"),
        ([{"client_accuracy": [0.5], "test_accuracy": [0.5]}] * 2, "test_accuracy"),
        ([{"test_accuracy": [0.5]}, {"client_accuracy": [0.5]}], None),
    ],
)
def test_the_score_is_one_that_all_runs_have(tables: list[Any], score: str | None) -> None:
    runs = iter([run_of(table) for table in tables])
    if score is None:
        with refused(key="runs"):
            charts.score_of(runs)
    else:
        assert charts.score_of(runs) == score


def test_of_several_groups_only_one_whose_seeds_all_diverged_at_once_is_left_out() -> None:
    good, gone = run_of({"x": [0.5, 0.75]}), run_of({"x": [0.5]}, 2, diverged=1)
    empty = run_of({"x": [math.nan]}, 3)
    lines, left = charts.lines_of({"a": [good], "b": [gone, gone]}, "x")
    assert [line.name for line in lines] == ["a"] and len(left) == 1
    for groups in ({"a": [good], "b": [gone, empty]}, {"a": [good], "b": [empty]}, {"b": [gone]}):
        with refused("missing", key="x"):
            charts.lines_of(groups, "x")
    # A seed without a number that did not diverge is missed in each round.
    with refused("missing", key="x"):
        charts.line_of("a", [good, empty], "x")
    assert charts.line_of("a", [good, gone], "x").points == [(1, 0.5), (2, 0.75)]


def test_a_comparison_averages_the_last_rounds_not_the_first() -> None:
    table = fr.compare({"a": run_of({"x": [1.0, 2.0, 6.0]}), "b": run_of({"x": [9.0, 0.0, 0.0]})},
                       of="x", last=2)  # fmt: skip
    assert table["mean"].tolist() == [4.0, 0.0] and table["gain"].tolist() == [0.0, -4.0]


def test_a_comparison_pairs_seeds_and_has_no_mean_of_what_diverged() -> None:
    """Groups of one method are numbered; without a seed in common, means are compared."""
    first = [run_of({"x": [1.0, 2.0]}, 1), run_of({"x": [3.0, 6.0]}, 2)]
    second = [run_of({"x": [0.0, 5.0]}, 2), run_of({"x": [9.0, 1.0]}, 1)]
    gone = [run_of({"x": [1.0, 2.0]}, 1), run_of({"x": [3.0, 6.0]}, 2, diverged=2)]
    other = [run_of({"x": [7.0]}, seed, diverged) for seed, diverged in ((3, None), (4, 1))]
    groups = [first, second, run_of({"x": [4.5]}, 3), gone, other]
    table = fr.compare(groups, of="x")
    assert table.index.name == "x" and [*table.index] == [f"m {number}" for number in range(1, 6)]
    assert table["seeds"].tolist() == [2, 2, 1, 2, 2]
    assert table["diverged"].tolist() == [0, 0, 0, 1, 1]
    nan = math.nan
    assert table["mean"].tolist() == pytest.approx([4, 3, 4.5, nan, nan], nan_ok=True)
    spreads = [math.sqrt(8), math.sqrt(8), nan, nan, nan]
    assert table["std"].tolist() == pytest.approx(spreads, nan_ok=True)
    assert table["gain"].tolist() == pytest.approx([0, -1, 0.5, nan, nan], nan_ok=True)
    scores = {"test_accuracy": [0.5], "test_loss": [3.0]}
    named = fr.compare({"a": run_of(scores), 7: [run_of(scores)]})  # type: ignore[dict-item]
    assert named.index.name == "test_accuracy" and [*named.index] == ["a", "7"]
    assert [*fr.compare([run_of(scores)]).index] == ["m"]
    for nothing in ([], {}, {"a": []}, {"a": first, "b": []}, [[]]):
        with refused("missing", key="runs"):
            fr.compare(nothing, of="x")  # type: ignore[arg-type]
    late = run_of({"x": [4.0]}, 3)
    late.manifest["arithmetic"] = "stacked"
    assert len(fr.compare([first, late], of="x")) == 2
    with refused("value", key="a", names=f"{PER_CLIENT}; stacked"):
        fr.compare({"a": [*first, late]}, of="x")


@pytest.mark.parametrize(
    ("column", "gain"),
    [("test_accuracy", 0.5), ("client_auroc", 0.5), ("own", 0.5), ("test_loss", -0.5),
     ("client_loss", -0.5), ("validation_mse", -0.5), ("client_ece", -0.5), ("ece", -0.5),
     ("bytes_up", -0.5), ("client_accuracy_std", -0.5)],
)  # fmt: skip
def test_a_gain_is_above_0_where_it_is_better(column: str, gain: float) -> None:
    low, high = run_of({column: [0.25]}), run_of({column: [0.75]})
    for other in (high, run_of({column: [0.75]}, seed=2)):  # also of other seeds
        assert fr.compare({"a": low, "b": other}, of=column)["gain"].tolist() == [0, gain]
    assert fr.compare([low], of=column)["mean"].tolist() == [0.25]


@pytest.mark.parametrize(
    ("key", "value"), [("average_across", "no"), ("average_across", 1), ("of", np.array([1, 2]))]
)
def test_runs_are_compared_by_a_column_across_machines_or_not(key: str, value: Any) -> None:
    with refused("value", key=key):
        fr.compare(run_of({"x": [1.0]}), **{"of": "x", key: value})


@pytest.mark.parametrize("last", [0, -1, 2.5, True, "2", 4])
def test_a_comparison_takes_as_many_last_rounds_as_each_run_has(last: Any) -> None:
    """-1 was all but the first, and of too many those that there are."""
    run = run_of({"x": [1.0, 2.0, 6.0]})
    with refused("value", key="last"):
        fr.compare({"a": run}, of="x", last=last)
    gone = run_of({"x": [1.0]}, diverged=1)
    assert fr.compare({"a": run, "b": gone}, of="x", last=3)["mean"].tolist()[0] == 3.0


def test_a_mean_over_rounds_of_which_one_has_no_number_is_none() -> None:
    table = fr.compare({"a": run_of({"x": [1.0, 2.0, math.nan]})}, of="x", last=2)
    assert table["mean"].isna().all()


def test_one_run_is_compared_and_what_is_no_run_is_refused() -> None:
    run = run_of({"x": [1.0]})
    assert fr.compare(run, of="x")["mean"].tolist() == [1.0]
    for other in ({"a": None}, [[[run]]], ["a"]):
        with refused("missing", key="runs"):
            fr.compare(other, of="x")  # type: ignore[arg-type]


def test_runs_of_a_list_differ_in_their_seed_and_in_nothing_else() -> None:
    """Each seed counted once, whatever else differed: three runs of one seed were a mean of one."""
    first, again, other = (run_of({"x": [float(seed)]}, seed) for seed in (0, 0, 1))
    other.manifest["run"] |= {"optimizer": {"lr": 0.5}, "rounds": 1}
    for show in (fr.compare, fr.plot):
        with refused("value", key="a: seed", value=0):
            show({"a": [first, again]}, of="x")
        show({"a": first, "b": other}, of="x")
        with refused("value", key="a: optimizer.lr"):  # a key that is left out has its default
            show({"a": [first, other]}, of="x")
        first.manifest["run"]["optimizer"] = {"lr": 0.1}
        with refused("value", key="a: optimizer.lr"):
            show({"a": [first, other]}, of="x")
        del first.manifest["run"]["optimizer"]


# --- what train is given --------------------------------------------------------------------------
def test_one_value_needs_no_list() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU())  # can be called, and iterated over
    for alone in (len, "word", module, 3, fr.Run):
        assert given.several(alone) == [alone]
    assert given.several(None) == [] and given.several((1, 2)) == [1, 2]
    assert given.several(each for each in "ab") == ["a", "b"]


def test_a_schedule_is_asked_for_each_round_from_0() -> None:
    asked: list[int] = []
    found = given.factors_of(lambda round: asked.append(round) or 1 / (1 + round), 4)
    assert asked == [0, 1, 2, 3] and found == [1.0, 1 / 2, 1 / 3, 1 / 4]
    assert given.factors_of(np.array([1.0, 0.5]), 9) == [1.0, 0.5]
    assert given.factors_of("cosine", 9) == "cosine" and given.factors_of(None, 9) is None


@pytest.mark.parametrize(
    ("name", "snake"),
    [("MyMethod", "my_method"), ("FedAvg2Plus", "fed_avg2_plus"), ("AFL", "afl"), ("X", "x")],
)
def test_a_class_is_called_in_small_letters(name: str, snake: str) -> None:
    assert given._snake(name) == snake


def test_a_run_has_one_end() -> None:
    stops = [fr.callbacks.EarlyStopping(patience=number) for number in (1, 2)]
    other = fr.callbacks.Callback()
    assert given.stop_of(None, [other]) is None and given.stop_of({"at": 1}, [other]) == {"at": 1}
    assert given.stop_of(None, [other, stops[0]]) == {"at": None, "patience": 1}
    for stop, each in (({"at": 1}, stops[:1]), (None, stops), ({"at": 1}, stops)):
        with refused(key="stop"):
            given.stop_of(stop, each)


@pytest.mark.parametrize("affine", [True, False])
def test_initial_weights_need_neither_counters_nor_what_is_frozen(affine: bool) -> None:
    def net() -> nn.Module:
        made = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, affine=affine), nn.Linear(4, 2))
        made[2].bias.requires_grad_(False).fill_(0.5)
        return made

    whole = net().state_dict()
    for missing in whole:
        rest = {name: leaf for name, leaf in whole.items() if name != missing}
        build = given.starting_from("x", lambda shape, outputs: net(), rest, 1)
        if missing in ("1.num_batches_tracked", "2.bias"):
            made = build((3,), 2)
            assert all(torch.equal(made.state_dict()[name], leaf) for name, leaf in rest.items())
        else:
            with refused("missing", key=f"initial.{missing}"):
                build((3,), 2)
    for wrong in ({"more": torch.zeros(1)}, {"0.weight": torch.zeros(4, 2)}):
        with refused("value", names=("initial", *wrong)):
            given.starting_from("x", lambda shape, outputs: net(), whole | wrong, 1)((3,), 2)


class OfShapes(nn.Module):
    def __init__(self, shape: Any, outputs: int = 2) -> None:
        super().__init__()
        self.told = shape, outputs


class Plain(nn.Module):
    def __init__(self, width: int = 5, depth: int = 1) -> None:
        super().__init__()
        self.told = width, depth


class Needs(nn.Module):
    def __init__(self, width: int, depth: int, more: int) -> None:
        super().__init__()


def of_both(shape: Any, outputs: int) -> nn.Module:
    return OfShapes(shape, outputs)


def of_none() -> nn.Module:
    return Plain()


@pytest.mark.parametrize(
    ("build", "told"),
    [(OfShapes, ((3,), 7)), (Plain, (5, 1)), (of_both, ((3,), 7)), (of_none, (5, 1)),
     (lambda a, b=1: Plain(a[0], b), (3, 7)), (lambda *both: Plain(*both), ((3,), 7))],
)  # fmt: skip
def test_a_model_s_function_gets_the_shape_and_the_outputs_if_it_takes_them(
    build: Any, told: Any
) -> None:
    assert given.builder(build)((3,), 7).told == told
    with refused(key="model", names="Needs"):
        given.builder(Needs)


def test_numbers_of_other_libraries_are_pythons_however_deep() -> None:
    found = given.as_in_files(
        {"a": np.int64(3), "b": [np.float32(0.5), {"c": (np.bool_(True),)}],
         "d": torch.device("cuda:1"), "e": "x", "f": None}
    )  # fmt: skip
    assert found == {"a": 3, "b": (0.5, {"c": (True,)}), "d": "cuda:1", "e": "x", "f": None}
    assert [type(value) for value in (found["a"], found["b"][0], found["d"])] == [int, float, str]


@pytest.mark.parametrize(
    ("sizes", "share", "validation", "alone"),
    [
        ([3, 1, 2], 0.2, 0.0, 1),
        ([3, 2, 2], 0.2, 0.0, None),
        ([3, 1, 2], 0.0, 0.0, None),
        ([1, 2], 0.5, 0.0, 0),
        ([3, 3, 2], 0.2, 0.2, 2),
        ([3, 3, 3], 0.2, 0.2, None),
        ([3, 1], 0.0, 0.2, 1),
        ([9, 3], 0.5, 0.3, 1),
        ([9, 4], 0.5, 0.3, None),
        ([16, 15], 0.9, 0.1, 1),
        ([16, 16], 0.9, 0.1, None),
    ],
)
def test_a_client_of_too_few_samples_holds_none_out(
    sizes: list[int], share: float, validation: float, alone: int | None
) -> None:
    group = np.repeat(np.arange(len(sizes)), sizes)
    dataset: Any = SimpleNamespace(train=SimpleNamespace(group=group))
    if alone is None:
        training._refuse_single(dataset, share, validation)
    else:
        with refused("value", key=f"clients.{alone}"):
            training._refuse_single(dataset, share, validation)


X, Y = np.eye(4, dtype="float32"), np.array([0, 1, 2, 0])
CLIENTS = [(X, Y), (X[:3], Y[:3]), (X[1:], Y[1:])]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SimpleNamespace]:
    """What `fr.train` would carry out, for some arguments; nothing is trained."""
    names = ("said", "spec", "dataset", "run", "report")
    told: list[SimpleNamespace] = []

    def carry_out(*arguments: Any) -> dict[str, Any]:
        told.append(SimpleNamespace(**dict(zip(names, arguments, strict=True))))
        return {}

    monkeypatch.setattr(training, "_carry_out", carry_out)

    def ask(method: Any = "fedprox", model: Any = "logistic", **arguments: Any) -> Any:
        fr.train(method, model, CLIENTS, rounds=4, **arguments)
        return told[-1]

    return ask


@pytest.mark.parametrize(
    ("arguments", "share", "scored"),
    [
        ({}, 0.2, True),
        ({"test": (X, Y)}, 0.0, False),
        ({"test": (X, Y), "test_fraction": 0.25}, 0.25, True),
        ({"test": (X, Y), "test_fraction": 0.0}, 0.0, False),
        ({"test_fraction": 0.0}, 0.0, False),
        ({"test_fraction": 0.5}, 0.5, True),
    ],
)
def test_clients_hold_out_what_is_asked_for_or_a_fifth_without_a_test_set(
    asked: Any, arguments: Any, share: float, scored: bool
) -> None:
    setting = asked(**arguments).spec.setting
    assert setting.partition.test_fraction == share and setting.evaluate.clients == scored


def test_each_argument_has_its_own_place_in_a_run(asked: Any, tmp_path: Path) -> None:
    usual = asked(test=(X, Y))
    assert (usual.said.folder, usual.said.overwrite, usual.spec.seed) == (None, False, 1)
    said = {
        "participation": 0.7, "epochs": 3, "batch_size": 2, "lr_decay": 0.5, "lr": 0.3,
        "weight_decay": 0.25, "evaluate_every": 2, "attack": {"kind": "sign_flip", "share": 0.4},
        "availability": {"dropout": 0.1}, "noise": {"kind": "pair", "rate": 0.2},
        "stop": {"at": 9.0}, "class_weights": [1.0, 2.0, 4.0],
    }  # fmt: skip
    one = asked(test=(X, Y), momentum=0.75, seed=7, overwrite=True, folder=tmp_path / "run", **said)
    setting, optimizer = one.spec.setting, one.spec.setting.optimizer
    assert (one.said.overwrite, one.run.folder) == (True, tmp_path / "run")
    assert (one.spec.seed, setting.rounds, setting.evaluate.every) == (7, 4, 2)
    kept = ("participation", "epochs", "batch_size", "lr_decay")
    assert [getattr(setting, key) for key in kept] == [said[key] for key in kept]
    assert (optimizer.lr, optimizer.momentum, optimizer.weight_decay) == (0.3, 0.75, 0.25)
    assert (setting.attack.share, setting.availability.dropout, setting.noise.rate) == (
        0.4, 0.1, 0.2
    )  # fmt: skip
    assert setting.stop.at == 9
    assert list(setting.class_weights) == [1, 2, 4]
    other = asked(optimizer="adam", betas=(0.5, 0.75), lr_schedule=[1.0, 0.5]).spec.setting
    adam = other.optimizer
    assert list(other.lr_schedule) == [1.0, 0.5] and (adam.name, tuple(adam.betas)) == (
        "adam",
        (0.5, 0.75),
    )
    size = usual.spec.data_size
    assert (size.train, size.classes, size.clients, tuple(size.shape)) == (10, 3, 3, (4,))
    assert len(usual.dataset.train) == 10 and usual.spec.setting.model == "logistic"
    state = {"head.weight": torch.zeros(3, 4), "head.bias": torch.ones(3)}
    changed = asked(initial=state)
    assert changed.spec.setting.model != "logistic"
    with refused("value", key="weights"):
        asked(initial=state, weights="draw")
    state["head.bias"].fill_(5.0)  # what it was given is what it begins with
    made = changed.run.architecture((4,), 3)
    assert made.state_dict()["head.bias"].tolist() == [1, 1, 1]


def test_hyperparameters_are_of_the_part_that_has_them(asked: Any) -> None:
    spec = asked("ima+fedprox", mu=0.5, window=3).spec
    assert spec.hyperparameters == {"ima": {"window": 3}, "fedprox": {"mu": 0.5}}
    assert spec.composition == "ima+fedprox"
    for method, values in (("fedprox+fedspeed", {"mu": 0.5}), ("fedprox", {"window": 3})):
        with refused("unknown_key", key=next(iter(values))):
            given.by_part(method, values, NONE, [])


def test_objects_have_their_kinds_and_names(asked: Any) -> None:
    """A loss, a function and a class as measures, and a method; more of a function is better."""

    def first_score(outputs: Any, targets: Any) -> float:
        return float(outputs[0, 0])

    class SecondScore(Measure):
        words, higher_is_better, per = "second", False, "client"

        def of_outputs(self, outputs: Any, targets: Any) -> float:
            return 1.0

    loss = nn.CrossEntropyLoss()
    spec = asked(loss=loss, measures=[first_score, SecondScore], test_fraction=0.4).spec
    kinds = [(kind, name) for kind, name, _ in spec.plugins.objects]
    assert kinds == [
        ("measures", "first_score"), ("measures", "second_score"), ("losses", "CrossEntropyLoss")
    ]  # fmt: skip
    assert spec.setting.loss == "CrossEntropyLoss" and spec.plugins.objects[2][2] is loss
    assert list(spec.setting.evaluate.measures) == ["first_score", "second_score"]
    function, own = (measure for _, _, measure in spec.plugins.objects[:2])
    assert (function.higher_is_better, function.words, function.per) == (
        True,
        "first score",
        "client",
    )
    assert own is SecondScore and function.of_outputs(np.array([[7.0]]), None) == 7
    none = asked().spec
    assert none.plugins.objects == () and none.setting.loss is None
    methods = [type(name, (FedAvg,), {}) for name in ("OneOfMine", "AnotherOne")]
    names, objects = given.composition_of(["ima", *methods])
    assert names == "ima+one_of_mine+another_one"
    assert [(kind, name) for kind, name, _ in objects] == [
        ("methods", "one_of_mine"), ("methods", "another_one")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "said"),
    [("fedavg", False), ("ima+fedavg", False), ("ditto", True), ("ima+ditto", True),
     ("local", False), ("fedper", False)],
)  # fmt: skip
def test_of_a_model_of_one_s_own_beside_the_shared_one_a_line_is_said(
    method: str, said: bool
) -> None:
    """Not where no model is shared, nor where clients keep a part of it."""
    assert bool(given.unscored(run_spec(method))) == said


def test_samples_that_are_not_shared_out_are_refused() -> None:
    data = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    for clients in (X, (X, Y), [X, Y], [X, *CLIENTS], data):
        with refused(key="clients"):
            given.clients_of(clients)
    for clients in (CLIENTS, tuple(CLIENTS), [data, data]):
        assert given.clients_of(clients) is clients
    assert given.clients_of(iter(CLIENTS)) == CLIENTS


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("weights", [None, "keep", "draw"])
def test_weights_of_a_module_are_drawn_if_nobody_has_set_them_or_if_asked(
    weights: Any, changed: bool
) -> None:
    module = nn.Linear(4, 3)
    if changed:
        nn.init.constant_(module.weight, 0.5)
    before = module.weight.clone()
    drawn = weights == "draw" or (weights is None and not changed)
    made = training._architecture(module, weights)((4,), 3)
    assert torch.equal(made.weight, before) != drawn

    def built(shape: Any, outputs: int) -> nn.Module:
        made = nn.Linear(*shape, outputs)
        nn.init.constant_(made.weight, 0.5)
        return made

    made = training._architecture(built, weights)((4,), 3)
    assert bool((made.weight == 0.5).all()) != (weights == "draw")


def test_torch_keeps_its_threads() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with surroundings.threads_kept():
            torch.set_num_threads(1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_file_that_a_run_does_not_list_is_none_of_it(tmp_path: Path) -> None:
    pd.DataFrame({"round": [1]}).to_parquet(tmp_path / "rounds.parquet")
    digest = hashlib.sha256((tmp_path / "rounds.parquet").read_bytes()).hexdigest()
    assert len(fr.Run(tmp_path, {"files": {"rounds.parquet": digest}}).rounds) == 1
    for files in ({}, {"rounds.parquet": "0" * 64}, {"clients.parquet": digest}):
        with pytest.raises(UserError):
            fr.Run(tmp_path, {"files": files}).rounds  # noqa: B018


# --- callbacks ------------------------------------------------------------------------------------
class Noting(fr.callbacks.Callback):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_round(self, progress: Progress) -> None:
        self.seen.append(progress.round)

    def on_evaluation(self, round: int, scores: Any) -> None:
        self.seen.append((round, dict(scores)))

    def on_end(self, run: Any) -> None:
        self.seen.append(run)


def test_an_evaluation_is_told_only_in_its_round_and_to_each_callback() -> None:
    each = [Noting(), Noting()]
    several = callbacks.Several(each)
    for number in (1, 2, 3):
        scores = {"test_loss": 1 / number} if number != 2 else {}
        several.on_round(Progress(number, 3, 1.0, 0.0, 0.0, scores))
    several.on_end("end")  # type: ignore[arg-type]
    wanted = [1, (1, {"test_loss": 1.0}), 2, 3, (3, {"test_loss": 1 / 3}), "end"]
    assert [one.seen for one in each] == [wanted, wanted]


def test_what_a_callback_does_to_its_scores_no_other_sees() -> None:
    class Emptying(fr.callbacks.Callback):
        def on_round(self, progress: Progress) -> None:
            progress.scores.clear()  # type: ignore[attr-defined]

        def on_evaluation(self, round: int, scores: Any) -> None:
            scores.clear()

    noting, scores = Noting(), {"test_loss": 1.0}
    callbacks.Several([Emptying(), noting]).on_round(Progress(1, 1, 1.0, 0.0, 0.0, scores))
    assert noting.seen == [1, (1, {"test_loss": 1.0})]
    assert scores == {"test_loss": 1.0}


def test_a_bar_shows_the_round_and_the_score_that_clients_have_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []

    class Bar:
        def __init__(self, **_: Any) -> None:
            told.append("made")

        def start(self) -> None:
            told.append("start")

        def stop(self) -> None:
            told.append("stop")

        def add_task(self, _: str, total: int) -> int:
            told.append(total)
            return 7

        def update(self, task: int, completed: int, description: str | None) -> None:
            told.append((task, completed, description))

    monkeypatch.setattr(callbacks, "Bar", Bar)
    bar = fr.callbacks.ProgressBar()
    bar.on_end(None)  # type: ignore[arg-type]  # of a run that was there
    for number, scores in (
        (1, {}), (2, {"test_loss": 0.5, "test_accuracy": 0.25}),
        (3, {"test_accuracy": 0.25, "client_accuracy": 0.75}),
    ):  # fmt: skip
        bar.on_round(Progress(number, 3, 1.0, 0.0, 0.0, scores))
    bar.on_end(None)  # type: ignore[arg-type]
    assert told == [
        "made", "start", 3, (7, 1, None), (7, 2, "test accuracy 0.25"),
        (7, 3, "client accuracy 0.75"), "stop",
    ]  # fmt: skip


@pytest.mark.parametrize("finished", [True, False])
def test_a_tool_is_told_whether_the_run_has_finished(
    monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    told: list[Any] = []
    tracker = SimpleNamespace(log=lambda *of: told.append(of), close=told.append)
    monkeypatch.setattr(
        callbacks, "tracker_of", lambda tool, root, spec: told.append(tool) or tracker
    )
    for kind, tool in ((fr.callbacks.TensorBoard, "tensorboard"), (fr.callbacks.MLflow, "mlflow")):
        told.clear()
        callback = kind()
        callback._begin(None)  # type: ignore[arg-type]
        callback.on_evaluation(2, {"x": 1.0})
        callback.on_end(SimpleNamespace(finished=finished))  # type: ignore[arg-type]
        assert told == [tool, (2, {"x": 1.0}), finished]


class Drawn(nn.Module):
    """A frozen layer with drawn weights, a constant buffer, and two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.register_buffer("shift", torch.tensor([0.1, 0.2, 0.3]))
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.other.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.other(self.one(self.frozen(x + self.shift)))
        return out


def test_a_run_s_file_begins_another_one_with_the_same_frozen_weights(tmp_path: Path) -> None:
    data = {"clients": [(np.eye(3, dtype="f4"), np.arange(3))], "rounds": 1, "lr": 1e-9}
    test = data["clients"][0]
    first = fr.train("fedavg", Drawn, seed=1, test=test, folder=tmp_path / "run", **data)
    file = tmp_path / "run/model.safetensors"
    again = fr.train("fedavg", Drawn, seed=1, test=test, initial=file, **data)
    assert torch.equal(again.model(torch.eye(3)), first.model(torch.eye(3)))
    for initial, lacking in ((file, "frozen.weight"), (load_file(file), "frozen.bias")):
        with refused(names=lacking):
            fr.train("fedavg", Drawn, seed=2, test=test, initial=initial, **data)


@pytest.mark.parametrize("model", ["logistic", "twonn"])
def test_a_run_moves_no_generator_of_its_caller(model: str) -> None:
    states = []
    for called in (False, True):
        torch.manual_seed(0), np.random.seed(0), random.seed(0)  # noqa: NPY002
        if called:
            x, y = np.eye(3, dtype="f4"), np.arange(3)
            fr.train("fedavg", model, [(x, y)], rounds=1, test=(x, y))
        states.append((torch.rand(1).item(), np.random.rand(), random.random()))  # noqa: NPY002
    assert states[0] == states[1]


def test_sparse_embeddings_are_refused() -> None:
    net = nn.Sequential(nn.EmbeddingBag(20, 4, sparse=True), nn.Linear(4, 2))
    x, y = np.arange(40).reshape(8, 5) % 20, np.arange(8) % 2
    with refused(key="0.sparse", value=True):
        fr.train("fedavg", net, [(x, y)], rounds=1)


@pytest.mark.parametrize(
    "sample", [torch.ones(3, dtype=torch.bfloat16), torch.ones(3, requires_grad=True)]
)
def test_samples_that_are_no_arrays_are_refused(sample: torch.Tensor) -> None:
    with refused():
        fr.train("fedavg", "logistic", [[(sample, label % 2) for label in range(8)]], rounds=1)


def test_a_measure_of_clients_needs_their_test_samples() -> None:
    samples = np.eye(4, dtype="f4"), np.arange(4) % 2
    with refused(key="test_fraction", names="half"):

        def half(outputs: object, targets: object) -> float:
            return 0.5

        fr.train("fedavg", "logistic", [samples], rounds=1, test=samples, measures=half)


CHANGES = {
    "attack": {"attack": {"kind": "sign_flip", "share": 0.5, "scale": 5}},
    "availability": {"availability": {"dropout": 0.5}},
    "schedule": {"lr_schedule": "cosine"},
    "class weights": {"class_weights": [1.0, 2.0]},
    "stop": {"stop": {"at": 99}},
    "rate": {"lr": 0.25},
    "loss": {"loss": "squared"},
    "data": {"clients": "other"},
    "test samples": {"test": "other"},
}


def _squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return ((outputs.softmax(-1)[:, 1] - targets) ** 2).mean()


@pytest.mark.parametrize("name", CHANGES)
def test_runs_that_differ_in_more_than_their_seed_are_not_averaged(name: str) -> None:
    x = np.eye(4, dtype="f4")
    samples, other = (x, np.arange(4) % 2), (2 * x, np.arange(4) % 2)

    def run(seed: int, **changes: Any) -> fr.Run:
        said = {"clients": [samples, samples], "test": samples, "rounds": 1, **changes}
        said |= {
            key: other if key == "test" else [other] * 2 for key in said if said[key] == "other"
        }
        said |= {"loss": _squared} if "loss" in changes else {}
        return fr.train("fedavg", "logistic", seed=seed, **said)

    one, two, changed = run(1), run(2), run(2, **CHANGES[name])
    elsewhere = name in ("data", "test samples")  # what they are scored on is other
    with pytest.warns(UserWarning, match="other data") if elsewhere else nullcontext():
        assert fr.compare({"a": [one, two], "b": [changed]})["seeds"].tolist() == [2, 1]
    for group in ([one, changed], [changed, one]):
        for ask in (fr.compare, fr.plot):
            with refused("value"):
                ask({"a": group})


def test_groups_of_one_name_are_refused() -> None:
    run = run_of({"x": [1.0]})
    with refused(key="runs"):
        fr.compare({1: run, "1": run}, of="x")  # type: ignore[dict-item]
