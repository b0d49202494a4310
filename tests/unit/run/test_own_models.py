"""A model of the user's own: what it draws, keeps and changes is repeatable, or refused."""

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models.googlenet import GoogLeNetOutputs
from torchvision.models.inception import InceptionOutputs

import fedrepro as fr
from fedrepro.engine.modules import leaves_of
from fedrepro.models.classifier import Classifier
from fedrepro.run.store import load_tree
from fedrepro.support.errors import UserError
from support.refusals import Fault, refused

rng = np.random.default_rng(1)
LABELS = np.arange(24) % 3
INPUTS = (np.eye(3)[LABELS] + 0.3 * rng.normal(size=(24, 3))).astype("float32")
CLIENTS = [(INPUTS[:10], LABELS[:10]), (INPUTS[10:20], LABELS[10:20])]
TEST = (INPUTS, LABELS)


def trained(model: Any, **options: Any) -> fr.Run:
    # Mini-batches of 7 are tried before training, and those of 3, the last ones, are not.
    options = {"method": "fedavg", "rounds": 2, "test": TEST, "seed": 1, "batch_size": 7} | options
    return fr.train(options.pop("method"), model, CLIENTS, **options)


def losses(model: Any, **options: Any) -> list[float]:
    found: list[float] = trained(model, **options).rounds["test_loss"].tolist()
    return found


class Base(nn.Module):
    def __init__(self, shape: tuple[int, ...] = (3,), outputs: int = 3) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 6), nn.Linear(6, outputs)

    def between(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self.first(x)))  # type: ignore[no-any-return]


class Functional(Base):
    def between(self, x: Tensor) -> Tensor:
        return functional.dropout(x, 0.5, self.training)


class Noisy(Base):
    def between(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x) if self.training else x


class Gumbel(Base):
    def between(self, x: Tensor) -> Tensor:
        return functional.gumbel_softmax(x) if self.training else x.softmax(1)


class OfNumpy(Base):
    def between(self, x: Tensor) -> Tensor:
        return x * np.random.rand() if self.training else x  # noqa: NPY002


class OfPython(Base):
    def between(self, x: Tensor) -> Tensor:
        return x * random.random() if self.training else x


class Seldom(Base):
    """Draws in no forward pass that is tried before training."""

    calls = 0

    def between(self, x: Tensor) -> Tensor:
        return x * random.random() if self.training and len(x) == 3 else x


DRAWING = [
    Functional, Noisy, Gumbel, OfNumpy, OfPython, Seldom,
    lambda *_: nn.Sequential(nn.Linear(3, 6), nn.RReLU(), nn.Linear(6, 3)),
]  # fmt: skip


@pytest.mark.parametrize("model", DRAWING)
@pytest.mark.filterwarnings("ignore:.*fork")
def test_what_a_model_draws_in_training_follows_from_the_seed(
    model: Callable[[], nn.Module],
) -> None:
    losses("logistic")  # what is imported late may draw
    before = torch.get_rng_state(), random.getstate()
    whole = losses(model, rounds=3)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    random.seed(5)
    torch.manual_seed(5)
    assert whole == losses(model, rounds=3)
    assert whole != losses(model, rounds=3, seed=2)
    assert whole == losses(model, rounds=3, executor="parallel")
    if model is not Seldom:
        with refused(value="vectorised", names=("dropout", "sequential")):
            losses(model, executor="vectorised")


