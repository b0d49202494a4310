"""Trials of models and losses see what initial weights, two samples or equal outputs would hide."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

import fedrepro as fr
from fedrepro.check.own_models import own_net
from fedrepro.engine.losses import with_loss, with_own_mean
from fedrepro.engine.modules import leaves_of
from fedrepro.engine.net import Net
from fedrepro.engine.task import TASKS
from fedrepro.engine.trials import mixes_when_testing, moved
from fedrepro.run.networks import differing
from fedrepro.support.rng import stream
from support.refusals import refused

DRAWS = np.random.default_rng(0)
Y = np.arange(60) % 3
X = (np.eye(3, 5)[Y] + 0.5 * DRAWS.normal(size=(60, 5))).astype("float32")
SIZE = 16


class Base(nn.Module):
    """A body, and a last layer or a branch that starts at zero."""

    def __init__(self, zero: str = "", least: int = 0) -> None:
        super().__init__()
        self.zero, self.least, self.memory = zero, least, torch.zeros(8)
        self.body, self.head, self.branch = nn.Linear(5, 8), nn.Linear(8, 3), nn.Linear(5, 3)
        self.factor = nn.Parameter(torch.zeros(1) if zero == "branch" else torch.ones(1))
        for leaf in self.head.parameters() if zero == "head" else ():
            nn.init.zeros_(leaf)

    def acts(self, x: Tensor) -> bool:
        return len(x) >= self.least

    def features(self, x: Tensor) -> Tensor:
        return self.body(x).relu()  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Any:
        outputs = self.factor * self.head(self.features(x))
        return outputs + self.branch(x) if self.zero == "branch" else outputs


class Stateful(Base):
    def features(self, x: Tensor) -> Tensor:
        z = super().features(x) + self.memory
        if self.training and self.acts(x):
            self.memory = z.detach().mean(0)
        return z


class Frozen(Base):
    def features(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return super().features(x)


class InPlace(Base):
    def features(self, x: Tensor) -> Tensor:
        return super().features(x.mul_(2) if self.acts(x) else 2 * x)


class Draws(Base):
    def features(self, x: Tensor) -> Tensor:
        z = super().features(x)
        return z * (torch.rand_like(z) > 0.2) if self.acts(x) else z


class InTesting(Base):
    """In chunks of test samples that are larger than mini-batches."""

    def features(self, x: Tensor) -> Tensor:
        return super().features(x if self.training or len(x) < 50 else x.mul_(2))


class Centred(Base):
    def features(self, x: Tensor) -> Tensor:
        z = super().features(x)
        return z - z.mean(0)


def trained(model: Any, **keys: Any) -> fr.Run:
    keys = dict[str, Any]({"rounds": 1, "test": (X, Y), "batch_size": SIZE}) | keys
    return fr.train("fedavg", model, [(X[:30].copy(), Y[:30]), (X[30:].copy(), Y[30:])], **keys)


@pytest.mark.parametrize("zero", ["", "head", "branch"])
@pytest.mark.parametrize("model", [Stateful, Frozen, InPlace, Draws])
def test_initial_weights_of_zero_hide_nothing(model: Callable[[str], nn.Module], zero: str) -> None:
    with refused(file="model"):
        trained(lambda: model(zero), weight_decay=0.5)
    trained(lambda: Base(zero), weight_decay=0.5)


@pytest.mark.parametrize("model", [Stateful, InPlace, Draws, InTesting])
def test_what_a_model_does_with_a_whole_mini_batch_or_chunk_is_seen(model: Any) -> None:
    with refused(file="model"):
        trained(lambda: model("", SIZE))


@pytest.mark.parametrize("zero", [False, True])
def test_whether_outputs_are_those_of_head_and_body_is_seen(zero: bool) -> None:
    class Between(nn.Module):
        def __init__(self, relu: bool) -> None:
            super().__init__()
            self.body, self.head, self.relu = nn.Linear(5, 8), nn.Linear(8, 3), relu
            for leaf in self.head.parameters() if zero else ():
                nn.init.zeros_(leaf)

        def forward(self, x: Tensor) -> Any:
            return self.head(self.body(x).relu() if self.relu else self.body(x))

    for relu in (False, True):
        net = own_net("mine", partial(Between, relu), stream(0, "x"), torch.randn(2, 5), 3)
        assert net.own and net.own.features == (0 if relu else 8)


@pytest.mark.parametrize("zero", ["", "head", "branch"])
def test_clients_are_scored_alone_where_samples_change_each_other(zero: str) -> None:
    x = X.copy()
    x[1:30] = x[0]  # so that the first ones tell nothing
    rows = differing(x)
    assert rows[:2] == [0, 30] and sorted(rows) == [*range(60)]
    for model, mixes in ((Centred, True), (Base, False)):
        net = Net(model(zero))
        before = {name: leaf.clone() for name, leaf in leaves_of(net.module).items()}
        assert mixes_when_testing(net, torch.as_tensor(x[rows[:8]])) == mixes
        for name, leaf in leaves_of(net.module).items():
            assert torch.equal(leaf, before[name])


# --- models that are right ------------------------------------------------------------------------
class Of(nn.Module):
    """A layer, and what is done with it and a parameter of its own."""

    def __init__(self, own: Tensor, act: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.last, self.own, self.act = nn.Linear(5, 3), nn.Parameter(own), act

    def forward(self, x: Tensor) -> Any:
        return self.act(self, self.last(x))


class Trimmed(nn.Module):
    """Words up to the longest text's end: the rest is padding, whose row is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        ids = x.abs().round().long().clamp(0, 8)
        longest = int((ids > 0).sum(1).max())
        return self.last(self.words(ids.sort(1, descending=True).values[:, :longest]).sum(1))


