"""Tasks other than classification: what is trained, what is scored, what is refused."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import fedrepro as fr
from fedrepro.cli.main import main
from fedrepro.config.loading import load as load_workbench
from fedrepro.config.targets import RunKey
from fedrepro.engine import metrics
from fedrepro.engine.executors import EXECUTORS, eager
from fedrepro.engine.task import TASKS
from fedrepro.provenance import arithmetic
from fedrepro.report.cells import tables
from fedrepro.report.pages.run import run_page
from fedrepro.report.papers.published import Published
from fedrepro.run.results import find_run
from fedrepro.run.standing import standing_of
from fedrepro.support.errors import UserError
from support.places import ROOT
from support.refusals import refused

RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.normal(size=(3, 2))


def numbers(n: int) -> tuple[Any, Any]:
    """Features [n, 3] and a linear target [n] with noise."""
    x = RANDOM.normal(size=(n, 3)).astype(np.float32)
    return x, x @ WEIGHTS[:, 0] + 0.1 * RANDOM.normal(size=n)


def labelled(n: int) -> tuple[Any, Any]:
    x = RANDOM.normal(size=(n, 3)).astype(np.float32)
    return x, (x @ WEIGHTS + 0.3 > 0).astype(int)


CLIENTS, TEST = [numbers(20), numbers(33), numbers(40)], numbers(50)


def linear(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Linear(3, outputs)


def regress(method: str = "fedavg", model: Any = "logistic", **more: Any) -> fr.Run:
    given = {"rounds": 3, "test": TEST, "clients": CLIENTS, "task": "regression", **more}
    return fr.train(method, model, given.pop("clients"), **given)


def test_regression_descends_the_mean_squared_error() -> None:
    """One full batch per client, from the initial weights that are kept: as PyTorch does it."""
    module = linear((3,), 1)
    run = regress(model=module, weights="keep", rounds=1, batch_size=50, lr=0.2)
    moved = []
    for x, y in CLIENTS:
        own = nn.Linear(3, 1)
        own.load_state_dict(module.state_dict())
        nn.functional.mse_loss(own(torch.tensor(x))[:, 0], torch.tensor(y).float()).backward()
        moved.append([leaf.data - 0.2 * leaf.grad for leaf in own.parameters()])
    sizes = [len(y) for _, y in CLIENTS]
    for at, leaf in enumerate(run.model.parameters()):
        mean = sum(size * leaves[at] for size, leaves in zip(sizes, moved, strict=True)) / sum(
            sizes
        )
        assert torch.allclose(leaf, mean, atol=1e-6)


def test_its_scores_are_errors_and_no_accuracy() -> None:
    run = regress(rounds=10)
    x, y = TEST
    with torch.no_grad():
        errors = run.model(torch.tensor(x))[:, 0].numpy() - y
    end = run.rounds.iloc[-1]
    assert not [name for name in (*run.rounds, *run.clients) if "accuracy" in name]
    assert end["test_loss"] == pytest.approx((errors**2).mean(), rel=1e-5)
    assert end["test_mse"] == pytest.approx((errors**2).mean(), rel=1e-5)
    assert end["test_mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-5)
    assert end["test_r2"] == pytest.approx(1 - (errors**2).mean() / y.var(), rel=1e-5)
    assert end["test_r2"] > 0.9
    assert "test loss" in run._repr_html_()
    assert fr.compare([run]).index.name == "test_loss"


@pytest.mark.parametrize("method", ["ima+scaffold", "aaggff_s"])
def test_clients_side_by_side_train_and_score_as_one_by_one(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of different sizes, so that mini-batches are padded."""
    monkeypatch.setitem(EXECUTORS, "vectorised", lambda *how: eager)  # not compiled: faster
    alone, stacked = (
        regress(method, rounds=2, test=None, batch_size=8, executor=name)
        for name in ("sequential", "vectorised")
    )
    assert alone.rounds["client_mae"].gt(0).all()
    for one, other in ((alone.rounds, stacked.rounds), (alone.clients, stacked.clients)):
        pd.testing.assert_frame_equal(one, other, rtol=1e-4)