class Ema(Base):
    mean: Tensor

    def __init__(self, *about: Any) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def between(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.lerp_(x.detach().mean(0), 0.1)
        return x - self.mean


class Replaces(Ema):
    def between(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean


class Counts(Base):
    seen: Tensor

    def __init__(self, *about: Any) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def between(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
        return x / (1 + self.seen)


class Attribute(Base):
    calls = 0

    def between(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return x / (1 + self.calls)


class AlwaysDrops(Base):
    def between(self, x: Tensor) -> Tensor:
        return functional.dropout(x, 0.5)


class MovesInTesting(Ema):
    def between(self, x: Tensor) -> Tensor:
        self.mean.lerp_(x.detach().mean(0), 0.1)
        return x - self.mean


class LatelyReplaces(Ema):
    def between(self, x: Tensor) -> Tensor:
        if self.training and len(x) == 3:
            self.mean = x.detach().mean(0)
        return x - self.mean


class LatelyMoves(Ema):
    def between(self, x: Tensor) -> Tensor:
        if self.training and len(x) == 3:
            self.mean.copy_(x.detach().mean(0))
        return x - self.mean


class Assigns(Base):
    """A norm constraint, as EEGNet's: the step after it would miss the weight."""

    def between(self, x: Tensor) -> Tensor:
        if self.training:
            self.last.weight.data = torch.renorm(self.last.weight.data, 2, 0, 0.1)
        return x


class LatelyAssigns(Base):
    def between(self, x: Tensor) -> Tensor:
        if self.training and len(x) == 3:
            self.last.weight.data = self.last.weight.data * 0.9
        return x


class Detached(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach()


class Classes(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).argmax(1, keepdim=True).expand(-1, 3)


class SpoilsGradient(Base):
    def between(self, x: Tensor) -> Tensor:
        x = x.sigmoid()
        return x * 2 + x.mul_(3)


class Complex(nn.Module):
    def __init__(self, *about: Any) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.randn(3, 3, dtype=torch.cfloat))

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(torch.cfloat) @ self.turn).abs()


def hooked(of: str) -> nn.Module:
    model = Base()
    getattr(model.last.weight, of)(lambda gradient: None)
    return model


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        (Assigns, {"names": ("last.weight", "in place")}),
        (LatelyAssigns, {"names": ("last.weight", "in place")}),
        (Detached, {"names": ("gradient", "detach")}),
        (Classes, {"code": "value", "key": "outputs", "value": "torch.int64"}),
        (SpoilsGradient, {"names": ("train", "inplace operation")}),
        (Complex, {"code": "value", "key": "turn", "value": "torch.complex64"}),
        (lambda *_: hooked("register_hook"), {"names": ("last.weight", "hook")}),
        (hooked("register_post_accumulate_grad_hook"), {"names": ("last.weight", "hook")}),
        (lambda *_: Base().to("meta"), {"code": "value", "value": "meta"}),
        (Base().to("meta"), {"code": "value", "value": "meta"}),
        (Replaces, {"names": ("lost", "self.mean.copy_")}),
        (LatelyReplaces, {"names": ("lost", "self.mean.copy_")}),
        (LatelyMoves, {"names": ("moves_buffers", "training")}),
        (Counts, {"names": ("torch.int64", "changes")}),
        (Attribute, {"names": ("outputs", "forward")}),
        (AlwaysDrops, {"names": ("numbers", "testing")}),
        (MovesInTesting, {"names": ("changes", "testing")}),
        (lambda *_: nn.Sequential(nn.LazyLinear(3)), {"names": ("shape", "known")}),
        (lambda *_: nn.Flatten(), {"names": "parameters"}),
        (lambda *_: Base().requires_grad_(False), {"names": ("parameters", "frozen")}),
        (lambda *_: 3, {"names": ("int", "torch.nn.Module")}),
    ],
)
@pytest.mark.parametrize("executor", ["sequential", "parallel"])
def test_what_cannot_travel_or_be_repeated_is_one_line(
    model: Any, fault: Fault, executor: str
) -> None:
    with refused(**fault) as error:
        losses(model, executor=executor)
    assert "\n" not in str(error.value)


def test_a_buffer_that_moves_in_place_travels() -> None:
    """The server's is the mean of the clients'; which client trains first does not matter."""

    def mean_of(clients: Any) -> Tensor:
        run = fr.train("fedavg", Ema, clients, rounds=1, test=TEST, seed=1, lr=1e-9, batch_size=16)
        return run.model.mean  # type: ignore[return-value]

    one, other = mean_of(CLIENTS), mean_of(CLIENTS[::-1])
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    first, last = (mean_of([each]) for each in CLIENTS)
    torch.testing.assert_close(one, (first + last) / 2, rtol=0, atol=1e-6)


def test_a_layer_that_declares_it_may_move_its_buffers_later() -> None:
    class Declared(LatelyMoves):
        moves_buffers = True

    assert trained(Declared).model.mean.abs().sum() > 0  # type: ignore[operator,union-attr]


def test_batchnorm_that_counts_sends_its_count_along() -> None:
    """A cumulative mean over rounds, as one client alone would have it."""

    def model(*_: Any) -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(3, momentum=None, affine=False), nn.Linear(3, 3))

    def statistics(clients: Any, rounds: int) -> dict[str, Tensor]:
        options: Any = {"rounds": rounds, "test": TEST, "batch_size": 5, "lr": 1e-9}
        return fr.train("fedavg", model, clients, **options).model.state_dict()

    one, other = statistics(CLIENTS, 3), statistics(CLIENTS[::-1], 3)
    torch.testing.assert_close(one["0.running_mean"], other["0.running_mean"], rtol=0, atol=1e-6)
    assert one["0.num_batches_tracked"] == 6  # two mini-batches in each of three rounds
    alone = statistics(CLIENTS[:1], 3)["0.running_mean"]
    expected = torch.as_tensor(CLIENTS[0][0]).mean(0)  # all mini-batches count the same
    torch.testing.assert_close(alone, expected, rtol=0, atol=1e-6)


