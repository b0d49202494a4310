"""Arguments of `fr.train` that a training loop has: schedule, callbacks, initial weights, stop."""

import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import fedrepro as fr
from fedrepro.api import callbacks
from fedrepro.engine.context import Context
from fedrepro.engine.method import Method, Wrapper
from fedrepro.engine.tree import Tree
from fedrepro.measures.base import Measure
from fedrepro.run.runner import Progress
from fedrepro.support.errors import UserError
from support.places import ROOT
from support.refusals import refused

RANDOM = np.random.default_rng(0)


def samples(n: int) -> tuple[Any, Any]:
    y = RANDOM.integers(0, 3, n)
    return (np.eye(3)[y] + 0.5 * RANDOM.normal(size=(n, 3))).astype(np.float32), y


CLIENTS, TEST = [samples(30), samples(24), samples(40), samples(26)], samples(50)


def train(method: Any = "fedavg", model: Any = "logistic", **more: Any) -> fr.Run:
    given = {"clients": CLIENTS, "rounds": 4, "test": TEST, **more}
    return fr.train(method, model, given.pop("clients"), **given)


@pytest.mark.parametrize(
    ("given", "rates"),
    [
        ({"lr_decay": 0.5}, [0.1, 0.05, 0.025, 0.0125]),
        ({"lr_decay": {"factor": 0.5, "every": 2}}, [0.1, 0.1, 0.05, 0.05]),
        ({"lr_schedule": [1, 0.5]}, [0.1, 0.05, 0.05, 0.05]),
        ({"lr_schedule": lambda round: 1 / (1 + round)}, [0.1, 0.05, 0.1 / 3, 0.025]),
        ({"lr_schedule": "cosine"}, [0.05 * (1 + math.cos(math.pi * at / 4)) for at in range(4)]),
    ],
)
def test_the_rate_follows_a_schedule(given: dict[str, Any], rates: list[float]) -> None:
    run = train(**given)
    assert run.rounds["learning_rate"].tolist() == pytest.approx(rates)
    assert not run.rounds["test_loss"].equals(train().rounds["test_loss"])


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("scaffold", {}),
        ("ima+scaffold", {}),
        ("qfedavg", {}),
        ("pfedme", {"inner_steps": 1, "test_fraction": 0.2}),
    ],
)
def test_a_method_that_divides_by_the_rate_takes_none_of_0(
    method: str, given: dict[str, Any]
) -> None:
    with refused("value", key="lr_schedule", value=0.0):
        train(method, lr_schedule=[1, 0, 1], **given)


def test_keys_of_experiment_files_are_arguments() -> None:
    known = train().rounds
    for given in (
        {"attack": {"kind": "sign_flip", "share": 0.5}},
        {"availability": {"dropout": 0.5}},
        {"noise": {"kind": "pair", "rate": 0.5}},
        {"lr_schedule": "cosine"},
    ):
        run = train(**given)
        (key,) = given
        assert key in run.manifest["run"]
        assert not run.rounds["test_loss"].equals(known["test_loss"])


def test_what_is_not_said_is_not_in_the_description() -> None:
    new = {"attack", "availability", "noise", "stop", "loss", "class_weights", "lr_schedule"}
    assert not new & train(rounds=1).manifest["run"].keys()


class Watch(fr.callbacks.Callback):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_round(self, progress: Progress) -> None:
        self.seen.append(progress.round)

    def on_evaluation(self, round: int, scores: Mapping[str, float]) -> None:
        self.seen.append((round, scores["test_loss"]))

    def on_end(self, run: fr.Run) -> None:
        self.seen.append(run.rounds["round"].tolist())


def test_callbacks_see_rounds_evaluations_and_the_end(tmp_path: Path) -> None:
    watch = Watch()
    given: dict[str, Any] = {"evaluate_every": 2, "folder": tmp_path / "run"}
    run = train(callbacks=[watch, fr.callbacks.ProgressBar()], **given)
    two, four = run.rounds["test_loss"]
    assert watch.seen == [1, 2, (2, two), 3, 4, (4, four), [2, 4]]
    assert run.manifest["run"] == train(evaluate_every=2).manifest["run"]
    again = Watch()
    train(callbacks=[again], **given)
    assert again.seen == [[2, 4]]  # a finished run is reused


