"""MedMNIST's files, and MNIST in the size of CIFAR-10: small files in the official layouts."""

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedrepro.data.catalogue.catalogue import load_catalogue, meaning_of
from fedrepro.data.dataset import open_dataset
from fedrepro.data.prepare import prepare
from fedrepro.support.errors import UserError
from support.loopback import serving
from support.places import ROOT
from support.raw_data import entry, idx_entry, idx_files, medmnist, write_packed
from support.refusals import Fault, refused

NAME = "tiny_64.npz"


def made_entry(content: bytes, base: str) -> Any:
    md5 = hashlib.md5(content).hexdigest()
    file = {"name": NAME, "md5": md5, "urls": [f"{base}/{NAME}?download=1"]}
    return entry("medmnist", class_names=["a", "b", "c"], side=64, file=file)


def prepared(content: bytes, root: Path) -> Any:
    with serving({f"/{NAME}?download=1": content}) as server:
        spec = made_entry(content, server.address)
        prepare("tiny", spec, downloads=root / "downloads", root=root / "data")
    return open_dataset("tiny", root / "data")


@pytest.mark.parametrize("channels", [1, 3])
def test_training_and_test_images_are_read_as_they_are(channels: int, tmp_path: Path) -> None:
    content = medmnist(channels=channels)
    data = prepared(content, tmp_path)
    assert data.input_shape == (channels, 64, 64) and data.classes == 3
    assert (len(data.train.y), len(data.test.y)) == (20, 8)
    with np.load(io.BytesIO(content)) as raw:
        first, labels = raw["train_images"][0], raw["test_labels"][:, 0]
    expected = first[None] if channels == 1 else first.transpose(2, 0, 1)
    assert (data.train.x[0] == expected).all() and (data.test.y == labels).all()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (
            medmnist(28),
            Fault(code="value", key="train_images", names=("(20, 28, 28, 3)", "(20, 64, 64)")),
        ),
        (
            medmnist(train_labels=np.zeros(20, np.uint8)),
            Fault(code="value", key="train_labels", names=("(20,)", "(20, 1)")),
        ),
        (
            medmnist(test_labels=np.array([[object()]] * 8)),
            Fault(code="unreadable", names="allow_pickle=False"),
        ),
        (
            medmnist(train_labels=np.full((20, 1), 7, np.uint8)),
            Fault(code="value", key="train", value=7, names="2"),
        ),
        (
            medmnist(test_labels=np.full((8, 1), 3, np.uint8)),
            Fault(code="value", key="test", value=3, names="2"),
        ),
        (
            medmnist(train_labels=np.full((20, 1), -1)),
            Fault(code="value", key="train", value=-1, names="2"),
        ),
        (
            medmnist(train_labels=np.ones((20, 1))),
            Fault(code="value", key="train_labels", names="float64"),
        ),
        (medmnist()[:999], Fault(code="unreadable")),
        (b"PK", Fault(code="unreadable")),
    ],
)
def test_what_is_refused(content: bytes, fault: Fault, tmp_path: Path) -> None:
    with refused(**fault):
        prepared(content, tmp_path)


def test_another_file_is_not_read(tmp_path: Path) -> None:
    with serving({f"/{NAME}?download=1": medmnist(28)}) as server:
        spec = made_entry(medmnist(), server.address)
        with pytest.raises(UserError, match="md5"):
            prepare("tiny", spec, downloads=tmp_path / "downloads", root=tmp_path / "data")


def test_mnist_is_resized_as_torchvision_does(tmp_path: Path) -> None:
    contents = idx_files(side=28)
    write_packed(contents, tmp_path / "archives")
    for name, keys in (("plain", {}), ("wide", {"side": 32})):
        spec = idx_entry(contents, **keys)
        prepare(name, spec, tmp_path / "archives", downloads=tmp_path / "raw", root=tmp_path)
    plain, wide = open_dataset("plain", tmp_path), open_dataset("wide", tmp_path)
    assert wide.input_shape == (1, 32, 32) and len(wide.train.y) == 60
    image = Image.fromarray(plain.train.x[7][0]).resize((32, 32), Image.Resampling.BILINEAR)
    assert (wide.train.x[7][0] == np.asarray(image)).all()


def test_chapter_iv_has_its_data_in_the_catalogue() -> None:
    known = load_catalogue(ROOT / "config/datasets.yaml").datasets
    for name, shape in (
        ("mnist_32", (1, 32, 32)),
        ("cifar10", (3, 32, 32)),
        ("dermamnist_64", (3, 64, 64)),
        ("organcmnist_64", (1, 64, 64)),
    ):
        stated = known[name].size
        assert stated is not None and stated.shape == shape
    # A key that came later changes nothing for data that do not use it.
    assert "side" not in meaning_of(known["mnist"]) and meaning_of(known["mnist_32"])["side"] == 32