def pretrained() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        module = Base()
        with torch.no_grad():
            for leaf in module.parameters():
                leaf.add_(0.5)
    return module


STILL: dict[str, Any] = {"rounds": 1, "lr": 1e-12}


@pytest.mark.parametrize("weights", [None, "keep"])
def test_weights_that_the_user_brought_are_kept(weights: Any) -> None:
    module = pretrained()
    before = copy.deepcopy(module.state_dict())
    for model in (module, lambda *_: module, copy.deepcopy(module)):
        found = trained(model, weights=weights, **STILL).model.state_dict()
        for name, leaf in before.items():
            torch.testing.assert_close(found[name], leaf, rtol=0, atol=1e-6)
    losses(module, lr=1.0)
    assert all(torch.equal(leaf, before[name]) for name, leaf in module.state_dict().items())


def test_weights_are_drawn_by_the_seed_if_asked_for_or_if_nobody_brought_any() -> None:
    def first(model: Any, seed: int, weights: Any = None) -> Tensor:
        found: Tensor = trained(model, seed=seed, weights=weights, **STILL).model.first.weight  # type: ignore[assignment,union-attr]
        return found

    fresh = Base()
    ways = [
        (pretrained(), "draw"), (lambda *_: pretrained(), "draw"),
        (Base, None), (Base, "keep"), (fresh, None),
    ]  # fmt: skip
    drawn = [first(model, 1, weights) for model, weights in ways]
    for leaf in drawn[1:]:
        torch.testing.assert_close(leaf, drawn[0], rtol=0, atol=1e-6)
    for model, weights in ways:
        assert not torch.allclose(first(model, 2, weights), drawn[0], atol=1e-3)
    torch.testing.assert_close(first(fresh, 1, "keep"), fresh.first.weight, rtol=0, atol=1e-6)


def test_a_wrong_value_of_weights_is_one_line() -> None:
    with pytest.raises(UserError, match=r"weights: 'drawn'"):
        losses(Base, weights="drawn")


def test_a_saved_model_has_what_the_function_drew_once() -> None:
    class Fourier(Base):
        basis: Tensor

        def __init__(self, *about: Any) -> None:
            super().__init__()
            self.register_buffer("basis", torch.randn(3, 3), persistent=False)
            self.first.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(torch.cos(x @ self.basis))

    run = trained(Fourier)
    model = run.model
    with torch.no_grad():
        loss = functional.cross_entropy(model(torch.as_tensor(INPUTS)), torch.as_tensor(LABELS))
    assert float(loss) == pytest.approx(run.rounds["test_loss"].iloc[-1], abs=1e-6)
    assert losses(Fourier) == losses(Fourier)
    assert "basis" in leaves_of(model)


