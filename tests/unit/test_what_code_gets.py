"""What a user's model, loss and measure get is what PyTorch gives them, and numbers follow."""

import copy
import json
import shutil
import tempfile
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

import fedrepro as fr
from fedrepro.engine import evaluate
from fedrepro.measures.base import Measure
from fedrepro.models.classifier import Classifier
from support.manifests import write_manifest
from support.refusals import refused

DRAWS = np.random.default_rng(0)
CLASSES = np.arange(30) % 3
ONE_HOT = np.eye(3, dtype="float32")[CLASSES]


class Hashed(nn.Module):
    """A hash embedding: its products need 64 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.last = nn.Embedding(16, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.rows(x * 48271 % 2147483647 % 16).mean(1))  # type: ignore[no-any-return]


class Inverted(nn.Module):
    """Of truth values ``~x`` is true where they are false; of whole numbers it is below 0."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last((~x).float())  # type: ignore[no-any-return]


@pytest.mark.parametrize("given_as", ["alone", "in a dict", "in a tuple"])
@pytest.mark.parametrize(
    ("model", "x"),
    [
        (Hashed, DRAWS.integers(0, 2_000_000, (30, 5))),
        (Hashed, np.random.default_rng(1).integers(0, 2**62, (30, 5))),
        (Inverted, DRAWS.random((30, 5)) > 0.5),
        (lambda: nn.Linear(5, 3), DRAWS.random((30, 5)).astype("float32")),
    ],
)
def test_a_step_is_that_of_a_loop_in_pytorch(model: Any, x: Any, given_as: str) -> None:
    torch.manual_seed(0)
    net: nn.Module = model()
    plain = copy.deepcopy(net)
    functional.cross_entropy(plain(torch.as_tensor(x)), torch.as_tensor(CLASSES)).backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD(plain.parameters(), 0.1).step()
    name = "input" if isinstance(net, nn.Linear) else "x"
    inputs = {"alone": x, "in a dict": {name: x}, "in a tuple": (x,)}[given_as]
    run = fr.train(
        "fedavg", net, [(inputs, CLASSES)], rounds=1, weights="keep", lr=0.1, batch_size=30,
        test=(inputs, CLASSES),
    )  # fmt: skip
    for one, other in zip(run.model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("hidden", [1, 3])
def test_a_client_none_of_whose_targets_counts_has_no_loss(hidden: int) -> None:
    x = DRAWS.random((30, 5)).astype("float32")
    clients = [(x, CLASSES), (x[::-1].copy(), CLASSES)]
    clients += [(x * number, np.full(30, 1)) for number in range(hidden)]
    loss = nn.CrossEntropyLoss(ignore_index=1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = fr.train("fedavg", "logistic", clients, rounds=2, loss=loss, test_fraction=0.3)
    last = run.clients[run.clients["round"] == 2]
    assert last["loss"].isna().sum() == hidden and len(run.rounds) == 2
    assert run.rounds["client_loss"].iloc[-1] == pytest.approx(last["loss"].mean())
    assert any("loss: no value for" in str(each.message) for each in said)


def test_a_loss_of_outputs_that_are_not_finite_ends_the_run() -> None:
    x = DRAWS.random((30, 5)).astype("float32") * 1e30
    loss = nn.CrossEntropyLoss(ignore_index=1)
    run = fr.train("fedavg", "logistic", [(x, CLASSES)], rounds=4, loss=loss, lr=1e30)
    assert run.manifest["diverged_at"] == 1


class Shifted(nn.Module):
    """A layer behind a shift that stays, under any name."""

    def __init__(self, name: str, buffer: bool) -> None:
        super().__init__()
        self.last, self.name, shift = nn.Linear(5, 3), name, torch.full((5,), 0.1)
        if buffer:
            self.register_buffer(name, shift)
        else:
            setattr(self, name, nn.Parameter(shift, requires_grad=False))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x - getattr(self, self.name))  # type: ignore[no-any-return]


@pytest.mark.parametrize("buffer", [True, False])
@pytest.mark.parametrize("method", ["apfl", "pfedme", "scaffold"])
def test_a_constants_name_is_no_branch_of_a_methods_trees(method: str, buffer: bool) -> None:
    """Methods call branches of models so: a constant of that name is not taken for one."""
    x = DRAWS.random((30, 5)).astype("float32")
    given: dict[str, Any] = {"inner_steps": 2} if method == "pfedme" else {}
    rounds = []
    for name in ("shift", "shared", "local", "federated", "personal", "params", "c"):
        torch.manual_seed(0)
        clients = [(x, CLASSES), (x[::-1].copy(), CLASSES)]
        run = fr.train(method, Shifted(name, buffer), clients, rounds=2, batch_size=10, **given)
        rounds.append(run.rounds)
    assert all(each.equals(rounds[0]) for each in rounds)


@pytest.mark.parametrize(
    "given", [{"momentum": 0.9}, {"weight_decay": 0.3}, {"optimizer": "adam"}, {}]
)
def test_an_optimizer_that_a_method_would_not_use_is_refused(given: dict[str, Any]) -> None:
    clients = [(ONE_HOT, CLASSES)] * 2
    with refused(key="optimizer") if given else nullcontext():
        fr.train("pfedme", "logistic", clients, rounds=1, inner_steps=2, test_fraction=0.3, **given)
    fr.train("pfedme", "logistic", clients, rounds=1, test_fraction=0.3, **given)


@pytest.mark.parametrize("head", ["plain", "normalised", "places"])
def test_prototypes_have_as_many_numbers_as_features(head: str) -> None:
    """Also where the head's first matrix does not say how many."""

    def net() -> nn.Module:
        last: nn.Module = nn.Linear(6, 3)
        if head == "normalised":
            last = nn.utils.parametrizations.weight_norm(last)
        if head == "places":  # a matrix of one number for each class, before one of features
            last = nn.Sequential(nn.Unflatten(1, (6, 1)), nn.Linear(1, 1), nn.Flatten(), last)
        return Classifier(nn.Sequential(nn.Linear(3, 6), nn.Tanh()), last)

    clients = [(ONE_HOT, CLASSES)] * 2
    run = fr.train("fedtgp", net, clients, rounds=1, test=clients[0], server_epochs=1)
    numbers = sum(leaf.numel() for leaf in run.model.parameters())
    assert run.rounds["bytes_down"][0] == 2 * 4 * (numbers + 3 * 6 + 1)


class Adapted(nn.Module):
    """A model that gives an optimizer a part of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).relu())  # type: ignore[no-any-return]

    def parameters(self, recurse: bool = True) -> Any:
        return self.head.parameters(recurse)


def test_other_parameters_than_the_named_ones_are_refused_unless_they_are_frozen() -> None:
    x = DRAWS.random((30, 5)).astype("float32")
    with refused("value", key="parameters()"):
        fr.train("fedavg", Adapted(), [(x, CLASSES)], rounds=1)
    frozen = Adapted()
    frozen.body.requires_grad_(False)
    run = fr.train("fedavg", frozen, [(x, CLASSES)], rounds=1, weights="keep")
    assert torch.equal(run.model.body.weight, frozen.body.weight)


def test_features_of_truth_values_are_0_and_1_to_a_model_that_takes_fractions() -> None:
    x = DRAWS.random((30, 5)) > 0.5
    runs = [
        fr.train("fedavg", "logistic", [(each, CLASSES)], rounds=2, test=(each, CLASSES))
        for each in (x, x.astype("float32"))
    ]
    assert runs[0].rounds.equals(runs[1].rounds)


LOSSES = {
    "ignores": nn.CrossEntropyLoss(ignore_index=1),
    "weighs": nn.CrossEntropyLoss(weight=torch.tensor([0.1, 10.0, 1.0])),
    "means": lambda outputs, y: functional.cross_entropy(outputs[y < 2], y[y < 2]),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_a_loss_with_a_mean_of_its_own_is_scored_on_all_samples(loss: Any) -> None:
    """In any order, and whatever chunks a test set or clients are scored in."""
    y = np.repeat([0, 1, 2], [500, 700, 500])
    x = (np.eye(3)[y] + 0.5 * DRAWS.normal(size=(1700, 3))).astype("float32")
    torch.manual_seed(0)
    net = nn.Linear(3, 3)
    for rows in (np.arange(1700), DRAWS.permutation(1700)):
        run = fr.train(
            "fedavg", net, [(ONE_HOT, CLASSES)], rounds=1, test=(x[rows], y[rows]),
            weights="keep", loss=loss,
        )  # fmt: skip
        with torch.no_grad():
            wanted = float(loss(run.model(torch.as_tensor(x[rows])), torch.as_tensor(y[rows])))
        assert run.rounds["test_loss"].iloc[-1] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("own", [False, True])
def test_each_client_s_loss_is_of_its_own_samples(own: bool) -> None:
    """Whether clients have one model, and are scored together, or one each."""
    loss, noisy = LOSSES["ignores"], ONE_HOT + DRAWS.normal(size=(30, 3)).astype("float32")
    clients = [(noisy[:n], CLASSES[:n]) for n in (10, 20, 30)]
    method = "ditto" if own else "fedavg"
    keys = {"rounds": 1, "test_fraction": 0.5, "seed": 3}
    run = fr.train(method, "logistic", clients, loss=loss, **keys)
    each = nn.CrossEntropyLoss(ignore_index=1, reduction="none")
    seen: list[float] = []

    def kept(outputs: Any, targets: Any) -> float:
        values = each(torch.as_tensor(outputs), torch.as_tensor(targets))
        seen.append(float(values.sum() / (torch.as_tensor(targets) != 1).sum()))
        return seen[-1]

    again = fr.train(method, "logistic", clients, loss=loss, measures=kept, **keys)
    assert run.clients["loss"].equals(again.clients["loss"])
    assert again.clients["loss"].to_numpy() == pytest.approx(again.clients["kept"].to_numpy())


def by_data(outputs: Tensor) -> Tensor:
    outputs.data.clamp_(-0.1, 0.1)
    return outputs


def under_no_grad(outputs: Tensor) -> Tensor:
    with torch.no_grad():
        return outputs.clamp_(-0.1, 0.1)


def in_place(outputs: Tensor) -> Tensor:
    return outputs.add_(torch.tensor([3.0, 0.0, 0.0]))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("change", [by_data, under_no_grad, in_place])
def test_a_loss_may_change_the_outputs_that_it_is_given(change: Any, whole: bool) -> None:
    """It trains as in PyTorch; accuracy and measures are of the model's outputs."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        outputs = change(outputs)
        kind = "mean" if whole else "none"
        return functional.cross_entropy(outputs, targets, reduction=kind)

    torch.manual_seed(0)
    net, noisy = nn.Linear(3, 3), ONE_HOT + DRAWS.normal(size=(30, 3)).astype("float32")
    run = fr.train(
        "fedavg", net, [(noisy, CLASSES)], rounds=1, test=(noisy, CLASSES), weights="keep",
        loss=loss, lr=0.1, batch_size=30,
    )  # fmt: skip
    plain = copy.deepcopy(net)
    loss(plain(torch.as_tensor(noisy)), torch.as_tensor(CLASSES)).mean().backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD(plain.parameters(), 0.1).step()
    assert torch.allclose(run.model.weight, plain.weight, atol=1e-6)
    with torch.no_grad():
        guessed = run.model(torch.as_tensor(noisy)).argmax(1).numpy()
    assert run.rounds["test_accuracy"].iloc[-1] == pytest.approx((guessed == CLASSES).mean())


@pytest.mark.parametrize("end", [nn.Identity(), nn.LogSoftmax(-1), nn.Tanh()])
def test_a_loss_that_changes_outputs_is_one_that_makes_others(end: nn.Module) -> None:
    """Also for a method with terms of the same outputs, and where a gradient needs them."""
    prior = torch.tensor([1.0, 0.0, -1.0])

    def changing(outputs: Tensor, targets: Tensor) -> Tensor:
        outputs += prior
        return functional.cross_entropy(outputs, targets, reduction="none")

    def making(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs + prior, targets, reduction="none")

    clients = [(ONE_HOT, CLASSES)]
    for executor in ("sequential", "vectorised"):
        net = Classifier(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), end))
        keys: dict[str, Any] = {"test": clients[0], "rounds": 2, "executor": executor}
        one, other = (
            fr.train("feduv", net, clients, loss=loss, weights="keep", **keys)
            for loss in (changing, making)
        )
        assert one.rounds["test_loss"].equals(other.rounds["test_loss"])