def simplex(module: Any, z: Tensor) -> Tensor:
    assert abs(float(module.own.detach().sum()) - 1) < 1e-3, "weights of a mixture"
    return z * module.own  # type: ignore[no-any-return]


def tied() -> nn.Module:
    first = nn.Linear(5, 5)
    return nn.Sequential(first, nn.ReLU(), first, nn.Linear(5, 3))


RIGHT: dict[str, Callable[[], nn.Module]] = {
    "logarithm of a positive number": lambda: Of(torch.tensor(0.01), lambda m, z: z * m.own.log()),
    "logarithm of a probability": lambda: Of(
        torch.tensor(0.999), lambda m, z: z * torch.log1p(-m.own)
    ),
    "weights that it checks": lambda: Of(torch.tensor([0.25, 0.25, 0.5]), simplex),
    "layer scale": lambda: Of(torch.full((3,), 1e-6), lambda m, z: z + m.own * z.sin()),
    "spectral norm": lambda: parametrizations.spectral_norm(nn.Linear(5, 3)),
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(5, 3)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(5, 3)),
    "batch norm": lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3)),
    "tied": tied,
    "trimmed": Trimmed,
    "first in place": lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 3)),
    "frozen": lambda: nn.Sequential(nn.Linear(5, 4).requires_grad_(False), nn.Linear(4, 3)),
}


@pytest.mark.parametrize("model", RIGHT.values(), ids=RIGHT.keys())
def test_a_model_that_is_right_is_taken_and_left_as_it_was(model: Callable[[], Any]) -> None:
    states = torch.get_rng_state(), random.getstate()
    x = torch.as_tensor(3 * X[:SIZE])
    made: list[nn.Module] = []
    net = own_net("mine", lambda: made.append(model()) or made[-1], stream(0, "x"), x, 3)  # type: ignore[func-returns-value]
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    fresh = net.init(stream(0, "x"))
    kept = leaves_of(made[0])
    assert all(torch.equal(kept[name], leaf) for name, leaf in fresh.items())
    assert net.own and net.own.mixes == (model is RIGHT["batch norm"])
    trained(model, lr=1e-9)


def test_weights_are_moved_only_where_the_model_works_with_them() -> None:
    for name, at in (("weights that it checks", True), ("layer scale", False)):
        module = RIGHT[name]()
        before = {key: leaf.clone() for key, leaf in leaves_of(module).items()}

        def same(module: nn.Module = module, before: Any = before) -> bool:
            return all(torch.equal(leaf, before[key]) for key, leaf in leaves_of(module).items())

        with moved(module, partial(module, torch.ones(2, 5))):
            assert same() == at
        assert same()