def test_a_sample_may_have_several_targets_or_one_at_each_place() -> None:
    x, _ = TEST
    several = regress(model=linear, clients=[(x, x @ WEIGHTS)] * 2, test=(x, x @ WEIGHTS), lr=0.5)
    assert several.model(torch.tensor(x)).shape == (50, 2)
    assert several.rounds["test_r2"].iloc[-1] > 0.9
    images = RANDOM.normal(size=(20, 1, 5, 5)).astype(np.float32)
    shaped = (images, 2 * images[:, 0])
    pixels = regress(
        model=lambda shape, outputs: nn.Conv2d(1, outputs, 1),
        clients=[shaped] * 2, test=shaped, rounds=8, lr=0.3,
    )  # fmt: skip
    assert pixels.rounds["test_r2"].iloc[-1] > 0.9


def test_r2_is_a_mean_over_targets_and_undefined_for_a_constant_one() -> None:
    truth = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 8.0]])
    assert metrics.r2(truth, truth) == 1.0
    guess = truth.copy()
    guess[:, 1] = 4.0  # the second target's mean: R² 0
    assert metrics.r2(guess, truth) == 0.5
    assert np.isnan(metrics.r2(np.ones(3), np.ones(3)))
    images = np.arange(16.0).reshape(2, 2, 2, 2)
    flat = np.moveaxis(images, 1, -1).reshape(-1, 2)
    assert metrics.r2(images + 1, images) == pytest.approx(metrics.r2(flat + 1, flat))