def test_a_tool_gets_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[Any] = []

    class Tracker:
        def log(self, round: int, scores: Mapping[str, float]) -> None:
            logged.append((round, scores["test_loss"]))

        def close(self, finished: bool) -> None:
            logged.append(finished)

    monkeypatch.setattr(callbacks, "tracker_of", lambda tool, root, spec: Tracker())
    run = train(rounds=2, callbacks=[fr.callbacks.TensorBoard()])
    assert logged == [*zip([1, 2], run.rounds["test_loss"], strict=True), True]
    with pytest.raises(UserError, match="callbacks"):
        train(callbacks=[print])


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interrupted_or_failed_run_closes_its_tools_and_bar(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Also those beside the callback that fails. A run that has finished is told as such."""
    closed: list[Any] = []

    class Tracker:
        def log(self, round: int, scores: Mapping[str, float]) -> None:
            pass

        def close(self, finished: bool) -> None:
            closed.append(finished)

    class Failing(fr.callbacks.Callback):
        def __init__(self, at_end: bool) -> None:
            self.at_end = at_end

        def on_round(self, progress: Any) -> None:
            if progress.round == 2 and not self.at_end:
                raise error

        def on_end(self, run: Any) -> None:
            raise error

    monkeypatch.setattr(callbacks, "tracker_of", lambda tool, root, spec: Tracker())
    for at_end, told in ((False, [False, False]), (True, [True, True])):
        closed.clear()
        bar, tools = fr.callbacks.ProgressBar(), (fr.callbacks.MLflow(), fr.callbacks.TensorBoard())
        with pytest.raises(error):
            train(rounds=3, callbacks=[bar, tools[0], Failing(at_end), tools[1]])
        assert closed == told and bar._bar is None


def test_paths_of_the_user_s_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(elsewhere)
    assert fr.callbacks.TensorBoard("~/logs")._root == home / "logs"
    run = train(rounds=2, folder="~/kept")
    assert fr.load("~/kept").rounds.equals(run.rounds)
    train(rounds=1, initial="~/kept/model.safetensors")
    fr.plot(run).save("~/curve.svg")
    assert {path.name for path in home.iterdir()} == {"kept", "curve.svg"}
    assert not [*elsewhere.iterdir()]


@pytest.mark.parametrize("what", [".", "", "/", None, 3, ["a"], "nope"])
def test_what_is_no_run_s_folder_is_refused(
    what: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with refused():
        fr.load(what)


def test_a_program_may_run_in_the_root_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(rounds=1, folder=tmp_path / "run")
    monkeypatch.chdir("/")
    assert fr.load(tmp_path / "run").rounds.equals(run.rounds)
    assert fr.callbacks.MLflow()._root == fr.callbacks.TensorBoard("/")._root == Path("/")


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    exec(compile(block, "api.md", "exec", dont_inherit=True), {"__name__": "page"})
    assert len(capsys.readouterr().out.splitlines()) >= 1


@pytest.mark.parametrize(
    "given",
    [
        {"stop": {"measure": "accuracy", "at": 40}},
        {"callbacks": [fr.callbacks.EarlyStopping("accuracy", at=40)]},
    ],
)
def test_a_run_ends_at_a_score(given: dict[str, Any]) -> None:
    run = train(rounds=30, lr=0.5, **given)
    accuracies = run.rounds["test_accuracy"].tolist()
    assert len(accuracies) < 30
    assert accuracies[-1] >= 0.4 > max(accuracies[:-1], default=0)
    assert run.manifest["run"]["stop"] == {"measure": "accuracy", "at": 40.0}


def test_a_run_does_not_end_by_a_measure_that_no_round_has_a_number_of() -> None:
    """R² needs two test samples of a client; without any, nothing improves."""
    x, y = np.random.default_rng(0).normal(size=(2, 10))
    clients = [(x[:5, None], y[:5]), (x[5:, None], y[5:])]
    given: dict[str, Any] = {"rounds": 4, "task": "regression"}
    stop = {"measure": "r2", "patience": 2}
    with refused("value", key="stop.measure", value="r2", names="3"):
        fr.train("fedavg", "logistic", clients, stop=stop, **given)
    two = [(x[:, None], y)]  # test samples
    assert len(fr.train("fedavg", "logistic", two, stop=stop, **given).rounds) >= 3
    at = fr.train("fedavg", "logistic", clients, stop={"measure": "r2", "at": 1}, **given)
    assert len(at.rounds) == 4


@pytest.mark.parametrize(
    "given", [{"stop": {"patience": 1}}, fr.callbacks.EarlyStopping(patience=1)]
)
def test_a_regression_stops_by_its_loss(given: Any) -> None:
    """Nothing is accurate there."""
    clients = [(x, x.sum(1)) for x, _ in CLIENTS]
    more = given if isinstance(given, dict) else {"callbacks": given}
    run = train(clients=clients, test=clients[0], task="regression", lr=1.5, rounds=9, **more)
    assert run.manifest["run"]["stop"] == {"measure": "loss", "patience": 1}
    assert len(run.rounds) < 9


@pytest.mark.parametrize("at", [0.5, 3.0, 250.0])
def test_a_regression_ends_at_a_loss_of_any_size(at: float) -> None:
    clients = [(x, x.sum(1) * at) for x, _ in CLIENTS]
    given = {"clients": clients, "test": clients[0], "task": "regression", "rounds": 3}
    runs = [train(**given, stop={**measure, "at": at}) for measure in ({}, {"measure": "loss"})]
    assert runs[0].rounds.equals(runs[1].rounds)
    assert runs[0].manifest["run"]["stop"] == {"measure": "loss", "at": at}


def test_validation_samples_stop_a_run() -> None:
    run = train(validation=0.3, stop={"measure": "loss", "at": 0.8}, rounds=30)
    losses = run.rounds["validation_loss"].tolist()
    assert len(losses) < 30
    assert losses[-1] <= 0.8 < min(losses[:-1])
    assert run.manifest["run"]["partition"]["validation"] == 0.3
    assert "validation" not in train(rounds=1).manifest["run"]["partition"]


def test_one_needs_no_list_and_an_iterator_is_one() -> None:
    watch = Watch()
    one = train(callbacks=watch, measures=hinge, clients=iter(CLIENTS), test=None)
    several = train(callbacks=[watch], measures=[hinge], test=None)
    assert "test_hinge" in one.rounds and one.rounds.equals(several.rounds)
    assert len(watch.seen) == 2 * (4 + 4 + 1)
    assert train(callbacks=None, measures=None).rounds.equals(train().rounds)


@pytest.mark.parametrize(
    ("method", "test", "warned"),
    [
        ("ditto", TEST, True),
        ("ditto", None, False),
        ("fedper", TEST, True),
        ("local", TEST, False),  # it has no shared model to score
        ("fedavg", TEST, False),
    ],
)
def test_a_run_says_that_it_stops_by_a_model_of_no_client(
    method: str, test: Any, warned: bool
) -> None:
    given = {"test": test, "test_fraction": 0.2, "stop": {"patience": 2}, "rounds": 2}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        train(method, "twonn", **given)
    assert any("stop" in str(each.message) for each in said) == warned


def test_two_ends_are_refused() -> None:
    with refused("value", key="stop"):
        train(stop={"at": 90}, callbacks=[fr.callbacks.EarlyStopping(patience=3)])


def test_training_begins_with_given_weights(tmp_path: Path) -> None:
    first = train(rounds=2)
    state = first.model.state_dict()
    file = tmp_path / "weights.safetensors"
    save_file({name: leaf.clone() for name, leaf in state.items()}, file)
    for initial in (state, file, first.folder / "model.safetensors"):
        still = train(rounds=1, lr=1e-30, initial=initial)
        for one, other in zip(still.model.parameters(), first.model.parameters(), strict=True):
            assert torch.allclose(one, other)
    module = nn.Linear(3, 3)
    given = {"weight": torch.ones(3, 3), "bias": torch.zeros(3)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing of the module's own weights, which nobody uses
        replaced = train(model=module, rounds=1, lr=1e-30, initial=given).model
    assert torch.allclose(replaced.weight, given["weight"])
    folder = tmp_path / "run"
    train(rounds=1, folder=folder, initial=state)
    assert train(rounds=1, folder=folder, initial=file).folder == folder  # the same weights
    with pytest.raises(UserError):
        train(rounds=1, folder=folder, initial={name: 2 * leaf for name, leaf in state.items()})


@pytest.mark.parametrize(
    "around",
    [nn.Sequential, lambda trained: nn.Sequential(*trained), lambda trained: Ours(trained[0])],
)
def test_trained_layers_keep_their_weights_in_another_module(around: Any) -> None:
    network = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 3))
    trained = train(model=network, lr=0.02, weights="keep").model
    body = trained[0].weight.clone()
    again = train(model=around(trained), rounds=1, lr=1e-30)
    assert any(torch.equal(leaf, body) for leaf in again.model.parameters())


class Ours(nn.Module):
    """A trained body and a new head."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(x))
        return out


@pytest.mark.parametrize(
    "initial",
    [
        3,
        "missing.safetensors",
        {"weight": torch.ones(3, 3)},
        {"weight": torch.ones(3, 3), "bias": torch.ones(4)},
        {"weight": torch.ones(3, 3), "bias": torch.ones(3), "more": torch.ones(1)},
        {"weight": np.ones((3, 3)), "bias": np.ones(3)},
        {"state_dict": {"weight": torch.ones(3, 3), "bias": torch.ones(3)}},
        {"weight": torch.ones(3, 3).to_sparse(), "bias": torch.ones(3)},
        {"weight": torch.ones(3, 3, device="meta"), "bias": torch.ones(3)},
        {"weight": torch.ones(3, 3, dtype=torch.complex64), "bias": torch.ones(3)},
    ],
)
def test_other_weights_are_refused(initial: Any) -> None:
    with refused(names="initial"):
        train(model=nn.Linear(3, 3), initial=initial)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_refused(value: float) -> None:
    """Given, or in a module as it was loaded: a run would say that it diverged."""
    module = nn.Linear(3, 3)
    given = {"weight": torch.ones(3, 3), "bias": torch.tensor([0.0, value, 0.0])}
    with refused(code="value", key="bias"):
        train(model=module, initial=given)
    module.load_state_dict(given)
    with refused(code="value", key="bias"):
        train(model=module)


def test_a_pickled_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_bytes(b"PK\x03\x04" + bytes(100))
    with refused("unreadable", key="initial", names="safetensors"):
        train(initial=tmp_path / "weights.pt")


def hinge(outputs: Any, targets: Any) -> float:
    return float((outputs.argmax(1) == targets).mean() - 0.5)


class MacroRecall(Measure):
    words, unit, higher_is_better, per = "macro recall", "%", True, "client"

    def of_outputs(self, outputs: Any, targets: Any) -> float:
        hit = outputs.argmax(axis=1) == targets
        return float(np.mean([hit[targets == label].mean() for label in np.unique(targets)]))


def test_measures_are_functions_or_classes() -> None:
    run = train(test=None, measures=[hinge, MacroRecall])
    pd.testing.assert_series_equal(
        run.clients["hinge"], run.clients["accuracy"] - 0.5, check_names=False
    )
    assert run.clients["macro_recall"].between(0, 1).all()
    assert "hinge" in train(test=None, measures=partial(hinge)).clients
    assert run.manifest["run"]["evaluate"]["measures"] == ["hinge", "macro_recall"]
    with pytest.raises(UserError, match="measures"):
        train(test=None, measures=[3])
    with pytest.raises(UserError, match="test_fraction"):
        train(measures=[hinge])  # clients have no test samples


class OwnGenerator(Measure):
    words, higher_is_better, per = "own generator", True, "round"
    random = np.random.default_rng(0)

    def of_outputs(self, outputs: Any, targets: Any) -> float:
        return float(self.random.random())


class Misspelt(Measure):
    words, higher_is_better, per = "misspelt", True, "client"

    def of_output(self, outputs: Any, targets: Any) -> float:
        return 1.0


class Late(fr.callbacks.Callback):
    def on_round_end(self, progress: Progress) -> None:
        raise AssertionError


class Short(fr.callbacks.Callback):
    def on_evaluation(self, round: int) -> None:  # type: ignore[override]
        raise AssertionError


def shuffles(outputs: Any, targets: Any) -> float:
    np.random.shuffle(np.arange(3))  # noqa: NPY002
    return 1.0


@pytest.mark.parametrize(
    "given",
    [
        {"measures": shuffles, "test": None},
        {"measures": lambda outputs, targets: float(torch.rand(())), "test": None},
        {"measures": lambda outputs, targets: np.random.default_rng().random(), "test": None},
        {"measures": OwnGenerator},
        {"hook": None, "measures": Misspelt},
        {"hook": None, "callbacks": Late()},
        {"hook": None, "callbacks": Short()},
        {"loss": nn.CrossEntropyLoss},
        {"loss": nn.MSELoss(), "clients": [(x, y % 2) for x, y in CLIENTS], "test": None},
        {"lr_schedule": torch.optim.lr_scheduler.StepLR},
    ],
)
def test_what_would_be_another_number_or_none_is_refused(given: dict[str, Any]) -> None:
    word = next(iter(given)).removesuffix("s")
    given.pop("hook", None)
    with pytest.raises(UserError, match=word):
        train(model=linear, **given)


def test_a_loss_of_some_samples_of_a_batch_is_refused() -> None:
    """Even if it returns as many losses as there are few samples: it is tried with more."""

    def hardest(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none").topk(2).values

    with refused("value", file="loss hardest", key="result"):
        train(model=linear, loss=hardest)


def test_outputs_of_low_precision_are_measured() -> None:
    class Low(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).bfloat16()

    run = train(model=Low(3, 3), test=None)
    assert run.rounds["client_top5"].iloc[-1] == 1.0


def linear(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Linear(3, outputs)


def test_a_measure_may_draw_from_a_seed() -> None:
    def drawn(outputs: Any, targets: Any) -> float:
        return float(np.random.default_rng(0).random())

    assert set(train(measures=drawn, test=None).clients["drawn"]) == {drawn(0, 0)}


@pytest.mark.parametrize(
    "given",
    [
        {"lr_schedule": "linear"},
        {"lr_schedule": []},
        {"lr_schedule": [1.0], "lr_decay": 0.5},
        {"lr_schedule": [-1.0]},
        {"attack": {"kind": "sign"}},
        {"availability": 3},
        {"stop": {"at": 0.5}},
        {"weights": "draw", "initial": {}},
        {"weights": "keep"},
        {"measures": [partial(hinge, targets=0), partial(hinge, targets=1)], "test": None},
    ],
)
def test_wrong_values_are_refused_by_their_key(given: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(given))):
        train(**given)


# --- a method of the program -------------------------------------------------------------------
@dataclass(frozen=True)
class MyProx(Method):
    """FedProx, written again."""

    pull: float = 0.0

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> torch.Tensor:
        before = super().loss(ctx, message, client_state, params, batch)
        gap = sum(((leaf - message["params"][name]) ** 2).sum() for name, leaf in params.items())
        return before + self.pull / 2 * gap


def test_a_method_is_a_class_of_the_program(tmp_path: Path) -> None:
    mine = train(MyProx, pull=2.0, folder=tmp_path / "run")
    assert mine.method == "my_prox"
    known = train("fedprox", mu=2.0).rounds
    pd.testing.assert_frame_equal(mine.rounds, known, check_like=True, rtol=1e-4)
    assert not np.allclose(known["test_loss"], train(MyProx).rounds["test_loss"], rtol=1e-4)
    again = train(MyProx, pull=2.0, folder=tmp_path / "run")
    assert again.manifest == mine.manifest
    with pytest.raises(UserError):
        train(MyProx, pull=1.0, folder=tmp_path / "run")
    composed = train(["ima", MyProx, "fedadam"], pull=2.0)
    assert composed.method == "ima+my_prox+fedadam"
    pd.testing.assert_frame_equal(
        composed.rounds, train("ima+fedprox+fedadam", mu=2.0).rounds, rtol=1e-4
    )


def test_another_body_is_another_method(tmp_path: Path) -> None:
    def method(by: float) -> type[Method]:
        @dataclass(frozen=True)
        class Slow(Method):
            def learning_rate(self, ctx: Context, round: int) -> float:
                return by * ctx.schedule(round)

        return Slow

    first = train(method(0.5), rounds=1, folder=tmp_path / "run")
    assert first.rounds["learning_rate"].tolist() == [0.05]
    assert train(method(0.5), rounds=1, folder=tmp_path / "run").manifest == first.manifest
    with pytest.raises(UserError):
        train(method(0.25), rounds=1, folder=tmp_path / "run")


def test_a_module_with_a_method_is_one() -> None:
    module = ModuleType("mine")
    code = (
        "from dataclasses import dataclass\nfrom fedrepro.engine.method import Method\n"
        "@dataclass(frozen=True)\nclass Plain(Method):\n    pass\n"
    )
    exec(code, vars(module))
    assert train(module).rounds["test_loss"].equals(train().rounds["test_loss"])


def misspelt() -> type[Method]:
    @dataclass(frozen=True)
    class Misspelt(Method):
        def client_updates(self, ctx: Context) -> None:
            pass

    return Misspelt


def of_others() -> type[Method]:
    @dataclass(frozen=True)
    class OfOthers(Method):
        def aggregate(self, server: Tree, results: Tree) -> Tree:
            return server

    return OfOthers


def undecorated() -> type[Method]:
    class Undecorated(Method):
        pull: float = 1.0

    return Undecorated


def impure() -> type[Method]:
    @dataclass(frozen=True)
    class Impure(Method):
        def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Any) -> Tree:
            server["params"] = {}
            return super().server_update(ctx, server, updates, weights)

    return Impure


COUNTED: list[int] = []


def counts_outside() -> type[Method]:
    @dataclass(frozen=True)
    class Counts(Method):
        def learning_rate(self, ctx: Context, rate: float) -> float:
            COUNTED.append(ctx.round)
            return super().learning_rate(ctx, rate)

    return Counts


def counts_inside() -> type[Method]:
    counted: list[int] = []

    class Base(Method):
        kept = counted

    @dataclass(frozen=True)
    class Counts(Base):
        def learning_rate(self, ctx: Context, rate: float) -> float:
            self.kept.append(ctx.round)
            return super().learning_rate(ctx, rate)

    return Counts


def counts_around() -> type[Method]:
    counted: list[int] = []

    @dataclass(frozen=True)
    class Counts(Method):
        def learning_rate(self, ctx: Context, rate: float) -> float:
            [counted.append(ctx.round) for _ in range(1)]
            return super().learning_rate(ctx, rate)

    return Counts


@pytest.mark.parametrize("method", [counts_outside(), counts_inside(), counts_around()])
def test_a_class_that_keeps_something_elsewhere_is_refused_like_a_file(method: Any) -> None:
    with refused(key="learning_rate"):
        train(method)


FedProx = dataclass(frozen=True)(type("fedprox", (Method,), {"__module__": __name__}))


def per_sample() -> type[Method]:
    """Gradients of each sample, as private training clips them."""

    @dataclass(frozen=True)
    class PerSample(Method):
        def gradient(
            self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
        ) -> Tree:
            def one(trained: Tree, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                sample = {"x": x[None], "y": y[None]}
                return self.loss(ctx, message, client_state, {**params, **trained}, sample)

            of_each = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0, 0))
            found = of_each(ctx.net.trainable(params), batch["x"], batch["y"])
            return {name: leaf.mean(0) for name, leaf in found.items()}

    return PerSample