# --- losses ---------------------------------------------------------------------------------------
def hinged(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """The mean over samples with a loss above 0: at the start, over all."""
    each = (functional.cross_entropy(outputs, targets, reduction="none") - 0.3).clamp(min=0)
    return each if reduction == "none" else each.sum() / (each > 0).sum().clamp(min=1)


def hardest(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    each = functional.mse_loss(outputs, targets, reduction="none")
    return each if reduction == "none" else each.flatten().topk(len(each) // 4).values.mean()


def confident(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    each = functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    sure = outputs.abs() > 2
    return each if reduction == "none" else torch.where(sure, each, 0.5 * each).mean()


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize(
    ("task", "loss", "alone"),
    [
        ("classification", hinged, True),
        ("regression", hardest, True),
        ("multi_label", confident, True),
        ("binary", confident, True),
        ("classification", nn.CrossEntropyLoss(), False),
        ("classification", nn.CrossEntropyLoss(label_smoothing=0.1), False),
        ("classification", nn.MultiMarginLoss(), False),
        ("classification", nn.NLLLoss(), False),
        ("regression", nn.MSELoss(), False),
        ("regression", nn.HuberLoss(), False),
        ("regression", nn.PoissonNLLLoss(), False),
        ("regression", nn.KLDivLoss(), False),
        ("regression", nn.BCELoss(), False),  # of probabilities alone
        ("multi_label", nn.BCEWithLogitsLoss(), False),
        ("multi_label", nn.MultiLabelSoftMarginLoss(), False),
        ("binary", nn.BCEWithLogitsLoss(), False),
    ],
)
def test_a_mean_is_the_loss_s_own_if_outputs_of_any_size_tell(
    task: str, loss: Any, alone: bool
) -> None:
    """Those of the initial model, which are all the same here, do not."""
    kinds = {
        "classification": (3, torch.as_tensor(Y)),
        "binary": (1, torch.as_tensor(Y > 0).long()),
        "multi_label": (2, torch.as_tensor(X[:, :2] > 0).float()),
        "regression": (2, torch.full((60, 2), 0.5)),
    }
    width, targets = kinds[task]
    outputs = torch.full((32, width), 0.5)
    made = with_own_mean(with_loss(TASKS[task], "mine", loss, "cpu"), outputs, targets)
    assert made.of_mean == alone


def sampled(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of one class, at most eight samples count."""
    each = functional.cross_entropy(outputs, targets, reduction="none")
    many = torch.nonzero(targets == 0).flatten()
    if len(many) <= 8:
        return each
    out = many[torch.randperm(len(many))[8:]]
    return each * torch.ones(len(targets)).index_fill(0, out, 0.0)


def of_whole_batches(outputs: Tensor, targets: Tensor) -> Tensor:
    each = functional.cross_entropy(outputs, targets, reduction="none")
    return each * torch.rand(()) if len(targets) == SIZE else each


class Average(nn.Module):
    """A moving average of outputs, which clients would share."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(0.1 * outputs.detach().mean(0))  # type: ignore[operator]
        return functional.cross_entropy(outputs - self.mean, targets, reduction="none")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "loss"), [(each.__name__, each) for each in (sampled, of_whole_batches, Average)]
)
def test_a_loss_that_draws_or_keeps_is_seen_whatever_the_samples(name: str, loss: Any) -> None:
    states, name = torch.get_rng_state(), loss.__name__
    loss = loss() if isinstance(loss, type) else loss
    with refused(file=f"loss {name}"):
        trained(lambda: zeros(nn.Linear(5, 3)), loss=loss)
    assert torch.equal(torch.get_rng_state(), states)


def zeros(layer: nn.Module) -> nn.Module:
    for leaf in layer.parameters():
        nn.init.zeros_(leaf)
    return layer


def test_calibration_of_probabilities_is_that_of_their_logits() -> None:
    def nll(p: Tensor, targets: Tensor) -> Tensor:
        return functional.nll_loss(p.clamp_min(1e-9).log(), targets, reduction="none")

    def net(*end: nn.Module) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 3), *end)

    keys: dict[str, Any] = {"rounds": 10, "lr": 1.0, "test": None, "test_fraction": 0.5}
    logits = trained(lambda: net(), **keys).clients
    made = trained(lambda: net(nn.Softmax(1)), loss=nll, **keys).clients
    for name in ("accuracy", "loss", "ece", "mce"):
        assert made[name].to_numpy() == pytest.approx(logits[name].to_numpy(), abs=1e-4)
