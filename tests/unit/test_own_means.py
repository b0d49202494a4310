"""Losses that are only known as a mean, whose mean over parts is not the mean over all samples."""

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import fedrepro as fr
from fedrepro.analysis.landscape import scorer
from fedrepro.engine.evaluate import evaluate
from fedrepro.engine.losses import OwnLoss
from fedrepro.engine.net import Net
from fedrepro.engine.task import CLASSIFICATION

DRAWS = np.random.default_rng(3)
CLIENTS = [(DRAWS.normal(size=(n, 4)).astype("float32"), np.arange(n) % 3) for n in (17, 9, 30, 12)]
NET = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
WEIGHTED = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 8.0, 0.3]))
IGNORING = nn.CrossEntropyLoss(ignore_index=0)


def train(method: str, loss: nn.Module, clients: Any = CLIENTS, **more: Any) -> Any:
    """Two rounds of a copy of the network."""
    asked = {"rounds": 2, "test": CLIENTS[0], "weights": "keep", "executor": "sequential", **more}
    return fr.train(method, copy.deepcopy(NET), clients, loss=loss, **asked)


def decided(run: Any, column: str = "loss") -> NDArray[np.float64]:
    """Of each client, in the first round."""
    table = pd.read_parquet(run.folder / "decisions.parquet")
    return table.loc[table["round"] == table["round"].min(), column].to_numpy()


@torch.no_grad()
def truth(loss: nn.Module) -> list[float]:
    """Each client's loss with the initial network, in plain PyTorch."""
    return [float(loss(NET(torch.tensor(x)), torch.tensor(y))) for x, y in CLIENTS]


@pytest.mark.parametrize("method", ["term", "qfedavg", "afl", "aaggff_s+fedavg", "aaggff_d+fedavg"])
@pytest.mark.parametrize("loss", [WEIGHTED, IGNORING])
def test_weights_are_set_from_the_loss_of_all_samples_of_a_client(
    method: str, loss: nn.Module
) -> None:
    for batch_size in (1, 4, 64):
        run = train(method, loss, batch_size=batch_size)
        assert decided(run) == pytest.approx(truth(loss), rel=1e-5)


def test_processes_set_the_same_weights() -> None:
    runs = [train("term", WEIGHTED, executor=name) for name in ("sequential", "parallel")]
    assert decided(runs[0], "weight").tolist() == decided(runs[1], "weight").tolist()


@pytest.mark.parametrize("method", ["term", "qfedavg", "afl", "aaggff_s+fedavg"])
def test_a_client_without_targets_that_count_leaves_a_rule_at_work(method: str) -> None:
    clients = [*CLIENTS[:3], (CLIENTS[3][0], 0 * CLIENTS[3][1])]
    run, plain = (train(name, IGNORING, clients) for name in (method, "fedavg"))
    losses, weights = decided(run), decided(run, "weight")
    assert losses[:3] == pytest.approx(truth(IGNORING)[:3], rel=1e-5)
    sizes = np.array([len(y) for _, y in clients])
    assert losses[3] == 0 and np.isfinite(weights).all()
    assert not np.allclose(weights, sizes / sizes.sum())
    moved, expected = (each.model.state_dict() for each in (run, plain))
    assert any(not torch.equal(moved[name], leaf) for name, leaf in expected.items())


@pytest.mark.parametrize(
    ("executor", "weights"),
    [
        ("sequential", None),
        ("sequential", "balanced"),
        ("sequential", [1.0, 8.0, 0.3]),
        ("vectorised", [1.0, 8.0, 0.3]),
    ],
)
def test_per_fedavgs_own_models_are_the_same_for_every_batch_size(
    executor: str, weights: Any
) -> None:
    of_size = [
        personal(batch_size=size, executor=executor, class_weights=weights) for size in (4, 64)
    ]
    assert of_size[0] == pytest.approx(of_size[1], abs=1e-5)


def test_so_they_are_of_a_loss_that_is_only_known_as_a_mean() -> None:
    of_size = [personal(batch_size=size, loss=WEIGHTED) for size in (4, 64)]
    assert of_size[0] == pytest.approx(of_size[1], abs=1e-5)


def personal(**more: Any) -> Any:
    """Clients' losses with a step that counts and rates that don't."""
    asked = {"alpha": 1.0, "hessian_free": False, "rounds": 1, "lr": 1e-12, "test_fraction": 1 / 3}
    net = copy.deepcopy(NET)
    run = fr.train("per_fedavg", net, CLIENTS, **{**asked, "weights": "keep", **more})
    return run.clients["loss"].to_numpy()


@pytest.mark.parametrize("loss", [WEIGHTED, IGNORING])
def test_a_landscape_has_the_loss_of_all_samples(loss: nn.Module) -> None:
    x, y = torch.randn(600, 4, generator=torch.Generator().manual_seed(0)), torch.arange(3)
    y = y.repeat_interleave(200)  # in parts of 200, one has no target that counts
    task = CLASSIFICATION._replace(losses=OwnLoss(loss, CLASSIFICATION), of_mean=True, measures={})
    net, params = Net(copy.deepcopy(NET)), {k: v.clone() for k, v in NET.state_dict().items()}
    scored = scorer(net, task, x, y)(params)
    test = evaluate(net, task, params, lambda first, last: (x[first:last], y[first:last]), 600)
    assert scored == pytest.approx((test["loss"], test["accuracy"]), rel=1e-5)
    with torch.no_grad():
        assert scored[0] == pytest.approx(float(loss(NET(x), y)), rel=1e-5)