@pytest.mark.parametrize(
    "given",
    [
        {"method": "feddisco"},
        {"method": "fedtgp"},
        {"method": "fedfa"},
        {"task": "regress"},
        {"model": lambda shape, outputs: nn.Linear(3, 4)},
        {"clients": [(TEST[0], np.array(["a"] * 50))]},
        {"clients": [(TEST[0], np.full(50, np.nan))]},
        {"clients": [(TEST[0], TEST[1][:9])]},
        {"clients": [CLIENTS[0], (TEST[0], np.ones((50, 2)))]},
        {"task": "multi_label"},
        {"task": "multi_label", "clients": [(TEST[0], np.full((50, 2), 2))]},
        {"task": "multi_label", "clients": [labelled(9)], "method": "feddf", "test": None},
        {"task": "binary", "clients": [(TEST[0], np.arange(50) % 3)], "test": None},
        {"task": "classification"},
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(given: dict[str, Any]) -> None:
    with pytest.raises(UserError) as refusal:
        regress(**given)
    assert "\n" not in str(refusal.value)


def test_several_labels_are_scored_label_by_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXECUTORS, "vectorised", lambda *how: eager)
    clients, test = [labelled(21), labelled(34)], labelled(40)
    given = {"task": "multi_label", "clients": clients, "rounds": 2, "lr": 1.0, "batch_size": 8}
    run = regress(test=test, **given)
    with torch.no_grad():
        logits = run.model(torch.tensor(test[0]))
    end, truth = run.rounds.iloc[-1], torch.tensor(test[1])
    loss = nn.functional.binary_cross_entropy_with_logits(logits, truth.float())
    areas = [metrics.auroc(logits.numpy()[:, at].astype(float), test[1][:, at]) for at in range(2)]
    assert end["test_loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert end["test_accuracy"] == pytest.approx(((logits > 0) == truth).double().mean().item())
    assert 0.8 < end["test_auroc"] == pytest.approx(np.mean(areas))
    alone, stacked = (
        regress("aaggff_s", test=None, executor=name, **given)
        for name in ("sequential", "vectorised")
    )
    for one, other in ((alone.rounds, stacked.rounds), (alone.clients, stacked.clients)):
        pd.testing.assert_frame_equal(one, other, rtol=1e-4)


def test_a_label_that_no_sample_of_a_client_has_leaves_its_mean() -> None:
    measure = TASKS["multi_label"].measures["auroc"]
    logits, targets = np.array([[0.0, 3.0], [1.0, 2.0]]), np.array([[0.0, 1.0], [1.0, 1.0]])
    assert measure(logits, targets) == 1.0
    assert np.isnan(measure(logits, np.ones((2, 2))))


def test_binary_has_one_output_and_an_auroc() -> None:
    run = regress(
        task="binary", clients=[(x, (y > 0).astype(int)) for x, y in CLIENTS], test=None, lr=1.0
    )
    assert run.model(torch.ones(4, 3)).shape == (4, 1)
    assert run.rounds["client_auroc"].iloc[-1] > 0.8


def test_the_examples_of_the_page_run() -> None:
    text = (ROOT / "docs/tasks.md").read_text(encoding="utf-8")
    space: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        exec(block, space)


# --- losses ------------------------------------------------------------------------------------
def absolute(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs - targets).abs()


def absolute_mean(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return absolute(outputs, targets).mean()


@pytest.mark.parametrize(
    "loss",
    [absolute, absolute_mean, nn.functional.l1_loss, nn.L1Loss(), lambda o, t: absolute_mean(o, t)],
)
def test_losses_of_one_meaning_give_one_run(loss: Any) -> None:
    run, known = (regress(loss=each, rounds=2, test=None) for each in (loss, absolute))
    pd.testing.assert_frame_equal(run.rounds, known.rounds, rtol=1e-5)
    assert run.rounds["test_loss"].equals(run.rounds["test_loss"])
    assert run.rounds["test_loss"].iloc[-1] == pytest.approx(run.rounds["test_mae"].iloc[-1], 1e-5)
    squared = regress(rounds=2, test=None).rounds
    assert not np.allclose(squared["test_mse"], run.rounds["test_mse"], rtol=1e-3)


@pytest.mark.parametrize("method", ["scaffold", "aaggff_s"])
def test_an_own_loss_and_class_weights_are_the_same_side_by_side(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXECUTORS, "vectorised", lambda *how: eager)
    classes = [(x, (y > 0).astype(int)) for x, y in CLIENTS]
    for given in (
        {"loss": nn.SmoothL1Loss()},
        {"task": "classification", "clients": classes, "class_weights": [0.3, 2.0]},
        {"task": "binary", "clients": classes, "class_weights": "balanced"},
        {"task": "binary", "clients": classes, "loss": nn.BCEWithLogitsLoss()},
        {"task": "multi_label", "clients": [labelled(20)] * 3, "class_weights": [0.3, 2.0]},
    ):
        alone, stacked = (
            regress(method, rounds=1, test=None, batch_size=8, executor=name, **given)
            for name in ("sequential", "vectorised")
        )
        pd.testing.assert_frame_equal(alone.rounds, stacked.rounds, rtol=1e-4)


def test_a_mean_is_that_of_each_client_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arithmetic, "TOGETHER_FROM", 2)
    mean, each = (regress(loss=loss, rounds=1, test=None) for loss in (absolute_mean, absolute))
    pd.testing.assert_frame_equal(mean.clients, each.clients, rtol=1e-5)


def test_a_mean_has_no_value_for_padded_batches() -> None:
    with pytest.raises(UserError, match="executor"):
        regress(loss=absolute_mean, executor="vectorised")


def test_a_weighted_mean_of_pytorch_is_kept_and_class_weights_are_the_same() -> None:
    classes = [(x, (y > 0).astype(int)) for x, y in CLIENTS]
    weights, given = [0.3, 2.0], {"task": "classification", "clients": classes, "test": None}
    module = nn.Linear(3, 2)

    def run(**more: Any) -> fr.Run:
        return regress(model=module, weights="keep", rounds=2, **{**given, **more})

    ours = run(class_weights=weights)
    theirs = run(loss=nn.CrossEntropyLoss(weight=torch.tensor(weights)))
    for one, other in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    assert not torch.allclose(run().model.weight, ours.model.weight, atol=1e-3)
    counts = np.bincount(np.concatenate([y for _, y in classes]))
    balanced = (counts.sum() / 2 / counts).tolist()
    whole = {"test_fraction": 0.0, "test": classes[0]}
    one, other = (run(**whole, class_weights=each) for each in ("balanced", balanced))
    assert torch.equal(one.model.weight, other.model.weight)


@pytest.mark.parametrize("method", ["term", "qfedavg", "afl"])
def test_methods_that_weigh_clients_by_losses_weigh_by_those_that_are_descended(
    method: str,
) -> None:
    """The same as with a loss of PyTorch's of these weights; test losses then differ."""
    weights, x = [0.1, 1.0, 5.0], torch.randn(12, 4, generator=torch.Generator().manual_seed(1))
    few, even = (torch.arange(12) % 4 == 0).long() * 2, torch.arange(12) % 3

    def trained(**more: Any) -> torch.Tensor:
        clients = [(x, few), (x + 1, even), (x - 1, even)]
        run = fr.train(
            method, nn.Linear(4, 3), clients, rounds=3, test=(x, even), batch_size=12,
            weights="draw", **more,
        )  # fmt: skip
        return torch.cat([leaf.detach().flatten() for leaf in run.model.parameters()])

    ours = trained(class_weights=weights)
    theirs = trained(loss=nn.CrossEntropyLoss(weight=torch.tensor(weights)))
    assert torch.allclose(ours, theirs, atol=1e-6)
    assert not torch.allclose(ours, trained(), atol=1e-3)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(ignore_index=0),
        partial(nn.functional.cross_entropy, ignore_index=0),
        nn.CrossEntropyLoss(label_smoothing=0.2),
        partial(nn.functional.cross_entropy, ignore_index=-1),
    ],
)
def test_a_step_of_a_loss_of_pytorch_is_a_step_by_hand(loss: Any) -> None:
    """Its mean leaves out an ignored class, in what it divides by, too."""
    x, y = CLIENTS[0][0], (CLIENTS[0][1] > 0).astype(int)
    assert 0 < y.sum() < len(y)
    module = nn.Linear(3, 2)
    given: Any = {"task": "classification", "clients": [(x, y)], "test": (x, y)}
    given |= {"weights": "keep", "rounds": 1, "batch_size": 1000, "lr": 0.5, "epochs": 1}
    run = regress(model=module, loss=loss, **given)
    loss(module(torch.as_tensor(x)), torch.as_tensor(y)).backward()
    for own, start in zip(run.model.parameters(), module.parameters(), strict=True):
        assert start.grad is not None
        torch.testing.assert_close(own, start - 0.5 * start.grad)
    tested = loss(run.model(torch.as_tensor(x)), torch.as_tensor(y)).item()
    assert run.rounds["test_loss"].item() == pytest.approx(tested, rel=1e-5)