def test_a_frozen_network_that_its_forward_pass_moves_travels() -> None:
    class Teacher(Base):
        def __init__(self, *about: Any) -> None:
            super().__init__()
            self.teacher = nn.Linear(3, 6).requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                with torch.no_grad():
                    self.teacher.weight.lerp_(self.first.weight, 0.5)
            return self.last(self.first(x) + self.teacher(x))  # type: ignore[no-any-return]

    run = trained(Teacher, batch_size=4, **STILL)
    own = run.model.state_dict()
    torch.testing.assert_close(own["teacher.weight"], own["first.weight"], rtol=0, atol=0.2)
    assert losses(Teacher) == losses(Teacher, executor="parallel")


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedprox"])
@pytest.mark.parametrize("executor", ["sequential", "parallel"])
def test_a_layer_under_two_names_trains_as_under_one(method: str, executor: str) -> None:
    """PyTorch's functional_call leaves other numbers in it (its issue 164759)."""

    def twice(*_: Any) -> nn.Module:
        layer = nn.Linear(3, 3)
        return nn.Sequential(layer, nn.Tanh(), layer)

    class Once(nn.Module):
        def __init__(self, *about: Any) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.layer(x).tanh())  # type: ignore[no-any-return]

    found = trained(twice, method=method, executor=executor)
    wanted = trained(Once, method=method, executor=executor)
    assert found.rounds["test_loss"].tolist() == wanted.rounds["test_loss"].tolist()
    trained_once = wanted.model.state_dict()
    assert torch.equal(found.model.state_dict()["2.weight"], trained_once["layer.weight"])


def test_a_parameter_that_body_and_head_share_is_one_line_where_they_differ() -> None:
    def tied(*_: Any) -> nn.Module:
        body, head = nn.Linear(3, 3), nn.Linear(3, 3)
        head.weight = body.weight
        return Classifier(body, head)

    assert losses(tied) == losses(tied)
    for method in ("fedtgp", "moon", "fedper"):
        with refused(key="body.weight", names=("`body`", "`head`")):
            losses(tied, method=method)


class Cosine(nn.Module):
    """A head whose last parameter is no layer's, with or without a matrix."""

    def __init__(self, scale: Tensor, matrix: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3), requires_grad=matrix)
        self.scale = nn.Parameter(scale)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * functional.linear(x, self.weight)


@pytest.mark.parametrize("scale", [torch.tensor(1.0), torch.ones(1)])
def test_a_head_with_a_scale_has_as_many_prototypes_as_outputs(scale: Tensor) -> None:
    model = Classifier(nn.Linear(3, 3), Cosine(scale))
    assert np.isfinite(losses(model, method="fedtgp", server_epochs=2)).all()
    with refused(file="fedtgp", key="model", names=("head", "linear")):
        losses(Classifier(nn.Linear(3, 3), Cosine(scale, matrix=False)), method="fedtgp")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_scripted_module_is_one_line() -> None:
    scripted = torch.jit.script(Base())
    with refused(names=("scripted", "module")):
        losses(scripted)


def test_a_last_mini_batch_of_one_sample_is_known_before_the_first_round() -> None:
    clients = [(INPUTS[:8], LABELS[:8])] * 19 + [(INPUTS[:9], LABELS[:9])]
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    options: Any = {"test": TEST, "participation": 0.05, "batch_size": 4, "seed": 1}
    rounds = 60
    with pytest.raises(UserError, match=r"client 19 \(round (\d+)\) with 9") as error:
        fr.train("fedavg", model, clients, rounds=rounds, **options)
    before = int(str(error.value).partition("(round ")[2].partition(")")[0]) - 1
    assert 0 < before < rounds
    fr.train("fedavg", model, clients, rounds=before, **options)  # it is not asked before


