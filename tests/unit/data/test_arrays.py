"""Clients' arrays as a data set: types, forms, and what is refused."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import fedrepro as fr
from fedrepro.data.arrays import dataset_of
from support.refusals import Fault, refused

X = np.random.default_rng(0).integers(0, 50, (40, 4))
Y = np.arange(40) % 3
TYPES = (
    "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", ">i8", "<u2", ">u4",
    "float16", "float32", "float64", ">f4", ">f8", "longdouble",
)  # fmt: skip


def trained(x: Any, y: Any = Y, model: Any = "logistic") -> float:
    run = fr.train("fedavg", model, [(x, y), (x, y)], rounds=1, lr=1e-3, test=(x, y))
    return float(run.rounds["test_loss"].iloc[-1])


@pytest.fixture(scope="module")
def of_fractions() -> float:
    return trained(X.astype(np.float32))


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_of_numbers_gives_the_same(kind: str, of_fractions: float) -> None:
    assert trained(X.astype(kind)) == of_fractions
    for y in (Y.astype("uint8"), Y.astype(">i4"), Y.astype("uint64")):
        assert np.array_equal(dataset_of([(X, y)]).train.y, Y)


def test_other_forms_give_the_same(of_fractions: float) -> None:
    frame = pd.DataFrame(X)
    for x in (
        X.tolist(),
        torch.as_tensor(X),
        torch.as_tensor(X).half(),
        frame,
        np.asfortranarray(X),
    ):
        assert trained(x) == of_fractions
    assert trained(X[::-1][::-1]) == of_fractions
    mixed = pd.concat([frame.iloc[:, :1] > 0, frame.iloc[:, 1:]], axis=1)
    assert trained(mixed) == trained(mixed.convert_dtypes()) == trained(mixed.astype(float))
    assert trained(mixed.astype({0: "bool[pyarrow]"})) == trained(mixed)
    with refused(key="clients.0.x: column word", value="str"):
        trained(mixed.assign(word="a"))
    assert trained(frame, pd.Series(Y)) == of_fractions


@pytest.mark.parametrize("factor", [2**26, 2**40, -(2**40), 2**57])
def test_large_whole_numbers_do_not_wrap(factor: int) -> None:
    stored = dataset_of([(X * factor, Y)]).train.x
    assert np.array_equal(stored, X * factor)
    large = X.astype(np.uint64) * np.uint64(2**58)
    with refused("value", key="x", value=int(large.max())):
        dataset_of([(X, Y), (large, Y)])
    mixed = dataset_of([(X, Y), (large // 2, Y)]).train.x
    assert np.array_equal(mixed, np.concatenate([X, X * 2**57]))


class Words(nn.Module):
    """Takes ids of words."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.table(x).mean(1)


def test_ids_of_words_stay_whole() -> None:
    for kind in ("int8", "int32", "int64", "uint16"):
        assert np.isfinite(trained(X.astype(kind), model=Words()))
    assert dataset_of([(X, Y)]).train.x.dtype == np.int32
    with refused(names=("Words", "samples")):
        trained(X.astype(np.float32), model=Words())


@pytest.mark.parametrize(
    ("x", "y", "fault"),
    [
        (
            X,
            Y.astype(np.uint64) + np.uint64(2**64 - 9),
            {
                "key": "clients.0.y, row 0",
                "value": 18446744073709551607,
                "names": ("clients.0.y", "row"),
            },
        ),
        (
            X,
            Y * 2**40,
            {"key": "clients.0.y, row 1", "value": 1099511627776, "names": ("clients.0.y", "1")},
        ),
        (X, Y - 1, {"key": "clients.0.y, row 0", "value": -1, "names": ("clients.0.y", "row")}),
        (X, np.where(Y == 0, np.nan, Y), {"key": "clients.0.y", "value": "float64"}),
        (X, Y * 2, {"key": "clients", "value": 1}),
        (X, Y * 0, {"key": "clients", "names": ("1", "2")}),
        (X[:0], Y[:0], {"key": "clients.0", "value": "[0, 4] and [0]"}),
        (X.astype(complex), Y, {"key": "clients.0.x", "value": "complex128", "names": "numbers"}),
        (X.astype(object), Y, {"key": "clients.0.x", "value": "object", "names": "numbers"}),
        (
            X.astype("M8[s]"),
            Y,
            {"key": "clients.0.x", "value": "datetime64[s]", "names": "numbers"},
        ),
        (np.where(X == 3, np.inf, X), Y, {"key": "clients.0.x, row 1", "names": "finite"}),
        (np.ma.masked_equal(X, 3), Y, {"key": "clients.0.x", "names": "masked"}),
    ],
)
def test_arrays_that_are_not_what_they_should_be(x: Any, y: Any, fault: Fault) -> None:
    with refused(**fault) as raised:
        fr.train("fedavg", "logistic", [(x, y)], rounds=1)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("several", [False, True])
def test_bytes_of_0_and_1_are_no_images(several: bool) -> None:
    """One-hot features of an older pandas are bytes: they were trained on as 0 and 1 / 255."""
    dark, bits = np.zeros((40, 4), np.uint8), np.eye(4, dtype=np.uint8)[np.arange(40) % 4]

    def clients(*inputs: Any) -> list[Any]:
        return [((x, PLAIN) if several else x, Y) for x in inputs]

    with refused("value", key="x.0" if several else "x"):
        dataset_of(clients(dark, bits))
    for others in ((dark, dark), (dark, 2 * bits), (bits, PIXELS), (bits.astype(bool),)):
        dataset_of(clients(*others))