def test_weights_of_labels_are_those_of_their_positive_samples(tmp_path: Path) -> None:
    """As PyTorch's ``pos_weight`` in training; tests stay unweighted."""
    clients, weights = [labelled(21), labelled(30)], [0.3, 2.0]
    module = nn.Linear(3, 2)
    given: dict[str, Any] = {"clients": clients, "task": "multi_label", "test": labelled(20)}

    def run(**more: Any) -> fr.Run:
        return regress(model=module, weights="keep", rounds=2, **{**given, **more})

    ours = run(class_weights=weights, folder=tmp_path / "run")
    theirs = run(loss=nn.BCEWithLogitsLoss(pos_weight=torch.tensor(weights)))
    torch.testing.assert_close(ours.model.weight, theirs.model.weight, rtol=0, atol=1e-6)
    assert not torch.allclose(run().model.weight, ours.model.weight, atol=1e-3)
    x, y = given["test"]
    tested = nn.functional.binary_cross_entropy_with_logits(
        ours.model(torch.tensor(x)), torch.tensor(y).float()
    )
    assert ours.rounds["test_loss"].iloc[-1] == pytest.approx(tested.item(), rel=1e-5)
    have = np.concatenate([y for _, y in clients]).sum(0)
    balanced = ((51 - have) / have).tolist()
    one, other = (run(class_weights=each) for each in ("balanced", balanced))
    assert torch.equal(one.model.weight, other.model.weight)
    for else_ in (None, [0.3, 1.0]):
        with pytest.raises(UserError):
            run(class_weights=else_, folder=tmp_path / "run")