def test_a_measure_of_two_classes_gets_outputs_in_the_shape_of_its_targets() -> None:
    x = DRAWS.normal(size=(200, 3)).astype("float32")
    y = (x[:, 0] > 0.3).astype(int)
    shapes = []

    def right(outputs: Any, targets: Any) -> float:
        shapes.append((outputs.shape, targets.shape))
        return float(((outputs > 0) == targets).mean())

    run = fr.train("fedavg", "logistic", [(x, y)], rounds=2, task="binary", measures=right)
    end = run.rounds.iloc[-1]
    assert end["test_right"] == pytest.approx(end["test_accuracy"])
    assert all(one == other for one, other in shapes)


def test_pictures_and_words_are_divided_as_they_are_trained_on() -> None:
    pixels = DRAWS.integers(0, 255, (10, 6, 8, 3)).astype("uint8")
    for mode in ("RGB", "P", "L", "CMYK"):
        pictures = [Image.fromarray(each).convert(mode) for each in pixels]
        ((x, y),) = fr.partition(pictures, ["a", "b"] * 5, "iid", clients=1)
        assert x.shape[1:] == ((1, 6, 8) if mode == "L" else (3, 6, 8)) and x.dtype == np.uint8
        assert sorted(y) == [0] * 5 + [1] * 5
    counts = np.arange(10) * 7  # of a regression: no classes
    ((_, y),) = fr.partition(pixels, counts, "iid", clients=1)
    assert sorted(y) == sorted(counts)


