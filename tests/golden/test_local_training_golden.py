"""Local runs of FedIMA's released FedAvg, FedProx, FedASAM and FedNova (3eaf289), in float64."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedrepro.data.tensors.samples import Scaling, TensorSamples
from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.descent import descend
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net
from fedrepro.engine.optim import gradient_weight, sgd
from fedrepro.engine.steps import Steps
from fedrepro.engine.tree import Tree
from fedrepro.methods.fedasam import FedASAM
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.fednova import FedNova
from fedrepro.methods.fedprox import FedProx
from fedrepro.models.classifier import Classifier

HERE = Path(__file__).parent


def read(name: str) -> dict[str, Any]:
    golden: dict[str, Any] = json.loads((HERE / name).read_text())
    return golden


def as_params(values: dict[str, Any]) -> Tree:
    """The golden files' names for the two layers, and ours."""
    names = {"fc": "body.0", "classifier": "head"}
    return {
        f"{names[layer]}.{kind}": torch.tensor(values[f"{layer}.{kind}"], dtype=torch.float64)
        for layer in names
        for kind in ("weight", "bias")
    }


def make_context(golden: dict[str, Any]) -> Context:
    net = Net(Classifier(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Linear(4, 3)).double())
    return Context(
        net=net,
        epochs=golden["E"],
        optimizer=sgd(golden["momentum"], golden["sgd_weight_decay"]),
        schedule=lambda round: golden["lr0"] * golden["decay"] ** round,
        round=golden["round"],
        lr=golden["lr0"] * golden["decay"] ** golden["round"],
    )


def steps_of(golden: dict[str, Any]) -> Steps:
    x = torch.tensor(golden["x"], dtype=torch.float64).flatten(0, 1)
    y = torch.tensor(golden["y"]).flatten()
    orders = [torch.arange(len(y))] * golden["E"]  # as they come: the file has no shuffling
    return Steps(TensorSamples(x, y, Scaling(None, None)), orders, len(golden["y"][0]), {})


def after(method: Method, golden: dict[str, Any], message: Tree, start: Tree) -> Tree:
    ctx = make_context(golden)
    params, _ = descend(ctx, method.gradient, {"params": message}, {}, start, steps_of(golden))
    return params


def assert_same(ours: Tree, theirs: Tree, tolerance: float = 1e-12) -> None:
    for name, leaf in theirs.items():
        torch.testing.assert_close(ours[name], leaf, rtol=0, atol=tolerance)


def test_learning_rate_of_the_round() -> None:
    golden = read("local_sgd_fedprox.json")
    ctx = make_context(golden)
    assert FedAvg().learning_rate(ctx, golden["round"]) == pytest.approx(golden["lr_used"])


def test_fedavg() -> None:
    golden = read("local_sgd_fedprox.json")
    start = as_params(golden["init"])
    assert_same(after(FedAvg(), golden, start, start), as_params(golden["fedavg_final"]))


def test_fedprox() -> None:
    golden = read("local_sgd_fedprox.json")
    message, start = as_params(golden["fedprox_global"]), as_params(golden["init"])
    method = FedProx(mu=golden["fedprox_mu"])
    away = tree.square_norm(tree.subtract(start, message))
    assert float(method.mu / 2 * away) == pytest.approx(golden["fedprox_term_at_init"], abs=1e-12)
    assert_same(after(method, golden, message, start), as_params(golden["fedprox_final"]))


@pytest.mark.parametrize("step", ["step_cnn", "step_other"])
def test_fedasam_step(step: str) -> None:
    golden = read("fedasam.json")
    start, ctx, step = as_params(golden["init"]), make_context(golden), golden[step]
    batch = next(iter(steps_of(golden)))
    method = FedASAM(rho=step["rho"], eta=step["eta"])
    gradient = Method().gradient(ctx, {}, {}, start, batch)
    assert_same(gradient, as_params(step["grad"]))
    assert_same(method.ascent(start, gradient), as_params(step["eps"]))
    assert_same(method.gradient(ctx, {}, {}, start, batch), as_params(step["grad_perturbed"]))


def test_fedasam() -> None:
    golden = read("fedasam.json")
    start = as_params(golden["init"])
    step = golden["step_cnn"]
    assert FedASAM() == FedASAM(rho=step["rho"], eta=step["eta"])
    assert_same(after(FedASAM(), golden, start, start), as_params(golden["full_run_cnn_final"]))


def test_fednova_local() -> None:
    golden = read("fednova.json")["local"]
    start, ctx = as_params(golden["init"]), make_context(golden)
    update, _ = FedNova().client_update(ctx, {"params": start}, {}, steps_of(golden))
    assert float(update["weight"]) == pytest.approx(golden["a_i"], abs=1e-12)
    assert_same(update["direction"], as_params(golden["d_i"]))


def test_fednova_gradient_weights() -> None:
    golden = read("fednova.json")
    ours = gradient_weight(
        torch.tensor(golden["fednova_taus"], dtype=torch.float64), golden["momentum"]
    )
    theirs: Tensor = torch.tensor(golden["a_k"], dtype=torch.float64)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
