"""A user's part does in a composition what its hooks say, or is refused."""

import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import fedrepro as fr
from fedrepro.engine import executors, tree
from fedrepro.engine.method import Method, Wrapper
from fedrepro.engine.optim import Optimizer
from fedrepro.engine.tree import Tree
from fedrepro.measures.base import Measure
from fedrepro.methods.dp import DP
from fedrepro.methods.server.base import ServerOptimizer
from support.refusals import Fault, refused

HERE = Path(__file__).name
DRAWS = np.random.default_rng(0)
Y = np.arange(66) % 3
X = (np.eye(3, 5)[Y] + 0.5 * DRAWS.normal(size=(66, 5))).astype("float32")
CLIENTS = [(X[a:z], Y[a:z]) for a, z in ((0, 9), (9, 29), (29, 66))]
DP_KEYS = {"clip": 0.1, "noise_multiplier": 1.0}


def train(method: Any, clients: Any = CLIENTS, **keys: Any) -> Any:
    return fr.train(method, "logistic", clients, **{"rounds": 3, "test": (X, Y), "lr": 0.5} | keys)


def losses(method: Any, **keys: Any) -> list[float]:
    return train(method, **keys).rounds["test_loss"].tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Mean(Method):
    """Its server moves without a server optimizer."""

    def server_update(self, ctx: Any, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        moved = tree.weighted_sum(updates["delta"], weights)
        return {**server, "params": tree.subtract(server["params"], moved)}


@dataclass(frozen=True)
class Overwritten(Method):
    """Its server calls the server optimizer, and moves without it."""

    def server_update(self, ctx: Any, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        after = super().server_update(ctx, server, updates, weights)
        moved = tree.weighted_sum(updates["delta"], weights)
        return {**after, "params": tree.subtract(server["params"], moved)}


@dataclass(frozen=True)
class Outer(Wrapper):
    """Its server takes the place of that inside."""

    def server_update(self, ctx: Any, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        moved = tree.weighted_sum(updates["delta"], weights)
        return {**server, "params": tree.subtract(server["params"], moved)}


@dataclass(frozen=True)
class Halved(Method):
    """It follows the server optimizer, half as far."""

    def server_update(self, ctx: Any, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        moved = tree.weighted_sum(updates["delta"], weights)
        return self.apply_server_optimizer(ctx, server, tree.scale(moved, 0.5))


@dataclass(frozen=True)
class Passing(Wrapper):
    """It smooths the model, and tilts the weights that it is given."""

    def aggregation_weights(self, ctx: Any, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        weights, server = self.inner.aggregation_weights(ctx, server, updates)
        tilted = weights * weights
        return tilted / tilted.sum(), server

    def server_update(self, ctx: Any, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        after = self.inner.server_update(ctx, server, updates, weights)
        return {**after, "params": tree.mix(server["params"], after["params"], 0.5)}


@dataclass(frozen=True)
class Smoothed(Wrapper):
    def server_update(self, ctx: Any, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        after = self.inner.server_update(ctx, server, updates, weights)
        return {**after, "params": tree.mix(server["params"], after["params"], 0.5)}


@dataclass(frozen=True)
class Cubed(Method):
    """It is defined by its weights."""

    def aggregation_weights(self, ctx: Any, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        return ctx.sizes**3 / (ctx.sizes**3).sum(), server


@dataclass(frozen=True)
class AnyWeights(Cubed):
    """It says that other weights will do."""

    sets_weights: ClassVar[bool] = False

    def aggregation_weights(self, ctx: Any, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        return super().aggregation_weights(ctx, server, updates)


@dataclass(frozen=True)
class Alike(Wrapper):
    """It sets weights, whatever those inside are."""

    def aggregation_weights(self, ctx: Any, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        return torch.full_like(ctx.sizes, 1 / len(ctx.sizes)), server


@dataclass(frozen=True)
class Middle(Method):
    """It takes no notice of weights."""

    def server_update(self, ctx: Any, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        middle = tree.apply(lambda leaf: leaf.median(0).values, updates["delta"])
        return self.apply_server_optimizer(ctx, server, middle)


@dataclass(frozen=True)
class Never(Wrapper):
    """Nothing calls its hook."""

    def apply_server_optimizer(self, ctx: Any, server: Tree, delta: Tree) -> Tree:
        return self.inner.apply_server_optimizer(ctx, server, delta)


@dataclass(frozen=True)
class Loop(Wrapper):
    """Its clients move by no method's training."""

    def client_update(self, ctx: Any, message: Tree, state: Tree, steps: Any) -> Any:
        return {"delta": tree.scale(message["params"], 0.1)}, state


@pytest.mark.parametrize("optimizer", ["fedadam", "fedavgm"])
@pytest.mark.parametrize(
    "method", [[Mean], [Overwritten], [Outer, "fedavg"], ["ima", Mean], [Smoothed, Mean]]
)
def test_a_server_optimizer_without_effect_is_refused(method: list[Any], optimizer: str) -> None:
    train(method)
    with refused(file=f"{HERE}:{_line_of(method)}", key="server_update"):
        train([*method, optimizer])


def _line_of(method: list[Any]) -> int:
    (deaf,) = {Mean, Overwritten, Outer} & {*method}
    return int(deaf.server_update.__code__.co_firstlineno)


@pytest.mark.parametrize("schedule", [None, [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
@pytest.mark.parametrize("method", [[Halved], [Passing, Halved], [Middle], ["ima", Halved]])
def test_one_with_an_effect_is_followed(method: list[Any], schedule: Any) -> None:
    """Also where no model moves in the first rounds."""
    keys = {} if schedule is None else {"lr_schedule": schedule}
    followed, alone = losses([*method, "fedadam"], **keys), losses(method, **keys)
    assert followed[-1] != alone[-1]


@pytest.mark.parametrize(
    "method",
    [
        *(["dp", Cubed], ["median", Cubed], ["krum", Cubed], ["aaggff_d", Cubed]),
        *([Alike, Cubed], [Alike, "feddisco"], ["dp", Alike, "fedavg"], ["median", Passing]),
        *([Outer, "fednova"], [Outer, Mean], [Outer, "ima"], [Loop, "fedprox"], [Loop, "ditto"]),
        *(["median", Smoothed, Cubed], [Never, "fedavg"]),
    ],
)
def test_a_hook_that_a_wrapper_would_never_call_is_refused(method: list[Any]) -> None:
    with refused("value", key="wrapper"):
        train(method)


@pytest.mark.parametrize(
    "method",
    [
        *(["dp", AnyWeights], ["median", AnyWeights], [Passing, Cubed], [Alike, "fedavg"]),
        *([Passing, "feddisco"], [Smoothed, "fednova"], [Outer, "fedprox"], ["ima", Cubed]),
        *(["median", Smoothed, "fedavg"], [Alike, Middle], ["norm_clip", Cubed], [Loop, "fedavg"]),
    ],
)
def test_what_calls_all_hooks_trains(method: list[Any]) -> None:
    assert np.isfinite(losses(method)).all()


def test_weights_without_effect_are_refused() -> None:
    with refused(file=HERE + f":{Middle.server_update.__code__.co_firstlineno}"):
        train(["aaggff_d", Middle])


@dataclass(frozen=True)
class Boost(Wrapper):
    def server_update(self, ctx: Any, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        after = self.inner.server_update(ctx, server, updates, weights)
        return {**after, "params": tree.subtract(after["params"], tree.take(updates["delta"], 0))}


@dataclass(frozen=True)
class Tilted(DP):
    """The noise of its sum is that of equal weights."""

    def aggregation_weights(self, ctx: Any, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        return ctx.sizes / ctx.sizes.sum(), server


@pytest.mark.parametrize(
    ("method", "keys", "fault"),
    [
        ([Boost, "dp", "fedavg"], {}, {"key": "wrapper", "value": "boost"}),
        (["ima", Boost, "dp", "fedavg"], {}, {"key": "wrapper", "value": "boost"}),
        ([Alike, "dp", "fedavg"], {}, {"key": "wrapper", "value": "alike"}),
        ([Tilted, "fedavg"], {}, {"key": "hook", "value": "aggregation_weights"}),
        ("dp+fedavg", {"class_weights": "balanced"}, {"key": "class_weights"}),
    ],
)
def test_an_epsilon_that_would_not_be_true_is_refused(
    method: Any, keys: dict[str, Any], fault: Fault
) -> None:
    with refused("value", **fault):
        train(method, **DP_KEYS, **keys)


def test_what_gets_noisy_sums_has_the_epsilon_of_them() -> None:
    plain = train("dp+fedavg", **DP_KEYS).manifest["privacy"]
    for method in (["dp", Smoothed, "fedavg"], ["dp", Boost, "fedavg"], ["ima", "dp", AnyWeights]):
        assert train(method, **DP_KEYS).manifest["privacy"] == plain
    assert train("dp+fedavg", class_weights=[1.0, 2.0, 3.0], **DP_KEYS).manifest["privacy"] == plain


@dataclass(frozen=True)
class Squares(Method):
    """With a mean of its own."""

    def loss(self, ctx: Any, message: Tree, state: Tree, params: Tree, batch: Tree) -> Tensor:
        plain = super().loss(ctx, message, state, params, batch)
        return plain + self.mean(ctx.net(params, batch["x"]) ** 2, batch)

    def mean(self, each: Tensor, batch: Tree) -> Tensor:
        return each.mean()


@dataclass(frozen=True)
class Kept(Method):
    """Only the client's state counts padding."""

    def init_client(self, ctx: Any, rng: Any) -> Tree:
        return {"seen": torch.zeros(())}

    def client_update(self, ctx: Any, message: Tree, state: Tree, steps: Any) -> Any:
        update, state = super().client_update(ctx, message, state, steps)
        batches = steps if isinstance(steps, dict) else {"x": steps.samples.at(steps.orders[0])[0]}
        return update, {"seen": state["seen"] + (batches["x"] ** 2).mean()}


@dataclass(frozen=True)
class Masked(Squares):
    def mean(self, each: Tensor, batch: Tree) -> Tensor:
        real = batch["real"] if "real" in batch else torch.ones(len(each))
        return (each.mean(1) * real).sum() / real.sum().clamp(min=1)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(executors.EXECUTORS, "vectorised", lambda *_: executors.eager)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("ends", [(9, 29, 66), (16, 36, 66)])
@pytest.mark.parametrize("method", [Squares, Kept])
def test_a_client_is_the_same_side_by_side_or_its_method_is_refused(
    method: type[Method], ends: tuple[int, ...]
) -> None:
    """Also where the client with the fewest samples has whole mini-batches only."""
    clients = [(X[a:z], Y[a:z]) for a, z in zip((0, *ends), ends, strict=False)]
    keys = {"clients": clients, "batch_size": 16}
    train(method, **keys, executor="sequential")
    with refused(file=HERE, key="client_update", names="sequential"):
        train(method, **keys, executor="vectorised")


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("lr", [1e-6, 0.5, 1e4])
@pytest.mark.parametrize("method", [Masked, ["quantised", Masked], ["top_k", Masked]])
def test_rounding_is_no_padding(method: Any, lr: float) -> None:
    """At rates at which an update is rounding alone, or grows without bound."""
    keys: dict[str, Any] = {"batch_size": 16, "lr": lr, "epochs": 5}
    with warnings.catch_warnings(action="ignore"):
        one, other = (train(method, **keys, executor=name) for name in ("sequential", "vectorised"))
    assert len(one.rounds) == len(other.rounds)


SEEN: dict[str, Tree] = {}


@dataclass(frozen=True)
class Built(ServerOptimizer):
    """Momentum, as the functions of a case keep it."""

    def build(self) -> Optimizer:
        return Optimizer(lambda params: tree.zeros(params), self._moved)

    def _moved(self, gradient: Tree, state: Tree, params: Tree, rate: Any) -> tuple[Tree, Tree]:
        state = tree.apply(lambda m, g: 0.9 * m + g, state, gradient)
        return tree.scale(state, -rate), state


@dataclass(frozen=True)
class InClosure(Built):
    def build(self) -> Optimizer:
        kept: Tree = {}

        def update(gradient: Tree, state: Tree, params: Tree, rate: Any) -> tuple[Tree, Tree]:
            kept["m"] = tree.apply(lambda m, g: m + g, kept["m"], gradient) if kept else gradient
            return tree.scale(kept["m"], -rate), state

        return Optimizer(lambda params: {}, update)


class Momentum:
    def __init__(self) -> None:
        self.m: Any = None

    def update(self, gradient: Tree, state: Tree, params: Tree, rate: Any) -> tuple[Tree, Tree]:
        self.m = gradient if self.m is None else tree.add(self.m, gradient)
        return tree.scale(self.m, -rate), state


@dataclass(frozen=True)
class InAnObject(Built):
    def build(self) -> Optimizer:
        return Optimizer(lambda params: {}, Momentum().update)


class Callable(Momentum):
    def __call__(self, *given: Any) -> Any:
        return self.update(*given)


@dataclass(frozen=True)
class Called(Built):
    def build(self) -> Optimizer:
        return Optimizer(lambda params: {}, Callable())


@dataclass(frozen=True)
class InTheModule(Built):
    def _moved(self, gradient: Tree, state: Tree, params: Tree, rate: Any) -> tuple[Tree, Tree]:
        SEEN["last"] = gradient
        return super()._moved(gradient, state, params, rate)


@dataclass(frozen=True)
class InPlace(Built):
    def _moved(self, gradient: Tree, state: Tree, params: Tree, rate: Any) -> tuple[Tree, Tree]:
        change, state = super()._moved(gradient, state, params, rate)
        return tree.apply(lambda leaf, by: leaf.add_(by).mul(0), params, change), state


@dataclass(frozen=True)
class Drawn(Built):
    def _moved(self, gradient: Tree, state: Tree, params: Tree, rate: Any) -> tuple[Tree, Tree]:
        return super()._moved(tree.apply(torch.rand_like, gradient), state, params, rate)


@dataclass(frozen=True)
class Partly(Built):
    def _moved(self, gradient: Tree, state: Tree, params: Tree, rate: Any) -> tuple[Tree, Tree]:
        change, state = super()._moved(gradient, state, params, rate)
        return dict([*change.items()][:1]), state


@dataclass(frozen=True)
class Grown(Built):
    def _moved(self, gradient: Tree, state: Tree, params: Tree, rate: Any) -> tuple[Tree, Tree]:
        change, state = super()._moved(gradient, state, params, rate)
        return change, {**state, "t": torch.ones(())}


@dataclass(frozen=True)
class Failing(Built):
    def _moved(self, gradient: Tree, state: Tree, params: Tree, rate: Any) -> tuple[Tree, Tree]:
        return {}["m"], state


@dataclass(frozen=True)
class OfTorch(Built):
    def build(self) -> Any:
        return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.1)


@dataclass(frozen=True)
class Unbuilt(Built):
    def build(self) -> Any:
        raise RuntimeError


OPTIMIZERS: list[tuple[type[Built], Fault]] = [
    *((cls, {"key": "update"}) for cls in (InClosure, InAnObject, InTheModule, InPlace, Drawn)),
    *((cls, {"key": "update"}) for cls in (Partly, Grown)),
    (Failing, {"key": "_moved", "names": "KeyError"}),
    (OfTorch, {"code": "value", "key": "build", "value": "SGD"}),
    (Called, {"key": "update"}),
    (Unbuilt, {"key": "build", "names": "RuntimeError"}),
]


@pytest.mark.parametrize("around", [[], ["ima"]])
@pytest.mark.parametrize(("optimizer", "fault"), OPTIMIZERS)
def test_a_server_optimizer_keeps_the_contract_of_hooks(
    optimizer: type[Built], fault: Fault, around: list[str]
) -> None:
    with refused(**fault):
        train([*around, "fedavg", optimizer])


@pytest.mark.parametrize("around", [[], ["ima"]])
def test_one_that_keeps_it_trains_to_the_same_bits(around: list[str]) -> None:
    one = losses([*around, "fedavg", Built], rounds=5)
    same = losses([*around, "fedavg", "fedavgm"], rounds=5, **{"fedavgm.lr": 1.0})
    assert one == pytest.approx(same)


@dataclass(frozen=True)
class Raises(Method):
    def check(self, ctx: Any) -> None:
        raise KeyError


@dataclass(frozen=True)
class Netless(Method):
    def nets(self, input_shape: Any, outputs: int) -> Any:
        raise KeyError


@dataclass(frozen=True)
class Limited(Method):
    share: float = 0.1

    def __post_init__(self) -> None:
        if self.share > 1:
            raise ValueError


@dataclass(frozen=True)
class Refusing(Wrapper):
    @classmethod
    def refuses(cls, inner: Method) -> str | None:
        raise KeyError


@dataclass(frozen=True)
class Less(Method):
    def metrics(self, ctx: Any, server: Tree) -> dict[str, float]:
        return {"mine": 1.0} if ctx.round else {"mine": 1.0, "other": 2.0}


@dataclass(frozen=True)
class More(Method):
    def metrics(self, ctx: Any, server: Tree) -> dict[str, float]:
        return {"mine": 1.0, "other": 2.0} if ctx.round else {"mine": 1.0}


class Unmade(Measure):
    words, higher_is_better, per = "unmade", True, "client"

    def __init__(self) -> None:
        raise RuntimeError

    def of_outputs(self, outputs: Any, targets: Any) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"method": Raises}, {"key": "check"}),
        ({"method": Netless}, {"key": "nets"}),
        ({"method": Limited, "share": 2.0}, {"key": "__post_init__"}),
        ({"method": [Refusing, "fedavg"]}, {"key": "refuses"}),
        ({"method": Less}, {"key": "name", "value": "other"}),
        ({"method": More}, {"key": "name", "value": "other"}),
        ({"method": "fedavg", "measures": Unmade, "test_fraction": 0.2}, {"key": "__init__"}),
    ],
)
def test_code_that_raises_before_or_between_rounds_is_one_line(
    keys: dict[str, Any], fault: Fault
) -> None:
    with refused(**fault):
        train(**keys)


class Steps(NamedTuple):
    """Functions of an object that has slots alone."""

    rate: float

    def init(self, params: Tree) -> Tree:
        return {"taken": torch.zeros(())}

    def update(self, gradient: Tree, state: Tree, params: Tree, rate: Any) -> tuple[Tree, Tree]:
        # Every second step is none.
        factor = -self.rate * (state["taken"] % 2)
        return tree.apply(lambda g: factor * g, gradient), {"taken": state["taken"] + 1}


@dataclass(frozen=True)
class EverySecond(ServerOptimizer):
    def build(self) -> Optimizer:
        return Optimizer(Steps(0.9).init, Steps(0.9).update)


@dataclass(frozen=True)
class OnceComputed(ServerOptimizer):
    @cached_property
    def rates(self) -> list[float]:
        return [0.9**power for power in range(3)]

    def build(self) -> Optimizer:
        def update(gradient: Tree, state: Tree, params: Tree, rate: Any) -> tuple[Tree, Tree]:
            return tree.scale(gradient, -self.rates[1]), state

        return Optimizer(lambda params: {}, update)


@dataclass(frozen=True)
class Decayed(Method):
    """It follows the server optimizer, and decays the weights besides."""

    def server_update(self, ctx: Any, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        after = super().server_update(ctx, server, updates, weights)
        return {**after, "params": tree.scale(after["params"], 0.999)}


@pytest.mark.parametrize("parts", [[EverySecond], [OnceComputed], [Decayed, EverySecond]])
def test_pure_server_optimizers_train_whatever_their_functions_are_of(parts: list[Any]) -> None:
    method = parts if issubclass(parts[0], Method) else ["fedavg", *parts]
    assert len(losses(method)) == 3


def test_a_server_that_decays_follows_an_optimizer_that_begins_at_0() -> None:
    assert len(losses([Decayed, "fedavgm"], lr_schedule=[0.0, 0.1, 0.1])) == 3
