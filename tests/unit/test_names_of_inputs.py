"""Inputs, updates, measures and models of :func:`fedrepro.train` are told apart, and by names."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedrepro as fr
from fedrepro.engine.method import Method
from fedrepro.measures.base import Measure
from support.refusals import refused


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(a) + 0 * b.sum()
        return out


@pytest.mark.parametrize("form", ["arrays", "dataset"])
def test_inputs_are_told_apart_by_their_names(form: str) -> None:
    """The keys of test samples, or of another client, had been taken in their own order."""
    a, b = np.eye(3, dtype="f4")[[0, 1, 2, 0]], np.ones((4, 3), "f4")
    y = np.array([0, 1, 1, 0])

    def samples(names: str) -> Any:
        x = {name: {"a": a, "b": b}[name] for name in names}
        if form == "arrays":
            return x, y
        return [{**{name: x[name][at] for name in names}, "label": y[at]} for at in range(4)]

    def losses(client: str, test: str) -> list[float]:
        clients = [samples("ab"), samples(client)]
        run = fr.train("fedavg", Two(), clients, rounds=3, test=samples(test), lr=1.0)
        return run.rounds["test_loss"].tolist()

    assert losses("ab", "ab") == losses("ba", "ba") == losses("ab", "ba")


@dataclass(frozen=True)
class Ordered(Method):
    """FedAvg, in which each client names the leaves of its update in an order of its own."""

    def client_update(self, ctx: Any, message: Any, client_state: Any, steps: Any) -> Any:
        update, state = super().client_update(ctx, message, client_state, steps)
        delta = update["delta"]
        names = sorted(delta, key=lambda name: float(delta[name].sum()))
        return {**update, "delta": {name: delta[name] for name in names}}, state


@pytest.mark.parametrize("executor", ["sequential", "parallel"])
def test_updates_are_told_apart_by_their_names(executor: str) -> None:
    x, y = np.random.default_rng(0).normal(size=(24, 3)).astype("f4"), np.arange(24) % 3
    clients = [(x[at : at + 6], y[at : at + 6]) for at in range(0, 24, 6)]
    net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 3, bias=False))
    losses = [
        fr.train(method, net, clients, rounds=3, test=(x, y), lr=0.5, weights="keep",
                 executor=executor).rounds["test_loss"].tolist()
        for method in ("fedavg", Ordered)
    ]  # fmt: skip
    assert losses[0] == losses[1]


@pytest.mark.parametrize("noise", [None, {"kind": "pair", "rate": 0.5}])
def test_balanced_weights_are_of_the_labels_that_clients_train_on(noise: Any) -> None:
    """Clients have no clean labels."""
    x = np.random.default_rng(0).normal(size=(60, 3)).astype("f4")
    y, counts = np.repeat([0, 1, 2], [40, 15, 5]), np.array([40, 15, 5])
    said = {"rounds": 2, "test": (x, y), "weights": "keep", "noise": noise}
    of_clean = (60 / (3 * counts)).tolist()
    net = nn.Linear(3, 3)
    losses = [
        fr.train("fedavg", net, [(x, y)], class_weights=weights, **said)
        .rounds["test_loss"]
        .tolist()
        for weights in ("balanced", of_clean)
    ]
    assert (losses[0] == losses[1]) == (noise is None)


class Miss(Measure):
    words, higher_is_better, per = "misses", False, "client"

    def of_outputs(self, outputs: Any, targets: Any) -> float:
        return float((outputs.argmax(1) != targets).mean())


def test_of_an_own_measure_it_is_known_which_way_is_better(tmp_path: Path) -> None:
    x, y = np.eye(4, dtype="f4").repeat(4, 0), np.arange(16) // 4 % 2
    poor, good = (
        fr.train(
            "fedavg", "logistic", [(x, y)], rounds=20, lr=lr, measures=Miss, folder=tmp_path / n
        )
        for lr, n in ((1e-9, "poor"), (1.0, "good"))
    )
    table = fr.compare({"poor": poor, "good": good}, of="client_miss")
    assert table["mean"]["good"] < table["mean"]["poor"] and table["gain"]["good"] > 0
    with refused(key="of"):
        fr.compare({"poor": fr.load(tmp_path / "poor")}, of="client_miss")


def test_a_model_that_is_built_in_another_way_than_in_the_run_is_refused(tmp_path: Path) -> None:
    kind: list[type[nn.Module]] = [nn.ReLU]

    def twonn(shape: Any, outputs: int) -> nn.Module:  # as one of the package's is called
        return nn.Sequential(nn.Linear(3, 4), kind[0](), nn.Linear(4, outputs))

    x, y = np.eye(3, dtype="f4"), np.arange(3)
    run = fr.train("fedavg", twonn, [(x, y)], rounds=1, test=(x, y), folder=tmp_path / "run")
    with refused("missing", key="model"):
        _ = fr.load(tmp_path / "run").model
    kind[0] = nn.Tanh
    with refused(key="model"):
        _ = run.model
    kind[0] = nn.ReLU
    assert run.model(torch.eye(3)).shape == (3, 3)


def test_networks_of_one_name_are_not_averaged() -> None:
    x, y = np.eye(3, dtype="f4"), np.arange(3)

    def run(seed: int, wide: int = 4, between: type[nn.Module] = nn.Tanh) -> fr.Run:
        def net(shape: Any, outputs: int) -> nn.Module:
            return nn.Sequential(nn.Linear(3, wide), between(), nn.Linear(wide, outputs))

        return fr.train("fedavg", net, [(x, y)], rounds=1, test=(x, y), seed=seed)

    fr.compare({"a": [run(1), run(2)]})
    with refused(key="a: parameters"):
        fr.compare({"a": [run(1), run(2, wide=8)]})
    with refused(key="a: layers net"):
        fr.compare({"a": [run(1), run(2, between=nn.Sigmoid)]})


@pytest.mark.parametrize("clients", [None, 3, "x"])
def test_clients_that_are_none_are_refused(clients: Any) -> None:
    with refused():
        fr.train("fedavg", "logistic", clients, rounds=1)


def test_weights_that_are_all_one_number_are_kept() -> None:
    net = nn.Linear(4, 2)
    net.weight.data.fill_(0.1), net.bias.data.fill_(0.1)
    x, y = np.eye(4, dtype="f4"), np.arange(4) % 2
    run = fr.train("fedavg", net, [(x, y)], rounds=1, lr=1e-12, test=(x, y))
    assert run.rounds["test_loss"][0] == pytest.approx(math.log(2))