def test_another_loss_or_other_weights_are_another_run(tmp_path: Path) -> None:
    def scaled(by: float) -> Any:
        def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return by * absolute(outputs, targets)

        return loss

    first = regress(loss=scaled(1.0), rounds=1, folder=tmp_path / "run")
    again = regress(loss=scaled(1.0), rounds=1, folder=tmp_path / "run")
    assert again.manifest == first.manifest
    assert first.manifest["run"]["loss"] == "loss"
    assert "loss" not in regress(rounds=1).manifest["run"]
    with pytest.raises(UserError):
        regress(loss=scaled(2.0), rounds=1, folder=tmp_path / "run")
    with pytest.raises(UserError):
        regress(rounds=1, folder=tmp_path / "run")


@pytest.mark.parametrize(
    "loss",
    [
        "huber",
        nn.MSELoss(reduction="sum"),
        lambda outputs, targets: outputs.mean().item(),
        lambda outputs, targets: outputs.detach(),
        lambda outputs, targets: outputs[:1],
        lambda outputs, targets: absolute(outputs, targets).sum(),
        lambda outputs: outputs.mean(),
        # No seed would repeat this one, and this one would change the data.
        lambda outputs, targets: (outputs + torch.randn_like(outputs)).square().mean(1),
        lambda outputs, targets: outputs.square().mean(1) + targets.zero_().mean(),
    ],
)
def test_what_is_no_loss_is_refused(loss: Any) -> None:
    with pytest.raises(UserError, match="loss") as refusal:
        regress(loss=loss, model=linear)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "given",
    [
        {"class_weights": [1.0]},
        {"class_weights": [1.0, 1.0], "loss": nn.CrossEntropyLoss()},
        {"class_weights": [1.0, -1.0]},
        {"class_weights": "equal"},
        {"class_weights": "balanced", "task": "regression", "clients": CLIENTS},
        {"class_weights": [1.0] * 3, "task": "multi_label", "clients": [labelled(20)]},
    ],
)
def test_weights_that_fit_no_class_are_refused(given: dict[str, Any]) -> None:
    classes = [(x, (y > 0).astype(int)) for x, y in CLIENTS]
    with pytest.raises(UserError, match="class_weights"):
        regress(**{"task": "classification", "clients": classes, "test": None, **given})