class Squeezed(Base):
    """Of one sample it returns outputs without the axis of samples, and of one output a number."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).squeeze()


@pytest.mark.parametrize("outputs", [1, 3])
def test_outputs_of_one_sample_keep_its_axis(outputs: int) -> None:
    """Also where none is met: its last mini-batches and test sets may be of one sample."""
    targets = [(x, x[:, 0]) if outputs == 1 else (x, y) for x, y in (*CLIENTS, TEST)]
    task: Any = {"task": "regression"} if outputs == 1 else {}
    with refused(key="outputs", names="[1"):
        fr.train("fedavg", Squeezed, targets[:2], rounds=1, test=targets[2], **task)


class Multiplied(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mul_(2))


class Cut(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.relu_())


def test_inputs_that_are_changed_in_place_are_named_where_it_matters() -> None:
    with refused(names=("Multiplied", "inputs")):
        losses(Multiplied)
    assert losses(Cut) == losses(lambda *about: nn.Sequential(nn.ReLU(), Base()))


class Parted(nn.Module):
    """With a function between body and head, or in the body."""

    def __init__(self, between: bool) -> None:
        super().__init__()
        body = nn.Linear(3, 6)
        self.body = body if between else nn.Sequential(body, nn.ReLU())
        self.head, self.between = nn.Linear(6, 3), between

    def forward(self, x: Tensor) -> Tensor:
        features = self.body(x)
        return self.head(features.relu() if self.between else features)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("method", "off"),
    [
        ("moon", {"mu": 0.0}),
        ("feduv", {"variance": 0.0, "uniformity": 0.0}),
        ("fedtgp", {"strength": 0.0}),
    ],
)
@pytest.mark.parametrize("executor", ["sequential", "vectorised"])
def test_methods_that_train_a_body_and_a_head_train_what_is_scored_or_refuse_it(
    method: str, off: dict[str, float], executor: str
) -> None:
    with refused(key="forward"):  # before anything is compiled
        losses(partial(Parted, True), method=method, executor=executor, **off)
    if executor == "sequential":
        plain, own = (
            losses(partial(Parted, False), executor=executor, **said)
            for said in ({}, {"method": method, **off})
        )
        assert own == pytest.approx(plain, abs=1e-6)
        losses(partial(Parted, True), executor=executor)


def test_only_what_is_trained_is_sent_and_stored(tmp_path: Path) -> None:
    """Files of models lack a frozen base; a model that is built with another one is refused."""

    class Adapted(nn.Module):
        def __init__(self, *about: Any) -> None:
            super().__init__()
            self.base, self.adapter = nn.Linear(3, 6).requires_grad_(False), nn.Linear(3, 6)
            self.last = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last((self.base(x) + self.adapter(x)).relu())  # type: ignore[no-any-return]

    run = trained(Adapted, folder=tmp_path / "run")
    trains = {"adapter.weight", "adapter.bias", "last.weight", "last.bias"}
    assert load_tree(run.folder / "model.safetensors")[0].keys() == trains
    sent = sum(leaf.numel() for leaf in run.model.parameters() if leaf.requires_grad)
    assert run.rounds["bytes_up"].iloc[0] == 2 * sent * 4  # clients, bytes
    inputs, labels = map(torch.as_tensor, TEST)
    loss = functional.cross_entropy(run.model(inputs), labels).item()
    assert loss == pytest.approx(run.rounds["test_loss"].iloc[-1], abs=1e-6)
    again = trained(Adapted, initial=run.folder / "model.safetensors", **STILL)
    assert again.rounds["test_loss"].iloc[-1] == pytest.approx(loss, abs=1e-6)
    other = replace(run, architecture=lambda *about: fresh)
    fresh = Adapted()
    with refused(names=("base.weight", "parameters")):
        _ = other.model


def test_outputs_at_each_place_are_one_line_where_samples_have_one_class() -> None:
    class Places(Base):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)[:, :, None].expand(-1, -1, 4)

    with refused("value", value=[2, 3, 4], names=("outputs", "samples")):
        losses(Places)


def test_logits_of_an_object_are_a_models_outputs() -> None:
    class Result(NamedTuple):
        hidden: Tensor
        logits: Tensor

    class Both(Base):
        def forward(self, x: Tensor) -> Any:
            return Result(x, super().forward(x))

    class Pair(Base):
        def forward(self, x: Tensor) -> Any:
            return x, super().forward(x)

    assert losses(Both) == losses(Base)
    assert isinstance(trained(Both).model(torch.as_tensor(INPUTS)), Result)
    with refused(names=("tuple", "`logits`")):
        losses(Pair)


@pytest.mark.parametrize(
    ("returned", "fault"),
    [
        (lambda out: InceptionOutputs(out, out), {"names": ("aux_logits", "returns")}),
        (lambda out: GoogLeNetOutputs(out, None, out), {"names": ("aux_logits1", "returns")}),
        (lambda out: (out, out), {"names": ("returns", "tuple")}),
        (lambda out: out.sum(), {"names": ("Tensor", "returns")}),
    ],
)
def test_what_is_returned_in_training_only_is_one_line(returned: Any, fault: Fault) -> None:
    """Auxiliary outputs would be in no loss: their layers would stay as they are."""

    class Auxiliary(Base):
        def forward(self, x: Tensor) -> Any:
            out = super().forward(x)
            return returned(out) if self.training else out

    with refused(**fault):
        losses(Auxiliary)


def test_without_auxiliary_outputs_an_object_of_torchvision_is_taken() -> None:
    class Plain(Base):
        def forward(self, x: Tensor) -> Any:
            return InceptionOutputs(super().forward(x), None)

    assert losses(Plain) == losses(Base)


def test_images_that_are_too_small_are_one_line() -> None:
    small = nn.Sequential(nn.Unflatten(1, (1, 1, 3)), nn.Conv2d(1, 1, 2), nn.Flatten())
    with refused(names=("samples", "accept")):
        losses(lambda *_: small)


def test_a_weight_whose_memory_is_not_in_order_is_like_any_other() -> None:
    def model(transposed: bool) -> Callable[..., nn.Module]:
        def build(*about: Any) -> nn.Module:
            module = Base()
            weight = module.first.weight.detach()
            turned = weight.T.contiguous().T if transposed else weight
            module.first.weight = nn.Parameter(turned)
            return module

        return build

    assert losses(model(True)) == pytest.approx(losses(model(False)), abs=1e-6)


@pytest.mark.parametrize("where", ["train", "test"])
@pytest.mark.parametrize("id", [-1, 5])
def test_an_id_beyond_the_vocabulary_is_one_line_before_training(where: str, id: int) -> None:
    ids = np.arange(24).reshape(12, 2) % 5
    strange = ids.copy()
    strange[9, 1] = id
    model = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 2))
    clients = [(ids, LABELS[:12] % 2), (strange if where == "train" else ids, LABELS[:12] % 2)]
    test = (strange, LABELS[:12] % 2)
    with refused(names=("Sequential", str(id))):
        fr.train("fedavg", model, clients, test=test, rounds=1)
    towers = [({"user": x, "item": x[:, ::-1]}, y) for x, y in clients]
    with refused(names="Towers"):
        fr.train("fedavg", Towers, towers, test=({"user": strange, "item": ids}, test[1]), rounds=1)


class Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items, self.last = nn.Embedding(5, 3), nn.Embedding(9, 3), nn.Linear(3, 2)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return self.last((self.users(user) * self.items(item.clamp(0))).sum(1))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("model", "x"),
    [("logistic", INPUTS[:, 0]), ("twonn", INPUTS[:, 0]), ("stacked_lstm", INPUTS)],
)
def test_samples_that_a_model_of_the_package_does_not_take_are_one_line(model: str, x: Any) -> None:
    with refused(names=model):
        fr.train("fedavg", model, [(x, LABELS)], rounds=1)


def test_two_parameters_in_the_same_memory_are_one_line() -> None:
    def model(*about: Any) -> nn.Module:
        module = Base()
        module.last.weight = nn.Parameter(module.first.weight.T)
        return module

    with refused(names=("first.weight", "last.weight")):
        losses(model)


def test_a_method_that_splits_the_model_says_how() -> None:
    with pytest.raises(UserError, match=r"no `body` and `head`.*Classifier\(body, head\)"):
        losses(Base, method="fedper")