LARGE = [*range(300_000)]
ADJACENT = torch.eye(3).to_sparse()
LAZY, NOWHERE = torch.nn.LazyLinear(3), torch.nn.Linear(2, 2, device="meta")


def reading() -> type[Method]:
    @dataclass(frozen=True)
    class Reading(Method):
        def learning_rate(self, ctx: Context, round: int) -> float:
            assert len(LARGE) and ADJACENT.is_sparse and LAZY and NOWHERE
            return super().learning_rate(ctx, round)

    return Reading


@pytest.mark.parametrize("method", [per_sample(), reading()])
def test_a_method_may_read_anything_and_differentiate_its_loss(method: Any) -> None:
    losses = [train(each, weights="draw").rounds["test_loss"] for each in (method, "fedavg")]
    np.testing.assert_allclose(losses[0], losses[1], atol=1e-6)


def test_a_method_may_work_side_by_side_only() -> None:
    @dataclass(frozen=True)
    class Padded(Method):
        def loss(
            self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
        ) -> torch.Tensor:
            assert batch["real"].ndim == 1
            return super().loss(ctx, message, client_state, params, batch)

    ours, theirs = (
        train(each, executor="vectorised").rounds["test_loss"] for each in (Padded, "fedavg")
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def reporting(numbers: dict[Any, Any]) -> type[Method]:
    @dataclass(frozen=True)
    class Reporting(Method):
        def metrics(self, ctx: Context, server: Tree) -> Any:
            return numbers

    return Reporting


@pytest.mark.parametrize(
    "numbers",
    [{"test_loss": 1.0}, {"round": 1.0}, {"client_loss": 1.0}, {1: 2.0}, {"x": "y"}, {"x": [1, 2]}],
)
def test_a_method_reports_numbers_under_names_of_its_own(numbers: dict[Any, Any]) -> None:
    with refused("value"):
        train(reporting(numbers))
    assert "x" in train(reporting({"x": torch.tensor(2.0)})).rounds


@pytest.mark.parametrize(
    "folder", ["", 0, "/", "a\0b", "~nobody-of-this-name/x", "/tmp/a\udc80b", True, ["x"], b"x"]
)
def test_what_is_no_path_of_a_folder_is_refused_before_anything_is_trained(folder: Any) -> None:
    with refused("value", key="folder"):
        train("fedavg", folder=folder)


@pytest.mark.parametrize(
    "method", [Method, Wrapper, int, 3, misspelt(), of_others(), undecorated(), impure(), FedProx]
)
def test_what_is_no_method_is_refused(method: Any) -> None:
    with pytest.raises(UserError) as refusal:
        train(method)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("criterion", "loss"), ("lr_scheduler", "lr_schedule"), ("patience", "stop"),
     ("val_fraction", "validation"), ("pos_weight", "class_weights")],
)  # fmt: skip
def test_words_of_others_lead_to_ours(theirs: str, ours: str) -> None:
    with refused("unknown_key", key=theirs, near=ours):
        train(**{theirs: 3})