def test_data_that_are_divided_otherwise_are_other_clients() -> None:
    def run(at: int, seed: int = 1, **keys: Any) -> fr.Run:
        divided = [(ONE_HOT[:at], CLASSES[:at]), (ONE_HOT[at:], CLASSES[at:])]
        return fr.train("fedavg", "logistic", divided, rounds=1, seed=seed, **keys)

    with pytest.warns(UserWarning, match="third"):
        table = fr.compare({"half": run(15), "third": run(10)})
    assert np.isnan(table["gain"].iloc[1])
    test = (ONE_HOT, CLASSES)
    with refused("value", key="one: clients_sha256"):
        fr.compare({"one": [run(15, test=test), run(10, 2, test=test)]})
    shared = fr.compare([run(15, test=test), run(10, test=test)])  # of the same test set
    assert shared["gain"].notna().all()


def test_a_loss_has_no_gain_over_another_one() -> None:
    """A score of one function has, and so has a loss over the same one under another rate."""

    def run(loss: Any, lr: float = 0.1) -> fr.Run:
        clients = [(ONE_HOT, CLASSES.astype("float32"))]
        return fr.train(
            "fedavg", "logistic", clients, rounds=1, test_fraction=0.2, validation=0.2,
            task="regression", loss=loss, lr=lr,
        )  # fmt: skip

    runs = {
        "base": run(nn.HuberLoss(delta=0.1)), "rate": run(nn.HuberLoss(delta=0.1), 0.2),
        "delta": run(nn.HuberLoss(delta=0.2)), "task": run(None),
    }  # fmt: skip
    for of in ("test_loss", "client_loss", "validation_loss"):
        with pytest.warns(UserWarning, match="delta|task") as said:
            gains = fr.compare(runs, of=of)["gain"]
        assert [*gains.index[gains.isna()]] == ["delta", "task"] and len(said) == 2
    assert fr.compare(runs, of="test_mse")["gain"].notna().all()


