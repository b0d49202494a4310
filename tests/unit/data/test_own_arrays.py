"""Users' own arrays in npz and Parquet files: what they become, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray

from fedrepro.data.dataset import Dataset, open_dataset
from fedrepro.data.prepare import prepare
from support.raw_data import entry
from support.refusals import Fault, refused

X = np.arange(48, dtype=np.float32).reshape(12, 2, 2)
ALL: dict[str, NDArray[Any]] = {
    "x": X,
    "y": np.array(["cat", "dog", "eel"] * 4),
    "client": np.array([10, 9, 9, 10] * 3),
    "split": np.array(["train"] * 9 + ["test"] * 3),
}


def file_of(tmp_path: Path, arrays: dict[str, NDArray[Any]], form: str) -> Path:
    path = tmp_path / f"own.{form}"
    if form == "npz":
        np.savez(path, **arrays)  # type: ignore[arg-type]
    else:
        pq.write_table(pa.table({key: each.tolist() for key, each in arrays.items()}), path)
    return path


def prepared(tmp_path: Path, path: Path, **keys: Any) -> Dataset:
    spec = entry("arrays", path=str(path), **keys)
    prepare("own", spec, downloads=tmp_path / "downloads", root=tmp_path / "data")
    return open_dataset("own", tmp_path / "data")


@pytest.mark.parametrize("form", ["npz", "parquet"])
def test_both_kinds_of_files_give_the_same(tmp_path: Path, form: str) -> None:
    dataset = prepared(tmp_path, file_of(tmp_path, ALL, form))
    assert dataset.test is not None
    assert dataset.input_shape == (2, 2)
    assert np.array_equal(dataset.train.x, X[:9])
    assert np.array_equal(dataset.test.x, X[9:])
    assert dataset.meta["class_names"] == ["cat", "dog", "eel"]
    assert dataset.train.y.tolist() == [0, 1, 2] * 3
    assert dataset.group_names == ["9", "10"]
    assert dataset.train.group is not None
    assert dataset.train.group.tolist() == ([1, 0, 0, 1] * 3)[:9]


def test_categories_of_parquet_are_words(tmp_path: Path) -> None:
    """As pandas writes them."""
    columns = {key: pa.array(each.tolist()) for key, each in ALL.items()}
    whole = prepared(tmp_path, file_of(tmp_path, ALL, "parquet")).meta["content_sha256"]
    for key in ("y", "split"):
        columns[key] = columns[key].dictionary_encode()
    pq.write_table(pa.table(columns), tmp_path / "own.parquet")
    assert prepared(tmp_path, tmp_path / "own.parquet").meta["content_sha256"] == whole


def test_without_clients_a_fifth_is_for_testing_with_them_nothing(tmp_path: Path) -> None:
    """Unless ``test_fraction`` is given, which may be 0."""
    plain = {"x": X, "y": ALL["y"]}
    alone = prepared(tmp_path, file_of(tmp_path, plain, "npz"))
    assert alone.test is not None
    assert (len(alone.train), len(alone.test)) == (10, 2)
    theirs = prepared(tmp_path, file_of(tmp_path, {**plain, "client": ALL["client"]}, "npz"))
    assert (len(theirs.train), theirs.test) == (12, None)
    for arrays in (plain, {**plain, "client": ALL["client"]}):
        path = file_of(tmp_path, arrays, "npz")
        for share, held_out in ((0, 0), (0.25, 3)):
            said = prepared(tmp_path, path, test_fraction=share)
            assert (len(said.train), len(said.test or ())) == (12 - held_out, held_out)


USER, ITEM = np.arange(12) % 5, X[:, 0]


@pytest.mark.parametrize("form", ["npz", "parquet"])
@pytest.mark.parametrize("names", [("user", "item"), ("0", "1"), ("1", "0"), ("0", "item")])
def test_a_sample_may_have_several_inputs(
    tmp_path: Path, form: str, names: tuple[str, str]
) -> None:
    arrays = {f"x_{name}": x for name, x in zip(names, (USER, ITEM), strict=True)}
    dataset = prepared(
        tmp_path, file_of(tmp_path, {"y": ALL["y"], **arrays}, form), test_fraction=0
    )
    assert dataset.packing
    apart = dataset.packing.apart(torch.from_numpy(np.array(dataset.train.x)))
    if {*names} == {"0", "1"}:
        assert isinstance(apart, tuple)
        apart = dict(zip("01", apart, strict=True))
    assert apart[names[0]].tolist() == USER.tolist()
    assert apart[names[1]].tolist() == ITEM.tolist()


def test_the_same_numbers_as_other_inputs_are_other_data(tmp_path: Path) -> None:
    flat = X.reshape(12, 4)
    layouts = [
        {"x": flat},
        {"x_0": flat[:, :1], "x_1": flat[:, 1:]}, {"x_0": flat[:, :2], "x_1": flat[:, 2:]},
        {"x_a": flat[:, :1], "x_b": flat[:, 1:]}, {"x_b": flat[:, :1], "x_a": flat[:, 1:]},
    ]  # fmt: skip
    digests = set()
    for number, layout in enumerate(layouts):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = file_of(folder, {**layout, "y": ALL["y"]}, "npz")
        digests.add(prepared(folder, path).meta["content_sha256"])
    assert len(digests) == len(layouts)


@pytest.mark.parametrize(
    ("kind", "stored"),
    [("uint8", "uint8"), ("int16", "int32"), ("int64", "int32"), ("float64", "float32")],
)
def test_numbers_are_stored_as_those_of_train_are(tmp_path: Path, kind: str, stored: str) -> None:
    arrays = {"x": X.astype(kind), "y": np.arange(12) % 3}
    dataset = prepared(tmp_path, file_of(tmp_path, arrays, "npz"), test_fraction=0)
    assert dataset.train.x.dtype == stored
    assert np.array_equal(dataset.train.x, X)


@pytest.mark.parametrize("inputs", [["x"], ["x_small", "x_large"]])
def test_whole_numbers_are_stored_with_all_their_digits(tmp_path: Path, inputs: list[str]) -> None:
    small, y = X.reshape(12, 4).astype("int16"), np.arange(12) % 3
    large = 2**62 + small.astype("int64")
    for sign in (1, -1):
        arrays = {name: sign * (small if name == "x_small" else large) for name in inputs}
        folder = tmp_path / str(sign)
        folder.mkdir()
        path = file_of(folder, {**arrays, "y": y}, "npz")
        stored = prepared(folder, path, test_fraction=0).train.x
        assert np.array_equal(stored, np.concatenate([*arrays.values()], axis=1))
    path = file_of(tmp_path, {inputs[-1]: large.astype("uint64") * 2 + 7, "y": y}, "npz")
    with refused("value", key=inputs[-1].replace("_", "."), value=2**63 + 2 * int(X.max()) + 7):
        prepared(tmp_path, path)


def test_texts_as_ids_are_for_the_task_next_word(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(4, 9, (6, 5))
    path = file_of(tmp_path, {"x": x, "y": np.roll(x, -1, 1)}, "npz")
    dataset = prepared(tmp_path, path, task="next_word", test_fraction=0.5)
    assert (dataset.task, dataset.train.y.shape, dataset.classes) == ("next_word", (3, 5), 9)
    with refused(key="y", value=[6, 5]):
        prepared(tmp_path, path)


def test_several_labels_have_an_axis_of_their_own(tmp_path: Path) -> None:
    y = np.arange(24).reshape(12, 2) % 2
    keys: dict[str, Any] = {"task": "multi_label", "test_fraction": 0}
    data = prepared(tmp_path, file_of(tmp_path, {"x": X, "y": y}, "npz"), **keys)
    assert (data.train.y.tolist(), data.outputs) == (y.tolist(), 2)
    for wrong, value in ((y[:, 0], [12]), (y * 3, 3.0)):
        with refused(key="y", value=value):
            prepared(tmp_path, file_of(tmp_path, {"x": X, "y": wrong}, "npz"), **keys)


NAN = np.where(X == 3, np.nan, X)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"X": X}, {"key": "array", "value": "X"}),
        ({"y": None}, {"code": "missing", "key": "y"}),
        ({"x_0": X}, {"key": "x", "names": "x_0"}),
        ({"x": None, "x_0": X, "x_1": NAN}, {"key": "x_1, row 0", "names": ("x_1", "0")}),
        ({"x": None, "x_0": X, "x_1": X[:9]}, {"names": ("samples", "many")}),
        ({"y": np.arange(11) % 3}, {"names": ("samples", "many")}),
        ({"x": NAN}, {"key": "x, row 0", "names": ("0", "nan")}),
        ({"x": ALL["y"]}, {"key": "x", "value": "str96", "names": "numbers"}),
        ({"x": np.arange(12)}, {"key": "x", "value": [12], "names": "axes"}),
        ({"x": X[:, :0]}, {"names": ("samples", "many", "0")}),
        ({"y": np.arange(12) - 1}, {"key": "y", "value": -1, "names": ("0", "numbers")}),
        ({"y": np.arange(12) % 3 * 2}, {"key": "classes", "value": "1"}),
        ({"y": np.arange(12) / 2}, {"key": "y", "value": "float64", "names": "classes"}),
        ({"client": np.arange(12) / 2}, {"key": "client", "value": "float64 [12]"}),
        ({"client": np.arange(11)}, {"names": ("samples", "many")}),
        ({"client": np.array(["a", ""] * 6)}, {"key": "client", "names": "word"}),
        ({"client": np.array(["a", "a "] * 6)}, {"names": ("client", "'a'", "'a '")}),
        ({"y": np.array(["\u00e9", "e\u0301"] * 6)}, {"names": ("y", "'\\xe9'")}),
        (
            {"split": np.array(["train", "tset"] * 6)},
            {"key": "split", "value": "tset", "names": ("'train'", "'test'")},
        ),
        ({"split": np.array(["test"] * 12)}, {"key": "split", "names": "'train'"}),
        ({"y": np.array([{}] * 12)}, {"code": "unreadable"}),
    ],
)
def test_arrays_that_are_not_what_they_should_be_are_one_line(
    tmp_path: Path, changed: dict[str, Any], fault: Fault
) -> None:
    arrays = {key: each for key, each in {**ALL, **changed}.items() if each is not None}
    with refused(**fault) as raised:
        prepared(tmp_path, file_of(tmp_path, arrays, "npz"))
    assert "own.npz" in str(raised.value) or "own: " in str(raised.value)


def test_lists_of_several_lengths_and_empty_cells_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "own.parquet"
    for x, names in (
        ([[1.0, 2.0], [1.0]], ("2", "1")),
        ([[1.0, 2.0], [1.0, None]], "value"),
        ([[1.0, 2.0], None], "value"),
        ([{"a": 1}, {"a": 2}], "struct"),
    ):
        pq.write_table(pa.table({"x": x, "y": [0, 1]}), path)
        with refused("value", file="own.parquet", key="x", names=names):
            prepared(tmp_path, path)


def test_tensors_of_parquet_keep_their_axes(tmp_path: Path) -> None:
    """As Ray and pyarrow write them."""
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(X)
    columns = {**{key: pa.array(each.tolist()) for key, each in ALL.items()}, "x": tensors}
    pq.write_table(pa.table(columns), tmp_path / "own.parquet")
    assert np.array_equal(prepared(tmp_path, tmp_path / "own.parquet").train.x, X[:9])
