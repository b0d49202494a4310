"""SuPerFed's local training: its released code (commit 55064b96) and the thesis's equations."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedrepro.data.tensors.samples import Scaling, TensorSamples
from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.net import Net
from fedrepro.engine.optim import sgd
from fedrepro.engine.steps import Steps
from fedrepro.engine.tree import Tree
from fedrepro.methods.superfed_lm import SuPerFedLM
from fedrepro.methods.superfed_mm import SuPerFedMM
from fedrepro.models.classifier import Classifier

GOLDEN = json.loads((Path(__file__).parent / "superfed.json").read_text())["superfed_update"]
NAMES = {"l1.weight": "body.0.weight", "classifier.weight": "head.weight"}


def models(values: dict[str, Any]) -> tuple[Tree, Tree]:
    """The federated and the local model."""

    def one(suffix: str) -> Tree:
        return {
            ours: torch.tensor(values[theirs + suffix], dtype=torch.float64)
            for theirs, ours in NAMES.items()
        }

    return one(""), one("_local")


def trained(case: dict[str, Any], released: bool) -> tuple[Tree, Tree]:
    """Both models after the case's local epochs, each one mini-batch of all samples."""
    method = (SuPerFedLM if case["layerwise"] else SuPerFedMM)(
        start=0.0 if case["start_mix"] else 1.0, mu=case["mu"], nu=case["nu"]
    )
    method = method.as_released() if released else method
    body = nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU())
    net = Net(Classifier(body, nn.Linear(3, 6, bias=False)).double())
    ctx = Context(
        net=net,
        epochs=case["E"],
        optimizer=sgd(case["momentum"], case["weight_decay"]),
        lr=case["lr"],
    )
    x, y = torch.tensor(GOLDEN["X"], dtype=torch.float64), torch.tensor(GOLDEN["Y"])
    drawn: Tree = {}
    if case["lambdas"]:
        weights = torch.tensor(case["lambdas"], dtype=torch.float64)
        drawn = {"lambda": weights.view(case["E"], 2) if case["layerwise"] else weights}
    orders = [torch.arange(len(y))] * case["E"]
    steps = Steps(TensorSamples(x, y, Scaling(None, None)), orders, len(y), drawn)
    federated, local = models(case["init"])
    message = method.broadcast(replace(ctx, initial=federated), {"params": federated})
    update, client_state = method.client_update(ctx, message, {"local": local}, steps)
    return tree.subtract(federated, update["delta"]), client_state["local"]


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=range(len(GOLDEN["cases"])))
@pytest.mark.parametrize(
    ("released", "expected"),
    [(True, "official"), (True, "reference_code_style"), (False, "reference_paper_style")],
)
def test_local_training(case: dict[str, Any], released: bool, expected: str) -> None:
    for ours, theirs in zip(trained(case, released), models(case[expected]), strict=True):
        for name, leaf in theirs.items():
            torch.testing.assert_close(ours[name], leaf, rtol=0, atol=1e-12, msg=name)


def test_the_two_readings_differ() -> None:
    case = GOLDEN["cases"][1]
    ours, theirs = trained(case, released=False)[0], trained(case, released=True)[0]
    assert float(tree.norms(tree.subtract(ours, theirs)).max()) > 1e-5
