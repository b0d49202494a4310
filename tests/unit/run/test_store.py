"""Checkpoints and clients' states on disk."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fedrepro.engine import tree
from fedrepro.run.store import ClientStore, load_tree, save_tree
from support.refusals import refused
from support.tiny_disk import tiny_disk


def own(value: float, numbers: int = 4) -> tree.Tree:
    return {"local": {"w": torch.full((numbers,), value)}, "nothing": {}}


def test_a_tree_and_facts_come_back(tmp_path: Path) -> None:
    shared = torch.arange(6.0)
    what = {"a": {"b": shared, "c": shared, "empty": {}}, "n": torch.tensor(3)}
    save_tree(tmp_path / "x", what, {"round": 3, "list": [1, None]})
    again, facts = load_tree(tmp_path / "x")
    assert facts == {"round": 3, "list": [1, None]}
    assert again["a"]["empty"] == {} and torch.equal(again["a"]["c"], shared)
    assert int(again["n"]) == 3


def test_equal_trees_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("x", "y"):
        save_tree(tmp_path / name, own(1.0), {"z": 1, "a": 2})
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


@pytest.mark.parametrize("keep", [0, 5, 60, -1])
def test_a_damaged_file_is_one_line(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "x"
    save_tree(path, own(1.0))
    path.write_bytes(path.read_bytes()[:keep])
    with refused("damaged", file=str(path)):
        load_tree(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.view(torch.int32),  # the same bytes
        lambda w: w.view(torch.float16),
        lambda w: w.view(2, 3),
        lambda w: w.flip(0),
        lambda w: w[:-1],
    ],
)
def test_a_checksum_is_of_types_and_shapes_as_well(
    tmp_path: Path, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    path, tensor = tmp_path / "x", torch.arange(1.0, 7.0)
    save_tree(path, {"w": tensor}, {}, checksummed=True)
    with safe_open(path, framework="pt") as file:
        metadata, (name,) = file.metadata(), file.keys()
    save_file({name: tensor}, path, metadata)
    assert torch.equal(load_tree(path, checksummed=True)[0]["w"], tensor)
    save_file({name: change(tensor).contiguous()}, path, metadata)
    with refused("damaged", file=str(path)):
        load_tree(path, checksummed=True)


def test_memory_is_bounded_and_nothing_is_lost(tmp_path: Path) -> None:
    store = ClientStore(tmp_path, cache_bytes=3 * 16)
    for value in range(9):
        store.put(0, own(float(value)))
    assert not [*tmp_path.iterdir()]  # one client's state is in memory, however often it is put
    for client in range(20):
        store.put(client, own(float(client)))
    assert len(list(tmp_path.glob("*.safetensors"))) == 17
    for client in range(20):
        known = store.get(client)
        assert known is not None and float(known["local"]["w"][0]) == client
    assert store.get(99) is None
    assert store.clients() == list(range(20))
    # A forked process may read, too: that writes nothing.
    assert len(list(tmp_path.glob("*.safetensors"))) == 17


def test_an_interrupted_run_sees_the_states_of_its_checkpoint(tmp_path: Path) -> None:
    store = ClientStore(tmp_path, cache_bytes=16)
    for client in range(4):
        store.put(client, own(1.0))
    versions = json.loads(json.dumps(store.flush()))
    store.settle()
    for client in range(4):  # the next rounds, whose checkpoint is never written
        store.put(client, own(2.0))
    resumed = ClientStore(tmp_path, versions)
    for client in range(4):
        known = resumed.get(client)
        assert known is not None and float(known["local"]["w"][0]) == 1.0
    assert len(list(tmp_path.glob("*.safetensors"))) == 4


def test_a_checkpoint_removes_what_it_replaces(tmp_path: Path) -> None:
    store = ClientStore(tmp_path)
    for value in (1.0, 2.0, 3.0):
        store.put(0, own(value))
        store.flush()
        store.settle()
    assert len(list(tmp_path.glob("*.safetensors"))) == 1


def test_full_disk(tmp_path: Path) -> None:
    """One line; the old file stays whole; the next call succeeds once there is room."""
    disk = tmp_path / "disk"
    with tiny_disk(disk, 256) as resize:
        path = disk / "state"
        save_tree(path, own(1.0, 100))
        with refused("unwritable", file=str(path)):
            save_tree(path, own(2.0, 200_000))
        again, _ = load_tree(path)
        assert float(again["local"]["w"][0]) == 1.0
        assert [file.name for file in disk.iterdir()] == ["state"]
        resize(4096)
        save_tree(path, own(2.0, 200_000))
        again, _ = load_tree(path)
        assert len(again["local"]["w"]) == 200_000


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_umask_is_obeyed(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        save_tree(tmp_path / "x", own(1.0))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o666 & ~mask
