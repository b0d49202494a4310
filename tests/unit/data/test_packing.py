"""Several inputs of a sample: they reach the model as they were, however they are passed."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

import fedrepro as fr
from fedrepro.data.arrays import dataset_of
from fedrepro.data.readers.packing import shapes_from
from fedrepro.models.classifier import Classifier
from support.refusals import Fault, refused

rng = np.random.default_rng(1)
Y = np.arange(8) % 2
USER, ITEM = np.arange(8) % 5, rng.normal(size=(8, 2, 3)).astype("float32")
IMAGE, MASK = rng.integers(0, 256, (8, 1, 2, 2), np.uint8), rng.random((8, 4)) > 0.5


def clients_of(x: Any) -> list[Any]:
    """Two clients with four samples each."""

    def some(rows: slice) -> Any:
        if isinstance(x, dict):
            return {name: values[rows] for name, values in x.items()}
        return tuple(values[rows] for values in x) if isinstance(x, tuple) else x[rows]

    return [(some(rows), Y[rows]) for rows in (slice(4), slice(4, 8))]


@pytest.mark.parametrize(
    "x",
    [
        {"user": USER, "item": ITEM},
        (USER, ITEM),
        (IMAGE, MASK, ITEM, USER),
        {"ids": USER, "mask": MASK},
        (IMAGE, IMAGE[:, 0]),
    ],
)
def test_inputs_come_back_as_they_were(x: Any) -> None:
    dataset = dataset_of(clients_of(x))
    assert dataset.packing
    scaled = torch.from_numpy(dataset.train.x)
    scaled = scaled / 255 if scaled.dtype == torch.uint8 else scaled
    apart = dataset.packing.apart(scaled)
    assert type(apart) is type(x)
    pairs = [(apart[name], x[name]) for name in (x if isinstance(x, dict) else range(len(x)))]
    for found, given in pairs:
        wanted = given.astype("float32") / 255 if given.dtype == np.uint8 else given
        assert found.is_contiguous()
        assert found.numpy().dtype == wanted.dtype or wanted.dtype.kind == "i"
        np.testing.assert_array_equal(found.numpy(), wanted)
    shapes = [given.shape[1:] for _, given in pairs]
    stated = dataset.shapes
    assert [*(stated.values() if isinstance(stated, dict) else stated)] == shapes


def test_shapes_survive_json() -> None:
    for shapes in ((3,), (1, 2), ((), (3, 2)), {"a": (), "b": (2,)}):
        as_json = {k: [*v] for k, v in shapes.items()} if isinstance(shapes, dict) else [
            [*each] if isinstance(each, tuple) else each for each in shapes
        ]  # fmt: skip
        assert shapes_from(as_json) == shapes


def test_the_same_numbers_as_other_inputs_are_other_data() -> None:
    flat = rng.normal(size=(8, 3)).astype("float32")
    layouts: list[Any] = [
        flat, (flat[:, :1], flat[:, 1:]), (flat[:, :2], flat[:, 2:]), (*flat.T,),
        {"a": flat[:, :1], "b": flat[:, 1:]}, {"b": flat[:, :1], "a": flat[:, 1:]},
    ]  # fmt: skip
    digests = [dataset_of(clients_of(x)).meta["content_sha256"] for x in layouts]
    assert len({*digests}) == len(layouts)


@pytest.mark.parametrize("large", [2**31, -(2**31) - 1, 2**40])
@pytest.mark.parametrize("client", [0, 1, 2])  # 2: the test samples
def test_each_input_is_of_the_type_that_every_client_s_numbers_fit(large: int, client: int) -> None:
    """Of what one client alone has: numbers beyond 32 bits, perhaps ids, keep their digits."""
    given = [{"a": USER.astype("int64"), "b": USER.astype("int64")} for _ in range(3)]
    given[client]["b"] = np.full(8, large + 7)
    dataset = dataset_of([(x, Y) for x in given[:2]], test=(given[2], Y))
    assert dataset.packing and dataset.test is not None
    parts = {part.name: part.kind for part in dataset.packing.parts}
    assert parts == {"a": "whole", "b": "whole"}
    rows = np.concatenate([dataset.train.x, dataset.test.x])
    for name, values in dataset.packing.apart(torch.from_numpy(rows)).items():
        wanted = np.concatenate([x[name] for x in given])
        np.testing.assert_array_equal(values.numpy(), wanted)


@pytest.mark.parametrize("counting", [0, 1])
def test_counts_of_one_client_stay_where_another_has_truth_values(counting: int) -> None:
    masks = [MASK[:4], MASK[4:]]
    masks[counting] = np.arange(16).reshape(4, 4)  # type: ignore[call-overload]
    clients = [((mask, ITEM[:4]), Y[:4]) for mask in masks]
    dataset = dataset_of(clients)
    assert dataset.packing
    found, _ = dataset.packing.apart(torch.from_numpy(dataset.train.x))
    np.testing.assert_array_equal(found.numpy(), np.concatenate(masks))


def test_whole_numbers_of_either_sign_are_exact_beside_fractions() -> None:
    for most in (2**24, -(2**24)):
        x = {"a": USER.astype("int64") * 0 + most, "b": ITEM}
        packing, rows = dataset_of([(x, Y)]).packing, dataset_of([(x, Y)]).train.x
        assert packing and set(packing.apart(torch.from_numpy(rows))["a"].tolist()) == {most}
        x["a"] = x["a"] + (1 if most > 0 else -1)
        with refused(key="x.a", value=16777217, names="16777216"):
            dataset_of([(x, Y)])


class Rows(Dataset[Any]):
    """A torch data set whose samples are pairs (a dict or a tuple, class)."""

    def __init__(self, x: Any, rows: slice) -> None:
        self.x, self.y = x, torch.as_tensor(Y[rows])

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, row: int) -> Any:
        if isinstance(self.x, dict):
            return {name: torch.as_tensor(values[row]) for name, values in self.x.items()}, self.y[
                row
            ]
        return tuple(torch.as_tensor(values[row]) for values in self.x), self.y[row]


@pytest.mark.parametrize("x", [{"user": USER, "item": ITEM}, (USER, ITEM)])
def test_samples_of_a_torch_data_set_may_be_dicts_or_tuples(x: Any) -> None:
    parts = [given for given, _ in clients_of(x)]
    sets = [Rows(part, rows) for part, rows in zip(parts, (slice(4), slice(4, 8)), strict=True)]
    one, other = dataset_of(sets), dataset_of(clients_of(x))
    assert one.meta["content_sha256"] == other.meta["content_sha256"]


def test_a_tuple_of_rows_is_one_input() -> None:
    rows = tuple(ITEM[:4])
    assert dataset_of([(rows, Y[:4]), (ITEM[4:], Y[4:])]).packing is None


@pytest.mark.parametrize(
    ("clients", "fault"),
    [
        (
            [((USER * 2**24, ITEM), Y)],
            {"key": "x.0", "value": 67108864, "names": ("train", "16777216")},
        ),
        ([({"a": USER}, Y), ({"b": USER}, Y)], {"key": "clients.1.x", "value": ["b"]}),
        (
            [({"a": ITEM, "b": ITEM}, Y), ({"a": ITEM, "b": ITEM[:, 0]}, Y)],
            {"key": "clients.1.x.b", "value": "[3] of float32"},
        ),
        ([((ITEM, USER[:4]), Y)], {"key": "clients.0.x.1", "value": "[4] and [8]"}),
        ([({"a": ITEM.astype(str)}, Y)], {"key": "clients.0.x.a", "value": "str1024"}),
    ],
)
def test_what_does_not_fit_is_one_line(clients: Any, fault: Fault) -> None:
    with refused(**fault) as error:
        dataset_of(clients)
    assert "\n" not in str(error.value)


class Joined(nn.Module):
    """Takes the inputs as one array."""

    def __init__(self, *about: Any) -> None:
        super().__init__()
        self.left, self.right, self.last = nn.Linear(3, 4), nn.Linear(6, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(x[:, :3], x[:, 3:])

    def score(self, a: Tensor, b: Tensor) -> Tensor:
        return self.last(self.left(a) * self.right(b.flatten(1)))  # type: ignore[no-any-return]


class Apart(Joined):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:  # type: ignore[override]
        return self.score(a, b)


class AsDict(Joined):
    def forward(self, batch: dict[str, Tensor]) -> Tensor:  # type: ignore[override]
        return self.score(batch["a"], batch["b"])


class AsTuple(Joined):
    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:  # type: ignore[override]
        return self.score(*batch)


class Body(Joined):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:  # type: ignore[override]
        return self.left(a) * self.right(b.flatten(1))  # type: ignore[no-any-return]


def split(shapes: Any, outputs: int) -> nn.Module:
    whole = Body()
    head = whole.last
    del whole.last
    return Classifier(whole, head)


ONE = rng.normal(size=(8, 3)).astype("float32")
SINGLE = np.concatenate([ONE, ITEM.reshape(8, 6)], 1)
PAIR, NAMED = (ONE, ITEM), {"b": ITEM, "a": ONE}
WAYS: list[tuple[Any, Any]] = [
    (PAIR, Apart), (NAMED, Apart), (NAMED, AsDict), (PAIR, AsTuple), (PAIR, split), (NAMED, split),
]  # fmt: skip


def losses(x: Any, model: Any, method: str = "fedavg", **options: Any) -> list[float]:
    options = {"rounds": 2, "batch_size": 2, "seed": 1, "test": (x, Y)} | options
    run = fr.train(method, model, clients_of(x), **options)
    found: list[float] = run.rounds["test_loss"].tolist()
    return found


def test_a_model_of_several_inputs_learns_what_one_of_their_join_does() -> None:
    joined = losses(SINGLE, Joined)
    for x, model in WAYS:
        assert losses(x, model) == pytest.approx(joined, abs=1e-6), model
    assert losses(PAIR, split, "fedper", test=None, test_fraction=0.3)


def test_a_trained_model_of_several_inputs_is_given_back() -> None:
    seen: list[Any] = []

    def build(shapes: Any, outputs: int) -> nn.Module:
        seen.append(shapes)
        return Apart()

    run = fr.train("fedavg", build, clients_of(NAMED), rounds=1, test=(NAMED, Y))
    outputs = run.model(a=torch.as_tensor(ONE), b=torch.as_tensor(ITEM))
    loss = functional.cross_entropy(outputs, torch.as_tensor(Y)).item()
    assert loss == pytest.approx(run.rounds["test_loss"].iloc[-1], abs=1e-6)
    assert all(each == {"b": (2, 3), "a": (3,)} for each in seen)


def test_inputs_that_nobody_takes_are_one_line() -> None:
    with refused(key="model", value="logistic"):
        losses(PAIR, "logistic")
    with refused(names=("0", "1")):
        losses(PAIR, Joined)


def test_whole_numbers_fit_the_model() -> None:
    class Ids(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.last = nn.Embedding(5, 4), nn.Linear(5, 2)

        def forward(self, user: Tensor, size: Tensor) -> Tensor:
            return self.last(torch.cat([self.table(user), size[:, None]], 1))  # type: ignore[no-any-return]

    class OneHot(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(functional.one_hot(x, 5).flatten(1).float())

    assert losses((USER, ONE[:, 0]), Ids)
    assert losses(USER[:, None], partial(OneHot, 5, 2))  # takes numbers of 64 bits only
    sizes = {"a": np.arange(24).reshape(8, 3), "b": np.arange(48).reshape(8, 2, 3)}
    floats = {name: values.astype("float32") for name, values in sizes.items()}
    assert losses(sizes, Apart, lr=1e-6) == losses(floats, Apart, lr=1e-6)  # features


def test_a_class_is_called_with_what_it_takes() -> None:
    class Plain(nn.Linear):
        def __init__(self, width: int = 3) -> None:
            super().__init__(width, 2)

    class Needs(nn.Linear):
        def __init__(self, width: int) -> None:
            super().__init__(width, 2)

    class Layers(nn.Linear):
        def __init__(self, width: int = 3, layers: int = 2) -> None:
            super().__init__(width, layers)

    class OfShape(nn.Linear):
        def __init__(self, input_shape: tuple[int, ...] = (9,), outputs: int = 9) -> None:
            super().__init__(*input_shape, outputs)

    class Broken(nn.Linear):
        def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
            super().__init__(input_shape, outputs)  # type: ignore[arg-type]

    def factory(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Linear(shape[0], outputs)

    models: list[Callable[..., nn.Module]] = [
        Plain, factory, partial(Needs, 3), lambda: Needs(3), Layers, OfShape,
    ]  # fmt: skip
    first, *others = (losses(ONE, model) for model in models)
    assert all(each == first for each in others)
    for model in (Needs, Broken):
        with refused(names=("instance", "function")):
            losses(ONE, model)
