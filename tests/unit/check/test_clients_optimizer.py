"""A method of your own follows the clients' optimizer of the setting, or says that it doesn't."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import fedrepro as fr
from fedrepro.engine import executors
from fedrepro.engine.descent import scan
from fedrepro.engine.method import Method, Wrapper, descend, differentiate, tree
from fedrepro.engine.optim import sgd
from fedrepro.engine.tree import Tree
from support.refusals import refused

HERE = Path(__file__).name
Y = np.arange(66) % 3
X = (np.eye(3, 5)[Y] + 0.5 * np.random.default_rng(0).normal(size=(66, 5))).astype("float32")
CLIENTS = [(X[a:z], Y[a:z]) for a, z in ((0, 9), (9, 29), (29, 66))]
OTHERS: list[dict[str, Any]] = [{"momentum": 0.9}, {"weight_decay": 0.1}, {"optimizer": "adam"}]


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(executors.EXECUTORS, "vectorised", lambda *_: executors.eager)


def weights(method: Any, **keys: Any) -> torch.Tensor:
    keys = {"rounds": 2, "test": (X, Y), "lr": 0.05} | keys
    run = fr.train(method, "logistic", CLIENTS, **keys)
    return torch.cat([leaf.flatten() for leaf in run.model.state_dict().values()])


def slope_of(ctx: Any, params: Tree, batch: Tree) -> Tree:
    return differentiate(lambda now: ctx.task.loss(ctx.net(now, batch["x"]), batch), params)


@dataclass(frozen=True)
class Looped(Method):
    """FedAvg with steps of its own."""

    def client_update(self, ctx: Any, message: Tree, client_state: Tree, steps: Any) -> Any:
        def step(params: Tree, batch: Tree) -> Tree:
            return tree.subtract(params, tree.scale(slope_of(ctx, params, batch), ctx.lr))

        params = scan(step, message["params"], steps)
        return {"delta": tree.subtract(message["params"], params)}, client_state


@dataclass(frozen=True)
class OtherOptimizer(Method):
    """It takes the steps of another optimizer."""

    def client_update(self, ctx: Any, message: Tree, client_state: Tree, steps: Any) -> Any:
        return super().client_update(replace(ctx, optimizer=sgd()), message, client_state, steps)


@dataclass(frozen=True)
class Around(Wrapper):
    def client_update(self, ctx: Any, message: Tree, client_state: Tree, steps: Any) -> Any:
        return self.inner.client_update(ctx, message, client_state, steps)


@dataclass(frozen=True)
class Declared(Looped):
    uses_optimizer: ClassVar[bool] = False


@dataclass(frozen=True)
class Called(Method):
    """FedAvg by a loop that calls the setting's optimizer."""

    def client_update(self, ctx: Any, message: Tree, client_state: Tree, steps: Any) -> Any:
        def step(carry: Tree, batch: Tree) -> Tree:
            params, slope = carry["params"], slope_of(ctx, carry["params"], batch)
            change, state = ctx.optimizer.update(slope, carry["state"], params, ctx.lr)
            change = tree.apply(lambda leaf, like: leaf.to(like.dtype), change, params)
            return {"params": tree.add(params, change), "state": state}

        start = {"params": message["params"], "state": ctx.optimizer.init(message["params"])}
        params = scan(step, start, steps)["params"]
        return {"delta": tree.subtract(message["params"], params)}, client_state


@dataclass(frozen=True)
class Handed(Method):
    """FedAvg that gives ``descend`` a copy of its context."""

    def client_update(self, ctx: Any, message: Tree, client_state: Tree, steps: Any) -> Any:
        there, params = replace(ctx, seed=2), message["params"]
        params, _ = descend(there, self.gradient, message, client_state, params, steps)
        return {"delta": tree.subtract(message["params"], params)}, client_state


@dataclass(frozen=True)
class Still(Method):
    """Its clients only count: no model moves."""

    def client_update(self, ctx: Any, message: Tree, client_state: Tree, steps: Any) -> Any:
        return {"delta": tree.zeros(message["params"])}, client_state


@pytest.mark.parametrize("executor", ["sequential", "parallel", "vectorised"])
@pytest.mark.parametrize("keys", OTHERS)
@pytest.mark.parametrize(
    "method", [Looped, OtherOptimizer, [Around, Looped], ["ima", Looped], [Looped, "fedadam"]]
)
def test_one_that_takes_no_notice_of_it_is_refused(
    method: Any, keys: dict[str, Any], executor: Any
) -> None:
    with refused(key="client_update", names=(HERE, "uses_optimizer")):
        weights(method, executor=executor, **keys)


@pytest.mark.parametrize("method", [Looped, OtherOptimizer, [Around, Looped]])
def test_plain_sgd_needs_the_rate_alone(method: Any) -> None:
    wanted = weights("fedavg", executor="sequential")
    assert weights(method, executor="sequential").allclose(wanted, atol=1e-6)


@pytest.mark.parametrize("executor", ["sequential", "parallel", "vectorised"])
@pytest.mark.parametrize("keys", OTHERS)
@pytest.mark.parametrize("method", [Called, Handed, [Around], [Around, Called]])
def test_one_that_follows_it_trains(method: Any, keys: dict[str, Any], executor: Any) -> None:
    wanted = weights("fedavg", executor=executor, **keys)
    assert weights(method, executor=executor, **keys).allclose(wanted, atol=1e-4)


@pytest.mark.parametrize("method", [Declared, [Around, Declared], ["ima", Declared], Still])
def test_one_that_says_so_or_moves_nothing_trains(method: Any) -> None:
    plain, *others = (weights(method, executor="sequential", **keys) for keys in ({}, *OTHERS))
    assert all(plain.equal(other) for other in others)
