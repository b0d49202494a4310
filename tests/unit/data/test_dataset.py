"""Prepared data appear whole or not at all, and open at once."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from fedrepro.data import dataset as opening
from fedrepro.data import prepare as preparing
from fedrepro.data.dataset import open_dataset, refuse_damage
from fedrepro.data.prepare import prepare
from fedrepro.support.files import new_token
from support.raw_data import idx, idx_entry, idx_files, write_packed
from support.refusals import refused
from support.tiny_disk import tiny_disk

CONTENTS = idx_files(train=60, test=20)


def make(
    tmp_path: Path,
    contents: dict[str, bytes] = CONTENTS,
    again: bool = False,
    **keys: object,
) -> Path:
    write_packed(contents, tmp_path / "archives")
    return prepare(
        "d",
        idx_entry(contents, **keys),
        tmp_path / "archives",
        downloads=tmp_path / "downloads",
        root=tmp_path / "data",
        again=again,
    )


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def test_prepare_and_open(tmp_path: Path) -> None:
    folder = make(tmp_path, mean=(0.5,), std=(0.2,))
    dataset = open_dataset("d", tmp_path / "data")
    assert (dataset.name, dataset.task, dataset.classes) == ("d", "classification", 10)
    assert dataset.input_shape == (1, 8, 8)
    assert (dataset.mean, dataset.std) == ((0.5,), (0.2,))
    assert isinstance(dataset.train.x, np.memmap)
    assert dataset.train.x.dtype == np.uint8
    assert dataset.train.y.dtype == np.int64
    assert dataset.train.group is None
    assert dataset.test is not None
    assert (len(dataset.train), len(dataset.test)) == (60, 20)
    assert dataset.train.x[:].tobytes() == CONTENTS["train-images-idx3-ubyte"][16:]
    assert not list(folder.parent.glob(".*tmp"))


def test_equal_files_for_equal_input_and_nothing_done_twice(tmp_path: Path) -> None:
    first = state(make(tmp_path / "a"))
    second = state(make(tmp_path / "b"))
    assert {name: content for name, (_, content) in first.items()} == {
        name: content for name, (_, content) in second.items()
    }
    assert state(make(tmp_path / "a")) == first


def test_a_changed_entry_or_file_is_prepared_again(tmp_path: Path) -> None:
    before = open_dataset("d", make(tmp_path).parent)
    about = tmp_path / "data/d/meta.json"
    os.utime(about, (1e9, 1e9))
    make(tmp_path, again=True)
    assert about.stat().st_mtime == 1e9  # by which Snakemake goes: it is as it was
    for mean in (0.5, 0.4):
        os.utime(about, (1e9, 1e9))
        make(tmp_path, mean=(mean,), std=(0.2,))
        assert open_dataset("d", tmp_path / "data").mean == (mean,)
        assert about.stat().st_mtime > 1e9
    make(tmp_path, idx_files(train=70))
    after = open_dataset("d", tmp_path / "data")
    assert len(after.train) == 70
    assert after.meta["content_sha256"] != before.meta["content_sha256"]


def test_not_prepared(tmp_path: Path) -> None:
    make(tmp_path)
    with refused("missing", file="data/dd", names="`fedrepro prepare dd`", near="d"):
        open_dataset("dd", tmp_path / "data")


@pytest.mark.parametrize("name", ["train_x.npy", "test_y.npy", "meta.json"])
@pytest.mark.parametrize("kept", [0, 20])
def test_a_truncated_file_is_not_opened_and_prepare_recovers(
    name: str, kept: int, tmp_path: Path
) -> None:
    folder = make(tmp_path)
    path = folder / name
    path.write_bytes(path.read_bytes()[:kept])
    with refused("damaged", file="data/d", names="fedrepro prepare d") as raised:
        open_dataset("d", tmp_path / "data")
    assert "\n" not in str(raised.value)
    make(tmp_path)
    assert len(open_dataset("d", tmp_path / "data").train) == 60


@pytest.mark.parametrize("name", ["train_x.npy", "train_y.npy", "test_x.npy", "test_y.npy"])
def test_a_changed_bit_is_found_in_every_array_and_a_further_byte_at_once(
    name: str, tmp_path: Path
) -> None:
    path = make(tmp_path) / name
    refuse_damage("d", tmp_path / "data")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with refused("damaged", file="data/d", names=name):
        refuse_damage("d", tmp_path / "data")
    make(tmp_path)
    assert path.read_bytes() != whole  # sums are not looked at whenever data are used
    make(tmp_path, again=True)
    assert path.read_bytes() == whole
    path.write_bytes(whole + b"\0")
    with refused("damaged", file="data/d", names=name):
        open_dataset("d", tmp_path / "data")
    make(tmp_path)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("lack", [MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory")])
def test_lack_of_memory_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: Exception
) -> None:
    make(tmp_path)
    monkeypatch.setattr(np, "load", Mock(side_effect=lack))
    with pytest.raises(MemoryError):
        open_dataset("d", tmp_path / "data")


@pytest.mark.parametrize("change", [-1, 1])
def test_data_in_the_format_of_another_version_are_prepared_again(
    change: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = opening.FORMAT
    with monkeypatch.context() as patch:
        for module in (opening, preparing):
            patch.setattr(module, "FORMAT", now + change)
        make(tmp_path)
    with refused("damaged", file="data/d"):
        open_dataset("d", tmp_path / "data")
    make(tmp_path)
    assert open_dataset("d", tmp_path / "data").meta["format"] == now


def test_what_a_killed_call_left_is_not_taken(tmp_path: Path) -> None:
    left = tmp_path / "data" / f".d.{new_token()}.tmp"
    left.mkdir(parents=True)
    (left / "train_x.npy").write_bytes(b"half")
    with refused("missing", file="data/d"):
        open_dataset("d", tmp_path / "data")
    make(tmp_path)
    assert len(open_dataset("d", tmp_path / "data").train) == 60
    assert not left.exists()


def test_an_empty_folder_made_by_snakemake_is_filled(tmp_path: Path) -> None:
    (tmp_path / "data" / "d").mkdir(parents=True)
    make(tmp_path)
    assert len(open_dataset("d", tmp_path / "data").train) == 60


def test_a_full_disk_is_one_line_and_the_next_call_recovers(tmp_path: Path) -> None:
    large = idx_files(train=2000, test=20, side=28)  # 1.6 MB
    write_packed(large, tmp_path / "archives")
    with tiny_disk(tmp_path / "data", kibibytes=1024) as resize:
        with refused("unwritable", file="d", names=("data/d", "written")) as raised:
            make(tmp_path, large)
        assert "\n" not in str(raised.value)
        assert not list((tmp_path / "data").iterdir())
        resize(8192)
        make(tmp_path, large)
        assert len(open_dataset("d", tmp_path / "data").train) == 2000


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    large = idx_files(train=2000, test=20, side=28)
    with tiny_disk(tmp_path / "data", kibibytes=1024):
        before = state(make(tmp_path))
        with refused("unwritable", names="space"):
            make(tmp_path, large)
        assert state(tmp_path / "data" / "d") == before


def test_a_full_disk_during_download(tmp_path: Path) -> None:
    large = idx_files(train=2000, test=20, side=28)
    with tiny_disk(tmp_path / "downloads", kibibytes=1024) as resize:
        with refused("unwritable", names=("train-images-idx3-ubyte", "written")):
            make(tmp_path, large)
        assert not list((tmp_path / "downloads" / "d").iterdir())
        resize(8192)
        make(tmp_path, large)
    assert len(open_dataset("d", tmp_path / "data").train) == 2000


def test_opening_needs_no_torch_and_no_time(tmp_path: Path) -> None:
    """Arrays of Fashion-MNIST's size; the time is the best of five, on a machine that is busy."""
    contents = idx_files(60_000, 10_000, side=1)
    for name, number in (("train-images-idx3-ubyte", 60_000), ("t10k-images-idx3-ubyte", 10_000)):
        contents[name] = idx(np.zeros((number, 28, 28), np.uint8))
    make(tmp_path, contents)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        open_dataset("d", tmp_path / "data")
        times.append(time.perf_counter() - start)
    assert min(times) < 0.3
    script = "import sys, fedrepro.data.partition.partition, fedrepro.data.dataset as d\n"
    script += "from pathlib import Path\n"
    script += "d.open_dataset('d', Path(sys.argv[1])); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "data")], check=True)
