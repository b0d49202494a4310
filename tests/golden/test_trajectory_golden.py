"""Twelve rounds of FedIMA's released server (commit 3eaf289): FedAvg, FedNova, each with IMA.

The golden files prescribe how far every client moves in every round; what is compared is where the
server goes.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net
from fedrepro.engine.optim import gradient_weight
from fedrepro.engine.tree import Tree
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.fednova import FedNova
from fedrepro.methods.ima import IMA
from fedrepro.models.classifier import Classifier

HERE = Path(__file__).parent


def as_params(values: dict[str, Any]) -> Tree:
    return {f"head.{key}": torch.tensor(v, dtype=torch.float64) for key, v in values.items()}


@dataclass(frozen=True)
class Prescribed:
    """Clients that do not train: the file says how far they move."""

    golden: dict[str, Any]

    def movement(self, round: int, client: int) -> Tree:
        return as_params(self.golden["deltas"][round][client])

    @property
    def sizes(self) -> list[int]:
        sizes: list[int] = self.golden["sizes"]
        return sizes


def server_params(method: Method, golden: dict[str, Any], wrapped: bool) -> list[Tree]:
    """The server's parameters after every round."""
    prescribed = Prescribed(golden)
    ctx = Context(
        net=Net(Classifier(nn.Flatten(), nn.Linear(3, 2)).double()),
        clients=3,
        rounds=golden["rounds"],
    )
    if wrapped:
        share = golden["t_s"] / golden["rounds"]
        method = IMA(inner=method, window=golden["window"], start=share)
    server = method.init_server(ctx, as_params(golden["init"]))
    found = []
    for round, cohort in enumerate(golden["participants"]):
        sizes = torch.tensor([prescribed.sizes[c] for c in cohort], dtype=torch.float64)
        now = replace(ctx, round=round, sizes=sizes, cohort=torch.tensor(cohort))
        # Clients report sent - theirs, so the file's movement changes its sign.
        deltas = [tree.scale(prescribed.movement(round, c), -1.0) for c in cohort]
        updates = tree.stack(
            [_report(method, golden, c, d) for c, d in zip(cohort, deltas, strict=True)]
        )
        weights, server = method.aggregation_weights(now, server, updates)
        server = method.server_update(now, server, updates, weights)
        found.append(server["params"])
    return found


def _report(method: Method, golden: dict[str, Any], client: int, delta: Tree) -> Tree:
    inner = method.inner if isinstance(method, IMA) else method
    if not isinstance(inner, FedNova):
        return {"delta": delta}
    weight = gradient_weight(float(golden["fednova_taus"][client]), golden["momentum"])
    return {"direction": tree.scale(delta, 1 / weight), "weight": weight}


@pytest.mark.parametrize(
    ("file", "key", "method", "wrapped"),
    [
        ("ima_window.json", "fedavg", FedAvg(), False),
        ("ima_window.json", "fedavg_ima", FedAvg(), True),
        ("fednova.json", "fednova", FedNova(), False),
        ("fednova.json", "fednova_ima", FedNova(), True),
    ],
)
def test_trajectory(file: str, key: str, method: Method, wrapped: bool) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        golden = json.loads((HERE / file).read_text())
        ours = server_params(method, golden, wrapped)
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(ours) == golden["rounds"]
    for round, (mine, printed) in enumerate(zip(ours, golden[key], strict=True)):
        for name, leaf in as_params(printed).items():
            torch.testing.assert_close(
                mine[name], leaf, rtol=0, atol=1e-12, msg=lambda m, r=round: f"round {r}: {m}"
            )