PIXELS = np.arange(40 * 4, dtype=np.uint8).reshape(40, 4)
PLAIN = X.astype(np.float32)


@pytest.mark.parametrize(
    ("clients", "test", "task", "fault"),
    [
        ([(PIXELS, Y), (PLAIN, Y)], None, "", {"key": "clients.1", "names": "uint8"}),
        ([(PLAIN, Y), (X, Y)], None, "", {"key": "clients.1", "names": "float32"}),
        ([(PIXELS, Y), (PIXELS, Y)], (PLAIN, Y), "", {"key": "test", "names": "uint8"}),
        ([(PLAIN, Y)], (PLAIN[:, :3], Y), "", {"key": "test", "names": "4"}),
        ([(PLAIN, Y)], None, "binary", {"key": "task", "value": "binary", "names": "3"}),
        ([(PLAIN, Y % 2)], (PLAIN, Y), "", {"key": "test", "value": 2}),
        ([(PLAIN, Y + 1)], None, "", {"names": "1"}),
        ([(PLAIN, np.roll(Y, -1) - 1)], None, "", {"key": "clients.0.y, row 2", "value": -1}),
        ([(PLAIN, PLAIN), (PLAIN, PLAIN[:, 0])], None, "regression", {"key": "clients.1"}),
        ([(PLAIN, Y)], None, "multi_label", {"key": "clients.0.y", "value": [40]}),
        ([(PLAIN, PLAIN)], None, "multi_label", {"key": "clients.0.y"}),
        ([], None, "", {"key": "clients"}),
    ],
)
def test_samples_that_do_not_go_together_are_one_line(
    clients: Any, test: Any, task: str, fault: Fault
) -> None:
    with refused(**fault) as raised:
        dataset_of(clients, test, task or "classification")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("y", "outputs"),
    [(PLAIN, 4), (PLAIN[:, 0], 1), (PLAIN[:, :1], 1), (PLAIN.reshape(40, 2, 2), 1)],
)
def test_how_many_numbers_are_predicted(y: Any, outputs: int) -> None:
    data = dataset_of([(PLAIN, y), (PLAIN, y)], task="regression")
    assert (data.outputs, data.train.y.dtype) == (outputs, np.float32)
    assert np.array_equal(data.train.y, np.concatenate([y, y]))
    assert data.train.group is not None and np.bincount(data.train.group).tolist() == [40, 40]
    other = dataset_of([(PLAIN, y[::-1]), (PLAIN, y)], task="regression")
    assert other.meta["content_sha256"] != data.meta["content_sha256"]
    if y.ndim == 2 and y.shape[1] == 4:  # the same bytes as other targets
        places = np.zeros((40, 4, 2), np.float32)
        apart = [dataset_of([(places, each)], task="regression") for each in (y, y[..., None])]
        assert apart[0].meta["content_sha256"] != apart[1].meta["content_sha256"]
        assert [each.outputs for each in apart] == [4, 4]


def test_an_array_that_could_be_masked_is_read_where_nothing_is() -> None:
    whole = np.ma.masked_array(PLAIN, mask=False)
    assert np.array_equal(dataset_of([(whole, Y)]).train.x, PLAIN)


class Dicts(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, at: int) -> Any:
        return {"image": X[at], "label": Y[at]}


class Endless(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        return zip(X, Y, strict=True)


def test_data_sets_of_another_form_are_one_line() -> None:
    loader = torch.utils.data.DataLoader(Dicts(), batch_size=4)
    cases: list[tuple[Any, Fault]] = [
        ([loader], Fault(names=("clients.0", "DataLoader"))),
        ([Endless()], Fault(names=("clients.0", "Endless"))),
        ({"north": (X, Y)}, Fault(code="value", key="clients", names="'north'")),
        (
            [(X, Y), (X[:1], Y[:1])],
            Fault(code="value", key="clients.1", names=("1", "2", "`test_fraction=0`")),
        ),
    ]
    for clients, fault in cases:
        with refused(**fault):
            fr.train("fedavg", "logistic", clients, rounds=1)


def test_all_that_makes_other_data_is_in_its_hash() -> None:
    """By it a finished run in a folder is known again."""
    other_x, other_y = X.copy(), Y.copy()
    other_x[-1, -1] += 1
    other_y[0], other_y[1] = Y[1], Y[0]
    shapes = ((1, 4), (2, 2), (4, 1), (1, 2, 2), (2, 1, 2))
    hashes = [
        dataset_of(clients, test).meta["content_sha256"]
        for clients, test in (
            ([(X, Y)], None),
            ([(other_x, Y)], None),
            ([(X, other_y)], None),
            ([(X, Y)], (X, Y)),
            ([(X, Y)], (other_x, Y)),
            ([(X, Y)], (X, other_y)),
            *(([(X.reshape(40, *shape), Y)], None) for shape in shapes),
        )
    ]
    assert len(set(hashes)) == len(hashes)
    assert dataset_of([(X.copy(), Y.copy())]).meta["content_sha256"] == hashes[0]
