"""`fr.partition`: the partitions of experiment files, of whatever holds the samples."""

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import fedrepro as fr
from fedrepro.data.partition.partition import make_partition
from fedrepro.data.partition.schemes import Dirichlet
from support.refusals import refused

Y = np.random.default_rng(1).integers(0, 4, 80)
X = np.arange(80.0)[:, None]


def rows(clients: list[tuple[Any, Any]]) -> list[list[int]]:
    return [np.asarray(x)[:, 0].astype(int).tolist() for x, _ in clients]


def test_a_partition_is_that_of_a_run_with_its_seed() -> None:
    spec = Dirichlet(scheme="dirichlet", clients=5, alpha=0.3, minimum=4)
    for seed in (1, 2):
        made = make_partition(Y, None, spec, seed)
        found = fr.partition(X, Y, clients=5, alpha=0.3, minimum=4, seed=seed)
        assert rows(found) == [part.tolist() for part in made.train]
        assert all((Y[np.asarray(x)[:, 0].astype(int)] == y).all() for x, y in found)
    assert sum(map(len, rows(found))) == 80
    words = tuple(np.array(["a", "b", "c", "d"])[Y].tolist())
    assert rows(fr.partition(X, words, clients=5, alpha=0.3, minimum=4, seed=2)) == rows(found)


def test_samples_stay_what_they_are() -> None:
    x = {"a": torch.as_tensor(X), "b": pd.DataFrame(X), "c": X.tolist()}
    several = fr.partition((X, X + 1), Y, "iid", clients=3)
    for (given, y), ((one, other), _) in zip(
        fr.partition(x, torch.as_tensor(Y), "iid", clients=3), several, strict=True
    ):
        assert isinstance(given["a"], torch.Tensor) and isinstance(y, torch.Tensor)
        assert isinstance(given["b"], pd.DataFrame) and len(given["b"]) == len(y)
        assert given["a"].tolist() == given["b"].to_numpy().tolist() == given["c"].tolist()
        assert one.tolist() == (other - 1).tolist() == given["c"].tolist()


def test_natural_clients_are_those_of_the_group() -> None:
    group = [f"hospital {number % 3}" for number in range(80)]
    found = rows(fr.partition(X, Y / 3, "natural", group=group))
    assert found == [list(range(start, 80, 3)) for start in range(3)]


def test_clients_are_trained_on() -> None:
    clients = fr.partition(X / 80, Y, "shards", clients=4, classes_per_client=2)
    assert len(fr.train("fedavg", "logistic", clients, rounds=1).clients) == 4


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"alpa": 0.1}, ("alpa", "alpha")),
        ({"scheme": "dirichle"}, "dirichlet"),
        ({"clients": 0}, "clients"),
        ({"test_fraction": 0.2}, "test_fraction"),
        ({"scheme": "natural", "clients": None}, "natural"),
        ({"scheme": "iid", "clients": 90}, "90"),
        ({"seed": -1}, "seed"),
        ({"x": X[:7]}, ("7 samples", "80")),
        ({"scheme": "natural", "group": [1, 2]}, ("group", "2 samples")),
        ({"y": Y / 3}, "scheme"),
        ({"y": Y[:, None]}, ("y", "[80, 1]")),
        ({"y": np.eye(4, dtype=bool)[Y]}, ("y", "[80, 4]")),
        ({"y": ["a", None] * 40}, ("y, row 1", "missing")),
        ({"y": 3}, "y"),
        ({"y": [[1], [1, 2]] * 40, "scheme": "iid"}, ("y", "row 1")),
        ({"x": torch.utils.data.TensorDataset(torch.as_tensor(X))}, "TensorDataset"),
        ({"x": [[1, 2], [3]] * 40}, "row 1"),
        ({"x": pd.DataFrame(X).sample(frac=1, random_state=1), "y": pd.Series(Y)}, ("x", "index")),
        ({"seed": None}, "seed"),
        ({"group": Y}, ("group", "dirichlet")),
        ({"scheme": "natural", "group": [1.0, np.nan] * 40}, ("group, row 1", "missing")),
        ({"scheme": "natural", "group": ["a", None] * 40}, ("group, row 1", "missing")),
        ({"scheme": "natural", "group": pd.Series([1, None] * 40, dtype="Int64")}, "missing"),
        ({"scheme": "natural", "group": pd.DataFrame({"h": ["a"] * 80})}, "[80, 1]"),
        ({"scheme": "natural", "group": ["n", "n "] * 40}, "'n '"),
        ({"scheme": "natural", "group": [1, "a"] * 40}, ("group", "int and str")),
        ({"scheme": "natural", "group": ["a", np.nan] * 40}, ("group, row 1", "missing")),
        ({"scheme": "natural", "group": [[1], [1, 2]] * 40}, ("group", "row 1")),
        ({"scheme": "natural", "group": "h"}, "group"),
    ],
)
def test_what_cannot_be_divided_is_one_line(more: dict[str, Any], names: Any) -> None:
    asked = {"x": X, "y": Y, "scheme": "dirichlet", "clients": 4, "alpha": 0.5, **more}
    if asked["scheme"] != "dirichlet":
        del asked["alpha"]
    if asked["scheme"] == "natural":
        del asked["clients"]
    with refused(names=names):
        fr.partition(**asked)


@pytest.mark.parametrize(("scheme", "keys"), [("iid", {}), ("dirichlet", {"alpha": 0.5}),
                                              ("labels", {"classes_per_client": 2})])  # fmt: skip
@pytest.mark.parametrize("codes", [[-1, 0, 1, 2], [10115, 20095, 80331, 10**9], list("dcba")])
def test_no_sample_is_lost_whatever_classes_are_called(
    codes: list[Any], scheme: str, keys: dict[str, Any]
) -> None:
    named = np.sort(codes)[Y]
    found = fr.partition(X, named, scheme, clients=np.int64(4), **keys)
    assert rows(found) == rows(fr.partition(X, Y, scheme, clients=4, **keys))
    assert sorted(itertools.chain.from_iterable(rows(found))) == list(range(80))


def test_natural_clients_may_be_in_another_order_if_their_index_is() -> None:
    frame = pd.DataFrame({"x": X[:, 0], "y": Y, "h": Y % 3}).sample(frac=1, random_state=0)
    made = fr.partition(frame[["x"]], frame["y"], "natural", group=frame["h"])
    for number, (x, y) in enumerate(made):
        assert set(frame.loc[x.index, "h"]) == {number} and x.index.equals(y.index)


@pytest.mark.parametrize(
    "x",
    [
        pd.DataFrame({"a": ["u"] * 80, "b": pd.Categorical(["v"] * 80)}),
        torch.zeros(80, 2, dtype=torch.bfloat16),
        np.array(["word"] * 80, dtype=object),
    ],
)
def test_samples_of_any_kind_are_divided(x: Any) -> None:
    """Whether a model can take them, `fedrepro.train` says."""
    found = fr.partition(x, pd.DataFrame({"y": ["a"] * 80}), "iid", clients=3)
    assert [len(part) for part, _ in found] == [len(y) for _, y in found] == [27, 27, 26]