class Tally:
    """A share of correct outputs, which counts its calls."""

    def __init__(self, worth: float) -> None:
        self.calls, self.worth = 0, worth

    def __call__(self, outputs: Any, targets: Any) -> float:
        self.calls += 1
        return self.worth * float((outputs.argmax(1) == targets).mean())


def a_function(worth: float) -> Any:
    tally = Tally(worth)
    return lambda outputs, targets: tally(outputs, targets)


def a_class(worth: float) -> Any:
    class Shares(Measure):
        words, higher_is_better, per = "shares", True, "client"

        def of_outputs(self, outputs: Any, targets: Any) -> float:
            return worth

    return Shares


@pytest.mark.parametrize(
    ("given", "name"), [(Tally, "Tally"), (a_function, "measure"), (a_class, "shares")]
)
def test_a_measure_has_no_gain_over_another_one_of_its_name(given: Any, name: str) -> None:
    """Nor in a list of seeds: one that the program changes between two runs is another one."""

    def runs_of(worth: float, lr: float = 0.1) -> list[fr.Run]:
        keys = {"rounds": 1, "lr": lr}
        clients = [(ONE_HOT, CLASSES)]
        return [
            fr.train("fedavg", "logistic", clients, measures=given(worth), seed=seed, **keys)
            for seed in (1, 2)
        ]

    runs = {"base": runs_of(1.0), "rate": runs_of(1.0, 0.2), "worth": runs_of(100.0)[:1]}
    for of in (f"client_{name}", f"test_{name}"):
        with pytest.warns(UserWarning, match="worth") as said:
            gains = fr.compare(runs, of=of)["gain"]
        assert [*gains.index[gains.isna()]] == ["worth"] and len(said) == 1
    assert fr.compare(runs, of="client_accuracy")["gain"].notna().all()
    with refused("value", key=f"mixed: measure {name}"):
        fr.compare({"mixed": [runs["base"][1], runs["worth"][0]]})


