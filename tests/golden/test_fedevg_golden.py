"""FedEvg's steps, server update, and client update, as the released code computed them."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedrepro.engine.context import Context, Inputs
from fedrepro.engine.net import Net
from fedrepro.engine.optim import adam
from fedrepro.engine.steps import Steps
from fedrepro.engine.tree import Tree
from fedrepro.methods.fedevg import FedEvg
from fedrepro.methods.generating import synthetic
from fedrepro.models.classifier import Classifier

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parent / "fedevg.json").read_text(encoding="utf-8")
)


def tensor(values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def assert_same(ours: Tensor, theirs: Any) -> None:
    torch.testing.assert_close(ours, tensor(theirs), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("rounds", "last"), [(500, 1.0), (500, 0.01), (10, 0.01)])
def test_schedules(rounds: int, last: float) -> None:
    for golden, schedule in (("schedule", "ddpm"), ("cosine_annealing", "cosine")):
        steps = [
            FedEvg(schedule=schedule, last_step=last).length(Context(NET, rounds=rounds, round=t))
            for t in range(rounds)
        ]
        assert_same(tensor(steps), GOLDEN[f"{golden}_R{rounds}_10.0_{last}"])


@pytest.mark.parametrize("case", GOLDEN["server_update"], ids=lambda case: f"K={case['K']}")
def test_server_update(case: dict[str, Any]) -> None:
    sizes, x = tensor(case["sizes"]), tensor(case["x"])
    factors = tensor(case["exp_neg_sign_energy"]).reshape(len(sizes), -1)
    assert_same(torch.exp(-torch.sign(tensor(case["energy"]).reshape(factors.shape))), factors)
    gradient = synthetic.mixture_gradient(sizes / sizes.sum(), factors, tensor(case["grad"]))
    assert_same(gradient, case["mixture_grad"])
    moved = synthetic.langevin(x, gradient, tensor(case["eps"]), case["beta"], case["sigma"])
    assert_same(moved, case["unclipped"])
    ctx = Context(NET, inputs=Inputs((1, 4, 4), 3, (0.0, 1.0)))
    assert_same(FedEvg().limited(ctx, moved), case["official"])


@dataclass(frozen=True)
class LoadedArtifact:
    """One client's samples."""

    x: Tensor
    y: Tensor

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.x[rows], self.y[rows]


NET = Net(
    Classifier(nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.SiLU(), nn.Flatten()),
               nn.Linear(32, 3)).double()
)  # fmt: skip
NAMES = {
    "body.0.weight": "features.0.weight",
    "body.0.bias": "features.0.bias",
    "head.weight": "classifier.weight",
    "head.bias": "classifier.bias",
}


@pytest.mark.parametrize("case", GOLDEN["client_update"], ids=lambda case: case["ld_steps"])
def test_client_update(case: dict[str, Any]) -> None:
    """One mini-batch of six samples, a set of nine items, of which six move."""
    x, y, picked = tensor(case["X"]), torch.tensor(case["Y"]), torch.tensor(case["perm"])[:6]
    message = {"x": tensor(case["S"]), "y": torch.tensor(case["SY"])}
    params: Tree = {ours: tensor(case["init"][theirs]) for ours, theirs in NAMES.items()}
    method = FedEvg(
        chain_steps=case["ld_steps"], clip=case["threshold"], synthetic=case["ce_lambda"]
    )
    ctx = Context(
        NET,
        optimizer=adam(*case["betas"], case["weight_decay"]),
        lr=case["lr"],
        inputs=Inputs((1, 4, 4), 3, (0.0, 1.0)),
    )
    noise = tensor(case["eps"])
    items, labels = message["x"][picked], message["y"][picked]
    chain = method.moved(ctx, params, items, labels, noise)
    assert_same(chain, case["chain_final"])
    loss = method.objective(ctx, params, {"x": x, "y": y}, items, chain, labels)
    assert float(loss) == pytest.approx(case["loss"], abs=1e-6)
    steps = Steps(
        LoadedArtifact(x, y), [torch.arange(6)], 6, {"picked": picked[None], "noise": noise[None]}
    )
    update, client_state = method.client_update(ctx, message, {"start": params}, steps)
    for ours, theirs in NAMES.items():
        assert_same(client_state["params"][ours], case["official"][theirs])
    assert_same(update["gradient"], case["upload_grad"])
    assert_same(update["factor"], tensor(case["upload_weight"]).flatten())
    unlimited = replace(method, clip=0.0)
    assert not torch.equal(unlimited.moved(ctx, params, 9 * items, labels, noise), chain)