@pytest.mark.parametrize(
    ("method", "warned"), [("ditto", True), ("pfedme", True), ("fedavg", False)]
)
def test_a_model_of_ones_own_that_no_samples_score_is_said(method: str, warned: bool) -> None:
    """The accuracy on shared test samples would be read as that of the method."""
    x, y = np.eye(4, dtype="float32"), np.arange(4)
    clients = [(x[[0, 1] * 4], y[[0, 1] * 4]), (x[[2, 3] * 4], y[[2, 3] * 4])]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fr.train(method, "logistic", clients, rounds=1, test=(x, y))
        fr.train(method, "logistic", clients, rounds=1, test=(x, y), test_fraction=0.5)
    assert sum("client_accuracy" in str(warning.message) for warning in caught) == warned


def test_a_measure_of_rounds_needs_samples_of_no_client() -> None:
    class Right(Measure):
        words, per, higher_is_better = "right ones", "round", True

        def of_outputs(self, outputs: Any, targets: Any) -> float:
            return float((outputs.argmax(1) == targets).mean())

    with refused("value", key="evaluate.measures", value="right"):
        train(measures=Right, test=None)
    run = train(measures=Right)
    assert run.rounds["right"].tolist() == pytest.approx(run.rounds["test_accuracy"].tolist())


def test_a_class_that_only_held_out_samples_have_is_told() -> None:
    """The model has an output for it, which nothing trains."""
    x, y = np.eye(3, dtype="float32")[[0, 1] * 6], np.array([0, 1] * 6)
    y[3] = 2
    told = []
    for seed in range(1, 7):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fr.train("fedavg", "logistic", [(x, y)], rounds=1, test_fraction=0.5, seed=seed)
        told.append([warning.filename for warning in caught if "class" in str(warning.message)])
    assert [] in told and [__file__] in told and len(told) == 6


@pytest.mark.parametrize(
    "clients",
    [CLIENTS[0], CLIENTS[0][0], torch.utils.data.TensorDataset(*map(torch.as_tensor, CLIENTS[0]))],
)
def test_samples_of_no_client_are_to_be_shared_out(clients: Any) -> None:
    with refused(names=("client", "list")):
        train(clients=clients)


def test_an_instance_of_a_method_is_told_how_to_give_its_hyperparameters() -> None:
    @dataclass(frozen=True)
    class Halved(Method):
        share: float = 0.5

    with refused(key="method", names="Halved"):
        train(Halved(share=0.25))
    assert train(Halved, share=0.25, rounds=1)