# --- in settings -------------------------------------------------------------------------------
DATASETS = """\
datasets:
  own:
    kind: tabular_csv
    title: Own
    licence: none
    citation: none
    path: own.csv
    label: price
    task: regression
"""
EXPERIMENT = """\
system: own
title: Own
paper: none
seeds: {demo: [1], paper: [1]}
settings:
  s:
    dataset: own
    partition: {scheme: iid, clients: 3, test_fraction: 0.2}
    model: logistic
    rounds: 3
    participation: 1
    epochs: 1
    batch_size: 8
    optimizer: {lr: 0.1}
    evaluate: {clients: true}
  skewed: {extends: s, partition: {scheme: dirichlet, clients: 3, alpha: 1.0}}
  flipped: {extends: s, noise: {kind: pair, rate: 0.5}}
tables:
  table_1:
    title: A table
    rows:
      - {label: MAE, setting: s, metric: mae}
      - {label: Worst, setting: s, metric: {of: mse, over_clients: worst}}
      - {label: None, setting: s, metric: accuracy}
      - {label: Steps, setting: s, metric: {reached_in_steps_of: 5}}
      - {label: Rounds, setting: s, metric: {rounds_to: 50}}
    columns: [{label: FedAvg, method: fedavg}]
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config/experiments").mkdir(parents=True)
    (tmp_path / "config/config.yaml").write_text("{}\n", encoding="utf-8")
    (tmp_path / "config/datasets.yaml").write_text(DATASETS, encoding="utf-8")
    (tmp_path / "config/experiments/own.yaml").write_text(EXPERIMENT, encoding="utf-8")
    x, y = numbers(90)
    table = pd.DataFrame(x, columns=list("abc")).assign(price=100 + 10 * y)
    table.to_csv(tmp_path / "own.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_setting_regresses_a_column(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-data", "own"]) == 0
    assert "price, " in capsys.readouterr().out
    assert main(["run", "own/s", "fedavg", "--seed", "1"]) == 0
    said = capsys.readouterr()
    assert "loss" in said.err
    assert "accuracy" not in said.err
    rounds = fr.load("own/s", "fedavg").rounds
    assert rounds["test_mae"].iloc[-1] < rounds["test_mae"].iloc[0]
    workbench = load_workbench(bench)
    target = workbench.tables("paper")["own", "table_1"]
    cells = [cell.result for cell in tables.compute(workbench, target, Published()).cells]
    mae, worst = (cell.mean for cell in cells[:2])
    assert [cell.mean for cell in cells[2:]] == [None] * 3
    assert "accuracy" in str(cells[2].hole)
    assert mae == pytest.approx(rounds["test_mae"].iloc[-1])
    clients = fr.load("own/s", "fedavg").clients
    last = clients[clients["round"] == 3]
    assert worst == pytest.approx(last["mse"].max())  # more is worse
    record = find_run(bench, RunKey("own/s", "fedavg", 1))
    page = run_page(record, None, [], [], {})
    assert [panel.title for panel in page["by_products"]] == ["Loss", "Mean absolute error", "R²"]


def test_a_search_and_a_stop_follow_the_task(bench: Path) -> None:
    """Without a word of accuracy, there is none in a regression."""
    grid = (
        "search: {g: {title: G, setting: s, validation: 0.2, "
        "methods: [{method: fedprox, grid: {mu: [0, 1]}}]}}\n"
    )
    stopped = EXPERIMENT.replace(
        "  skewed:", "  short: {extends: s, stop: {patience: 1}}\n  skewed:"
    )
    (bench / "config/experiments/own.yaml").write_text(stopped + grid)
    workbench = load_workbench(bench)
    assert workbench.run_spec("own/short", "fedavg", 1).description()["stop"]["measure"] == "loss"
    target = workbench.search("own", "g", "demo")
    assert not target.search.metric.quantity.higher_is_better
    (bench / "config/experiments/own.yaml").write_text(
        stopped.replace("patience: 1", "measure: accuracy, patience: 1")
    )
    assert main(["run", "own/short", "fedavg", "--seed", "1"]) == 2


def test_arrays_in_a_file_may_have_several_targets(bench: Path) -> None:
    x, _ = numbers(60)
    np.savez("own.npz", x=x, y=x @ WEIGHTS)
    kind = DATASETS.replace("tabular_csv", "arrays").replace("own.csv", "own.npz")
    (bench / "config/datasets.yaml").write_text(kind.replace("    label: price\n", ""))
    assert main(["check-data", "own"]) == 0
    assert main(["run", "own/s", "fedavg", "--seed", "1"]) == 0
    assert fr.load("own/s", "fedavg").model(torch.ones(4, 3)).shape == (4, 2)


MISS = """
from fedrepro.measures.base import Measure


class Miss(Measure):
    words, higher_is_better, per = "largest error", False, "client"

    def of_outputs(self, outputs, targets):
        return abs(outputs - targets).max()
"""
LINE = "from torch import nn\ndef line(shape, outputs): return nn.Linear(3, outputs)\n"
FOCAL = """
def focal(outputs, targets):
    return (outputs - targets).abs() ** 1.5
