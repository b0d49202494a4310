"""Models that few would write: the numbers of plain PyTorch, or one line before training."""

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedrepro as fr
from support.refusals import refused

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(30, 5)).astype("float32")
Y = np.arange(30) % 3


class Checkpointed(nn.Module):
    """Its first layer is frozen, as where only the last ones are tuned."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.stem = nn.Linear(5, 8).requires_grad_(False)
        self.block, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        z = self.stem(x).requires_grad_()
        kept = torch.utils.checkpoint.checkpoint(self.block, z, use_reentrant=self.reentrant)
        return self.head(kept.relu())


def test_a_checkpointed_layer_trains_or_is_refused() -> None:
    with refused(names="use_reentrant=False"):
        fr.train("fedavg", Checkpointed(True), [(X, Y)], rounds=1, test=(X, Y), batch_size=30)
    torch.manual_seed(0)
    net = Checkpointed(False)
    plain = copy.deepcopy(net)
    optimizer = torch.optim.SGD([p for p in plain.parameters() if p.requires_grad], 0.1)
    nn.functional.cross_entropy(plain(torch.as_tensor(X)), torch.as_tensor(Y)).backward()
    optimizer.step()
    run = fr.train(
        "fedavg", net, [(X, Y)], rounds=1, test=(X, Y), weights="keep", batch_size=30, lr=0.1
    )
    for one, other in zip(run.model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


class Centred(nn.Module):
    """It subtracts the mean of the mini-batch."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(x - x.mean(0) if self.training else x)


