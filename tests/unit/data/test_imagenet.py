"""Downsampled ImageNet, in small archives with the layout of the official npz version."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrepro.data.catalogue.catalogue import load_catalogue
from fedrepro.data.catalogue.kinds import DatasetSpec, DownsampledImageNet
from fedrepro.data.dataset import Dataset, open_dataset
from fedrepro.data.prepare import prepare
from fedrepro.data.readers.image_sets import BATCHES, VALIDATION
from support.places import ROOT
from support.raw_data import ends_whole, entry
from support.raw_fairness import zipped
from support.refusals import Fault, refused

CLASSES = "n00000007 1 kit_fox\nn00000003 2 tench\nn00000005 3 crane\n"
SIDE = 4


def arrays(labels: list[int], first: int, **changes: Any) -> dict[str, Any]:
    """Images whose pixels all have the sample's number, from ``first`` on."""
    pixels = np.repeat(np.arange(first, first + len(labels)), 3 * SIDE * SIDE)
    data = pixels.reshape(len(labels), -1).astype(np.uint8)
    return {"data": data, "labels": np.array(labels), "mean": np.zeros(3 * SIDE * SIDE)} | changes


def npz(content: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **content)
    return file.getvalue()


def files(**changes: bytes | None) -> dict[str, bytes]:
    """Ten batches of a sample of each class, and two validation images."""
    found = {name: npz(arrays([1, 2, 3], 10 * at)) for at, name in enumerate(BATCHES)}
    found |= {VALIDATION: npz(arrays([3, 2], 200)), "map_clsloc.txt": CLASSES.encode()}
    replaced = {name.replace("__", "."): each for name, each in changes.items()}
    return {name: each for name, each in (found | replaced).items() if each is not None}


def spec(folder: Path, **keys: Any) -> DatasetSpec:
    return entry("downsampled_imagenet", path=str(folder), **({"side": SIDE} | keys))


def read(tmp_path: Path, contents: dict[str, bytes], packed: bool = False, **keys: Any) -> Dataset:
    folder = tmp_path / "imagenet"
    folder.mkdir()
    if packed:  # as they are offered: a zip of all batches, one of the validation images
        batches = {name: contents.pop(name) for name in BATCHES}
        contents = {
            "Imagenet32_train_npz.zip": zipped(batches),
            "Imagenet32_val_npz.zip": zipped({VALIDATION: contents[VALIDATION]}),
            "map_clsloc.txt": contents["map_clsloc.txt"],
        }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    places = {"root": tmp_path / "data", "downloads": tmp_path / "raw"}
    told: list[float] = []
    prepare("imagenet", spec(folder, **keys), **places, progress=told.append)
    assert ends_whole(told)
    return open_dataset("imagenet", tmp_path / "data")


@pytest.mark.parametrize("packed", [True, False])
def test_chosen_classes_of_all_batches(packed: bool, tmp_path: Path) -> None:
    dataset = read(tmp_path, files(), packed, classes=["n00000005", "n00000003"])
    assert dataset.meta["class_names"] == ["n00000003", "n00000005"]
    # Of the labels 1, 2, 3 of each batch, 2 is tench and 3 is crane.
    assert dataset.train.y.tolist() == [0, 1] * 10
    assert dataset.train.x.shape == (20, 3, SIDE, SIDE) and dataset.train.x.dtype == np.uint8
    assert dataset.train.x[:4, 0, 0, 0].tolist() == [1, 2, 11, 12]
    assert dataset.test is not None
    assert dataset.test.y.tolist() == [1, 0]
    assert dataset.test.x[:, 2, 3, 3].tolist() == [200, 201]


def test_all_classes_and_the_order_of_planes(tmp_path: Path) -> None:
    """A row holds the red plane, the green and the blue one."""
    planes = np.tile(np.repeat(np.array([10, 20, 30], np.uint8), SIDE * SIDE), (2, 1))
    dataset = read(tmp_path, files(val_data__npz=npz(arrays([1, 3], 0, data=planes))))
    assert dataset.meta["class_names"] == ["n00000003", "n00000005", "n00000007"]
    assert dataset.train.y.tolist() == [2, 0, 1] * 10
    assert dataset.test is not None
    assert dataset.test.x[0, :, 0, 0].tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("changes", "keys", "fault"),
    [
        (
            {"train_data_batch_10__npz": None},
            {},
            {"code": "missing", "key": "train_data_batch_10.npz"},
        ),
        ({"map_clsloc__txt": None}, {}, {"code": "missing", "key": "map_clsloc.txt"}),
        ({"map_clsloc__txt": b"fox"}, {}, {"file": "map_clsloc.txt", "value": "fox"}),
        ({"map_clsloc__txt": b""}, {}, {"code": "damaged", "file": "map_clsloc.txt"}),
        ({}, {"classes": ["n00000004", "n00000003"]}, {"key": "classes", "value": "n00000004"}),
        ({}, {"side": 8}, {"names": ("8", "pixels")}),
        (
            {"val_data__npz": b"none"},
            {},
            {"code": "unreadable", "file": "val_data.npz", "names": "read"},
        ),
        ({"val_data__npz": npz({"x": np.zeros(2)})}, {}, {"code": "unreadable", "names": "read"}),
        ({"val_data__npz": npz(arrays([4], 0))}, {}, {"key": "labels", "names": "map_clsloc.txt"}),
        ({"val_data__npz": npz(arrays([0], 0))}, {}, {"key": "labels", "names": "map_clsloc.txt"}),
        (
            {"val_data__npz": npz(arrays([1], 0, data=np.array([{}], dtype=object)))},
            {},
            {"code": "unreadable", "names": "allow_pickle"},
        ),
    ],
)
def test_damage(
    changes: dict[str, bytes | None], keys: dict[str, Any], fault: Fault, tmp_path: Path
) -> None:
    with refused(**fault) as raised:
        read(tmp_path, files(**changes), **keys)
    assert "\n" not in str(raised.value)


def test_the_entry_names_100_classes() -> None:
    given = load_catalogue(ROOT / "config" / "datasets.yaml").datasets["imagenet100_32"]
    assert isinstance(given, DownsampledImageNet)
    assert len(set(given.classes)) == len(given.classes) == 100
    assert (given.side, given.mean, given.std) == (32, (0.5,) * 3, (0.5,) * 3)


def test_a_class_that_is_no_wordnet_id(tmp_path: Path) -> None:
    path = tmp_path / "datasets.yaml"
    path.write_text(
        "datasets: {a: {kind: downsampled_imagenet, title: t, licence: l, citation: c, path: x, "
        "classes: [crane]}}"
    )
    with refused(key="datasets.a.classes.0", value="crane", names="'n'"):
        load_catalogue(path)