"""


def test_a_loss_is_a_file_of_the_workbench(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", "own/focal", "fedavg", "--seed", "1"]
    setting = "  s:\n"
    added = EXPERIMENT.replace(setting, "  focal: {extends: s, loss: focal}\n" + setting)
    (bench / "config/experiments/own.yaml").write_text(added)
    assert main(run) == 2
    assert "plugins.losses" in capsys.readouterr().err
    (bench / "losses").mkdir()
    (bench / "losses/focal.py").write_text(FOCAL)
    (bench / "config/config.yaml").write_text("plugins: {losses: losses}\n")
    assert main(run) == 0
    first = fr.load("own/focal", "fedavg").manifest
    assert first["run"]["loss"] == "focal"
    assert "plugins/losses/focal.py" in first["code_files"]
    assert main(run) == 0
    assert fr.load("own/focal", "fedavg").manifest == first
    for folder, text in (("same", FOCAL), ("other", FOCAL.replace("1.5", "1.25"))):
        (bench / folder).mkdir()
        (bench / folder / "focal.py").write_text(text)
        (bench / "config/config.yaml").write_text(f"plugins: {{losses: {folder}}}\n")
        standing = standing_of(load_workbench(bench), RunKey("own/focal", "fedavg", 1))
        assert standing.is_current == (folder == "same")


def test_files_of_a_workbench_are_found_by_a_setting_not_by_a_folder(bench: Path) -> None:
    for folder, file, text in (("models", "line.py", LINE), ("measures", "miss.py", MISS)):
        (bench / folder).mkdir()
        (bench / folder / file).write_text(text)
    (bench / "config/config.yaml").write_text("plugins: {models: models, measures: measures}\n")
    own = "  mine: {extends: s, model: line, evaluate: {clients: true, measures: [miss]}}"
    own = f"{own}\n  skewed:"
    (bench / "config/experiments/own.yaml").write_text(EXPERIMENT.replace("  skewed:", own))
    assert main(["run", "own/mine", "fedavg", "--seed", "1"]) == 0
    by_setting, folder = fr.load("own/mine", "fedavg"), "results/runs/own/mine/fedavg/seed1"
    assert by_setting.model(torch.ones(4, 3)).shape == (4, 1)
    fr.compare(by_setting, of="client_miss")
    with refused("missing", key="model", names=("setting", "method")):
        _ = fr.load(folder).model
    with refused(key="of", names=("setting", "method")):
        fr.compare(fr.load(folder), of="client_miss")


@pytest.mark.parametrize(("setting", "value"), [("s", "loss=fcal"), ("slow", "lr_schedule=cosine")])
def test_what_a_setting_can_t_have_is_refused_on_the_command_line(
    bench: Path, setting: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = "  slow: {extends: s, lr_decay: 0.5}\n  skewed:"
    (bench / "config/experiments/own.yaml").write_text(EXPERIMENT.replace("  skewed:", slow))
    assert main(["run", f"own/{setting}", "fedavg", "--seed", "1", "--set", value]) == 2
    assert value.partition("=")[0] in capsys.readouterr().err.splitlines()[-1]


def test_columns_of_a_table_are_labels(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = labelled(60)
    pd.DataFrame(np.hstack([x, y]), columns=list("abcde")).to_csv("own.csv", index=False)
    several = DATASETS.replace("price", "[d, e]").replace("regression", "multi_label")
    (bench / "config/datasets.yaml").write_text(several)
    assert main(["check-data", "own"]) == 0
    assert main(["run", "own/s", "fedavg", "--seed", "1"]) == 0
    assert fr.load("own/s", "fedavg").model(torch.ones(4, 3)).shape == (4, 2)
    (bench / "config/datasets.yaml").write_text(DATASETS.replace("price", "[d, e, f]"))
    assert main(["check-data", "own"]) == 2
    lists = ("--set", "label=[d, e]", "--set", "drop=[a]", "--set", "task=multi_label")
    assert main(["check-data", "own.csv", *lists]) == 0
    assert "features\tb, c\n" in capsys.readouterr().out
    several = DATASETS.replace("price", "[d, e]").replace("regression", "classification")
    (bench / "config/datasets.yaml").write_text(several)
    assert main(["check-data", "own"]) == 2
    assert "label" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("setting", ["skewed", "flipped"])
def test_a_setting_that_needs_classes_is_refused(
    bench: Path, capsys: pytest.CaptureFixture[str], setting: str
) -> None:
    assert main(["run", f"own/{setting}", "fedavg", "--seed", "1"]) == 2
    assert "numbers" in capsys.readouterr().err.splitlines()[-1]


def test_words_to_regress_are_refused(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pd.DataFrame({"a": [1, 2, 3], "price": ["1", "2", "much"]}).to_csv("own.csv", index=False)
    assert main(["check-data", "own"]) == 2
    assert "much" in capsys.readouterr().err