class ByFrequency(nn.Module):
    """A word's gradient is divided by how often it occurs in the mini-batch."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(9, 4, scale_grad_by_freq=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.words(x).mean(1))


@pytest.mark.parametrize("model", [Centred, ByFrequency])
def test_samples_that_change_each_other_are_not_padded(model: Callable[[], nn.Module]) -> None:
    x = X.copy() if model is Centred else RANDOM.integers(0, 9, (30, 5))
    x[1] = x[0]  # so that the first two samples tell nothing
    clients = [(x[:20], Y[:20]), (x[20:], Y[20:])]
    with refused(file="executor", value="vectorised"):
        fr.train("fedavg", model, clients, rounds=1, test=(x, Y), executor="vectorised")


class Forces(nn.Module):
    """It takes a gradient in its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(5, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Any:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            energy = self.head(torch.tanh(self.body(x))).sum()
            return torch.autograd.grad(energy, x, create_graph=self.training)[0]


def test_a_gradient_in_the_forward_pass_is_scored() -> None:
    run = fr.train("fedavg", Forces, [(X, -X)], rounds=1, test=(X, -X), task="regression")
    wanted = torch.nn.functional.mse_loss(run.model(torch.as_tensor(X)), torch.as_tensor(-X))
    assert run.rounds["test_loss"].iloc[-1] == pytest.approx(float(wanted), rel=1e-4)


class SilentTrain(nn.Module):
    """Its `train` returns nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.norm.eval()

    def forward(self, x: Tensor) -> Any:
        return self.head(self.norm(self.body(x)))


def test_a_train_that_returns_nothing() -> None:
    run = fr.train("fedavg", SilentTrain, [(X, Y)], rounds=1, test=(X, Y))
    assert run.model(torch.as_tensor(X)).shape == (30, 3)


class Short(nn.Module):
    """Its rows are within a norm: by their layer, or by what the line of its refusal says."""

    def __init__(self, by_layer: bool) -> None:
        super().__init__()
        self.by_layer, norm = by_layer, 0.7 if by_layer else None
        self.rows, self.last = nn.Embedding(20, 6, max_norm=norm), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Any:
        if self.training and not self.by_layer:
            self.rows.weight.data.renorm_(2.0, 0, 0.7)
        return self.last(self.rows(x).mean(1))


def test_an_embedding_with_a_largest_norm_has_a_repair_that_is_the_same() -> None:
    x = RANDOM.integers(0, 20, (30, 4))
    plain, repaired = Short(True), Short(False)
    repaired.load_state_dict(plain.state_dict())
    with refused(key="rows.weight", names=("max_norm", "renorm_", "0.7")):
        fr.train("fedavg", plain, [(x, Y)], rounds=1)
    begun: dict[str, Any] = {"rounds": 9, "lr": 1.0, "batch_size": 30, "weights": "keep"}
    run = fr.train("fedavg", repaired, [(x, Y)], test=(x, Y), **begun)
    optimizer = torch.optim.SGD(plain.parameters(), 1.0)
    for _ in range(9):
        optimizer.zero_grad()
        nn.functional.cross_entropy(plain(torch.as_tensor(x)), torch.as_tensor(Y)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    used = torch.as_tensor(x).unique()  # rows that are never looked up stay as they are
    assert torch.allclose(run.model.rows.weight[used], plain.rows.weight[used], atol=1e-5)
    assert torch.allclose(run.model.last.weight, plain.last.weight, atol=1e-5)


class HeadOnly(nn.Module):
    """Its state dict has its head only, as of code that fine-tunes."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.norm(self.body(x)).relu())

    def state_dict(self, *args: Any, **keys: Any) -> Any:
        whole = super().state_dict(*args, **keys)
        return {name: leaf for name, leaf in whole.items() if name.startswith("head")}


class LoadsHead(HeadOnly):
    def load_state_dict(self, state: Any, *args: Any, **keys: Any) -> Any:
        own = {name: leaf for name, leaf in state.items() if name.startswith("head")}
        return super().load_state_dict(own, *args, **keys)


class Renamed(HeadOnly):
    """Its state dict has other names, which it takes."""

    def state_dict(self, *args: Any, **keys: Any) -> Any:
        whole = nn.Module.state_dict(self, *args, **keys)
        return {f"own.{name}": leaf for name, leaf in whole.items()}

    def load_state_dict(self, state: Any, *args: Any, **keys: Any) -> Any:
        own = {name.removeprefix("own."): leaf for name, leaf in state.items()}
        return super().load_state_dict(own, *args, **keys)


class ByData(HeadOnly):
    """It takes its own names only, and writes where autograd does not look."""

    def state_dict(self, *args: Any, **keys: Any) -> Any:
        whole = nn.Module.state_dict(self, *args, **keys)
        return {f"own.{name}": leaf for name, leaf in whole.items()}

    def load_state_dict(self, state: Any, *args: Any, **keys: Any) -> Any:
        for name, leaf in nn.Module.state_dict(self).items():
            leaf.data.copy_(state[f"own.{name}"])


@pytest.mark.parametrize("model", [HeadOnly, Renamed, ByData])
def test_initial_weights_of_a_module_are_all_that_it_has(model: Callable[[], nn.Module]) -> None:
    trained = model()
    for leaf in (*trained.parameters(), *(each for each in trained.buffers() if each.ndim)):
        leaf.data.add_(torch.rand(leaf.shape))
    begun: dict[str, Any] = {"rounds": 1, "test": (X, Y), "lr": 1e-9}
    run = fr.train("fedavg", model, [(X, Y)], initial=trained, **begun)
    for one, other in zip(run.model.parameters(), trained.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    if model is Renamed:
        fr.train("fedavg", model, [(X, Y)], initial=trained.state_dict(), **begun)


@pytest.mark.parametrize(
    ("model", "initial"), [(HeadOnly, HeadOnly().state_dict()), (LoadsHead, LoadsHead())]
)
def test_initial_weights_that_are_left_out_are_asked_for(model: Any, initial: Any) -> None:
    with refused("missing", key="initial.body.bias"):
        fr.train("fedavg", model, [(X, Y)], rounds=1, initial=initial)


class Scaled(nn.Module):
    """A number of its own is extra state."""

    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.head, self.factor = nn.Linear(5, 3), factor

    def get_extra_state(self) -> Any:
        return {"factor": self.factor, "of": [np.ones(2), torch.ones(2)]}

    def set_extra_state(self, state: Any) -> None:
        self.factor = state["factor"]

    def forward(self, x: Tensor) -> Any:
        return self.head(x * self.factor)


def test_initial_weights_of_a_module_with_extra_state() -> None:
    run = fr.train("fedavg", Scaled, [(X, Y)], rounds=1, test=(X, Y))
    begun = {"rounds": 1, "test": (X, Y), "initial": run.model}
    assert len(fr.train("fedavg", Scaled, [(X, Y)], **begun).rounds) == 1
    begun["initial"] = Scaled(3.0)
    with refused(key="initial._extra_state"):
        fr.train("fedavg", Scaled, [(X, Y)], **begun)


class Preallocated(nn.Module):
    """Its outputs lie in memory of its own, or are copied from there."""

    def __init__(self, copies: bool) -> None:
        super().__init__()
        self.last, self.results, self.copies = nn.Linear(5, 3), torch.zeros(500, 3), copies

    def forward(self, x: Tensor) -> Any:
        if torch.is_grad_enabled():
            return self.last(x)
        outputs = torch.add(x @ self.last.weight.T, self.last.bias, out=self.results[: len(x)])
        return outputs.clone() if self.copies else outputs


def test_outputs_that_the_next_pass_overwrites_are_refused() -> None:
    def right(outputs: Any, targets: Any) -> float:
        return float((outputs.argmax(1) == targets).mean())

    clients = [(X[:20], Y[:20]), (X[20:], Y[20:])]
    keys: dict[str, Any] = {"rounds": 1, "test_fraction": 0.5, "measures": right}
    with refused(key="outputs"):
        fr.train("fedavg", lambda: Preallocated(False), clients, **keys)
    run = fr.train("fedavg", lambda: Preallocated(True), clients, **keys)
    assert run.clients["right"].to_numpy() == pytest.approx(run.clients["accuracy"].to_numpy())


class Viewed(nn.Module):
    """Its statistics are views of one tensor, which is a buffer or not."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.last, table = nn.Linear(5, 3), torch.zeros(2, 5)
        if kind == "buffer":
            self.register_buffer("table", table)
        self.register_buffer("mean", table[0])
        self.register_buffer("size", table[1] if kind != "columns" else torch.zeros(5, 2)[:, 0])
        if kind == "constant":
            self.register_buffer("ones", torch.ones(4))
            self.register_buffer("one", self.ones[:1])

    def forward(self, x: Tensor) -> Any:
        if self.training:
            self.mean.copy_(x.detach().mean(0))
        return self.last((x - self.mean) / (1 + self.size))


@pytest.mark.parametrize("kind", ["buffer", "rows", "columns", "constant"])
def test_a_constant_in_the_memory_of_what_changes_is_refused_before_the_run(kind: str) -> None:
    clients = [(X[:20], Y[:20]), (X[20:], Y[20:])]
    keys: dict[str, Any] = {"rounds": 2, "test": (X, Y), "weights": "keep"}
    if kind == "buffer":
        with refused(key="mean"):
            fr.train("fedavg", Viewed(kind), clients, **keys)
        return
    run = fr.train("fedavg", Viewed(kind), clients, **keys)
    loss = nn.functional.cross_entropy(run.model(torch.as_tensor(X)), torch.as_tensor(Y))
    assert run.rounds["test_loss"].iloc[-1] == pytest.approx(float(loss.detach()), rel=1e-4)


class Closing(nn.Module):
    """Functions that it holds close over it, as hooks and activations may."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(5, 16), nn.Linear(16, 16), nn.Linear(16, 3)
        self.register_buffer("mean", torch.zeros(16))
        self.kept: Any = {}
        self.act: Any = {"act": lambda z: z}
        self.acts: Any = []
        inner = self.scaled
        if kind == "hook":
            self.first.register_forward_hook(lambda _, __, z: self.kept.update(z=z))
        elif kind == "layer":
            self.act = {"act": lambda z, layer=self.last: z - self.mean}
        elif kind == "method":
            self.act = {"act": lambda z: inner(z)}
        elif kind == "mode":
            self.act = {"act": lambda z: nn.functional.dropout(z, 0.5, self.training)}
        elif kind == "default":
            self.act = {"act": lambda z, of=self: of.scaled(z)}
        elif kind == "partial":
            self.act = {"act": functools.partial(lambda of, z: z + of * inner(z), 1)}
        elif kind == "list":
            self.acts = [lambda z: z - self.mean, (inner,)]
        elif kind == "itself":

            def down(z: Tensor, times: int = 2) -> Any:
                return down(self.scaled(z), times - 1) if times else z

            self.act = {"act": down}

    def scaled(self, z: Tensor) -> Tensor:
        return z * (2 if self.training else 1)

    def forward(self, x: Tensor) -> Any:
        z = self.act["act"](self.middle(self.first(x)).relu())
        for act in self.acts:
            z = act[0](z) if isinstance(act, tuple) else act(z)
        if self.training:
            self.mean.copy_(0.5 * self.mean + 0.5 * z.detach().mean(0))
        return self.last(z + self.kept.pop("z", 0))


@pytest.mark.parametrize("executor", ["sequential", "parallel"])
@pytest.mark.parametrize(
    "kind", ["hook", "layer", "method", "mode", "default", "partial", "list", "itself"]
)
def test_functions_that_refer_to_the_module_refer_to_its_copies(kind: str, executor: Any) -> None:
    """In plain PyTorch, a model that is built anew for each client."""

    def built() -> nn.Module:
        torch.manual_seed(0)
        return Closing(kind).eval()

    given, clients = built(), [(X[:20], Y[:20]), (X[20:], Y[20:])]
    keys: dict[str, Any] = {"rounds": 2, "batch_size": 30, "lr": 0.1, "executor": executor}
    test = {"test": (X, Y)}
    run = fr.train("fedavg", given, clients, weights="keep", **keys, **test)
    assert given.kept == {} and not given.training
    if kind == "mode":  # which draws: it trains, and does not in testing
        plain = fr.train("fedavg", Closing("none"), clients, weights="keep", **keys, **test)
        assert not torch.equal(run.model.last.weight, plain.model.last.weight)
    else:
        world = built().state_dict()
        for _ in range(2):
            ends = []
            for x, y in clients:
                own = built().train()
                own.load_state_dict(world)
                optimizer = torch.optim.SGD(own.parameters(), 0.1)
                outputs = own(torch.as_tensor(x))
                nn.functional.cross_entropy(outputs, torch.as_tensor(y)).backward()
                optimizer.step()
                ends.append(own.state_dict())
            world = {name: (2 * ends[0][name] + ends[1][name]) / 3 for name in world}
        for name, leaf in run.model.state_dict().items():
            assert torch.allclose(leaf, world[name], atol=1e-5), name
    outputs = run.model(torch.as_tensor(X))
    loss = nn.functional.cross_entropy(outputs, torch.as_tensor(Y))
    assert run.rounds["test_loss"].iloc[-1] == pytest.approx(float(loss.detach()), rel=1e-4)