class Ranged(nn.Module):
    """Activations are rounded to the range of the mini-batch."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        step = x.abs().amax() / 7 if self.training else 1e-6
        return self.last((x / step).round() * step)  # type: ignore[no-any-return]


class Counting(Ranged):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(x) * (1 + self.training / len(x))  # type: ignore[no-any-return]


class Dropping(Ranged):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.dropout(x, 0.5, self.training))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("model", "mixes"), [(Ranged, True), (Counting, True), (Dropping, False)])
def test_samples_that_change_each_other_are_not_padded(model: Any, mixes: bool) -> None:
    x = DRAWS.normal(size=(20, 4)).astype("float32")
    x[0] *= 5  # the first sample has the largest value
    clients = [(x, np.arange(20) % 2), (x[:6], np.arange(6) % 2)]
    torch.manual_seed(0)
    net = model()
    if mixes:
        with refused(file="executor", names=("vectorised", "each", "other")):
            fr.train("fedavg", net, clients, rounds=1, test=clients[0], executor="vectorised")
    fr.train("fedavg", net, clients, rounds=1, test=clients[0], weights="keep")


class Ends(nn.Module):
    """Logits in training, probabilities in testing."""

    def __init__(self, outputs: int, end: nn.Module) -> None:
        super().__init__()
        self.last, self.end = nn.Linear(3, outputs), end

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x) if self.training else self.end(self.last(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("task", "outputs", "end", "y"),
    [
        ("binary", 1, nn.Sigmoid(), CLASSES % 2),
        ("classification", 3, nn.Softmax(1), CLASSES),
        ("multi_label", 3, nn.Sigmoid(), ONE_HOT.astype(int)),
    ],
)
def test_probabilities_in_testing_are_refused(task: Any, outputs: int, end: Any, y: Any) -> None:
    with refused("value", key="outputs", value="probabilities"):
        fr.train("fedavg", Ends(outputs, end), [(ONE_HOT, y)], test=(ONE_HOT, y), task=task,
                 rounds=1)  # fmt: skip


class Pair(nn.Module):
    """Two experts, whose mean is the output."""

    def __init__(self, outputs: int, end: Any) -> None:
        super().__init__()
        self.one, self.other, self.end = nn.Linear(3, outputs), nn.Linear(3, outputs), end

    def forward(self, x: Tensor) -> Tensor:
        return (self.end(self.one(x)) + self.end(self.other(x))) / 2  # type: ignore[no-any-return]


@pytest.mark.parametrize("kept", [0.0, 1e-6])
@pytest.mark.parametrize(
    ("task", "outputs", "y"),
    [("binary", 1, CLASSES % 2), ("multi_label", 3, ONE_HOT.astype(int)),
     ("classification", 3, CLASSES)],
)  # fmt: skip
def test_probabilities_of_any_kind_are_told_from_logits(
    task: Any, outputs: int, y: Any, kept: float
) -> None:
    function = torch.softmax if task == "classification" else lambda z, axis: torch.sigmoid(z)
    ends = lambda z: function(z, -1).clamp(kept, 1 - kept)  # noqa: E731
    data: dict[str, Any] = {"test": (ONE_HOT, y), "task": task, "rounds": 1}
    with refused("value", key="outputs", value="probabilities"):
        fr.train("fedavg", Pair(outputs, ends), [(ONE_HOT, y)], **data)
    # Logits that lie between 0 and 1 for these samples and weights, or have a limit on one side.
    of_any_sign = (lambda z: z * 1e-3, lambda z: nn.functional.normalize(z, dim=0))
    for end in (nn.Identity(), torch.relu, torch.abs, lambda z: z**2 / 4, *of_any_sign):
        net = Pair(outputs, end)
        for leaf in net.parameters():
            leaf.data.abs_().mul_(0.2)
        fr.train("fedavg", net, [(ONE_HOT, y)], weights="keep", **data)


def test_a_function_that_needs_nothing_gets_nothing() -> None:
    got = []

    def net(bias: bool = True, depth: int = 2) -> nn.Module:
        got.append((bias, depth))
        return nn.Sequential(*[nn.Linear(3, 3, bias=bias) for _ in range(depth)])

    def shaped(input_shape: Any = (4,), outputs: int = 4) -> nn.Module:
        got.append((input_shape, outputs))
        return nn.Linear(*input_shape, outputs)

    for model, wanted in ((net, (True, 2)), (shaped, ((3,), 3))):
        got.clear()
        fr.train("fedavg", model, [(ONE_HOT, CLASSES)], rounds=1, test=(ONE_HOT, CLASSES))
        assert {*got} == {wanted}


def test_a_drawn_sample_of_a_type_that_torch_lacks_is_converted() -> None:
    class Noisy(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 30

        def __getitem__(self, at: int) -> tuple[Any, int]:
            wide = ONE_HOT[at].astype(np.longdouble) + torch.rand(1).item()
            return wide if at % 2 else wide.astype(">f8"), int(CLASSES[at])

    fr.train("fedavg", "logistic", [Noisy()], rounds=1, test=(ONE_HOT, CLASSES))


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(**keys: Any) -> fr.Run:
        clients = [(ONE_HOT, CLASSES)]
        return fr.train("fedavg", "logistic", clients, rounds=1, test=clients[0], **keys)

    kept = train(folder=tmp_path / "kept")
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
        with refused("unwritable", key="folder"):
            train()
    run = train()
    shutil.rmtree(run.folder.parent)  # as systemd does
    del run
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with refused("value", key="folder", value="run"):
        train(folder="run")
    assert fr.load(tmp_path / "kept").rounds.equals(kept.rounds)


@pytest.mark.parametrize("model", ["mcmahan_cnn", "logistic"])
def test_images_of_truth_values_are_those_of_0_and_1(model: str) -> None:
    x = DRAWS.random((30, 1, 16, 16)) > 0.5
    runs = [
        fr.train("fedavg", model, [(each, CLASSES)], rounds=1, test=(each, CLASSES))
        for each in (x, x.astype("int64"))
    ]
    assert runs[0].rounds.equals(runs[1].rounds)
    assert runs[0].manifest["data"]["content_sha256"] == runs[1].manifest["data"]["content_sha256"]


@pytest.mark.parametrize("what", ["inputs", "loss"])
def test_a_folder_of_a_run_by_an_earlier_version_is_made_again(what: str, tmp_path: Path) -> None:
    """It gave a model 32 bits, and took a mean of a mean over parts: other numbers."""
    folder = tmp_path / "run"
    x = DRAWS.integers(0, 9, (30, 5)) if what == "inputs" else ONE_HOT
    torch.manual_seed(0)
    net = Hashed() if what == "inputs" else nn.Linear(3, 3)
    loss = LOSSES["ignores"] if what == "loss" else None

    def train() -> fr.Run:
        return fr.train(
            "fedavg", net, [(x, CLASSES)], rounds=1, test=(x, CLASSES), weights="keep",
            loss=loss, folder=folder,
        )  # fmt: skip

    first = train().manifest["data"]
    key = {"inputs": "own_inputs", "loss": "own_mean"}[what]
    assert key in first
    whole = json.loads((folder / "manifest.json").read_text())
    del whole["data"][key]
    write_manifest(folder, whole)
    with refused("value"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train()


def test_tables_of_a_run_have_what_the_run_gave() -> None:
    """Whatever became of those of an earlier access, and of their files."""
    clients = [(ONE_HOT, CLASSES), (ONE_HOT[::-1].copy(), CLASSES[::-1].copy())]
    run = fr.train("fedavg", "logistic", clients, rounds=2, test=clients[0])
    assert run.model is run.model
    compared = fr.compare(run)
    tables = run.rounds.copy(), run.clients.copy()
    for table in (run.rounds, run.clients):
        table.loc[:, :] = 1
    shutil.rmtree(run.folder)
    sent = copy.copy(run)
    for each in (run, sent):
        assert each.rounds.equals(tables[0]) and each.clients.equals(tables[1])
        assert fr.compare(each).equals(compared)


def test_a_function_that_waits_for_what_it_gets_gets_it() -> None:
    def net(shape_of_one: Any = None, classes: Any = None) -> nn.Module:
        return nn.Linear(shape_of_one[0], classes)

    def other(s: Any = None, c: int = 2) -> nn.Module:
        return nn.Linear(s[0], c)

    for model in (net, other):
        run = fr.train("fedavg", model, [(ONE_HOT, CLASSES)], rounds=1, test=(ONE_HOT, CLASSES))
        assert run.model.out_features == 3


def test_many_samples_are_scored_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss may compare all samples that it is given, so that a mean of its own is limited."""
    seen = []

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(len(targets))
        return functional.cross_entropy(outputs, targets)

    monkeypatch.setattr(evaluate, "AT_ONCE", 1000)
    y = np.tile(CLASSES, 80)
    x = np.eye(3, dtype="float32")[y] + DRAWS.normal(size=(2400, 3)).astype("float32")
    run = fr.train("fedavg", "logistic", [(ONE_HOT, CLASSES)], rounds=1, test=(x, y), loss=loss)
    assert max(seen) == 1000 and seen.count(1000) == 2
    plain = fr.train("fedavg", "logistic", [(ONE_HOT, CLASSES)], rounds=1, test=(x, y))
    assert run.rounds["test_loss"].iloc[-1] == pytest.approx(plain.rounds["test_loss"].iloc[-1])
