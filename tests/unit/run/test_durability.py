"""The machine stops at any moment of a run: what is on the disk then is enough to go on from."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedrepro.run import checkpoint, runner
from fedrepro.run.assembly import make_plan
from fedrepro.run.state import State
from fedrepro.run.store import load_tree
from fedrepro.support import files
from fedrepro.support.files import sha256_of
from support.crashing_disk import Disk, Image, restore
from support.tiny_run import carry_out, dataset, partition, run_spec

KEPT = "round1-client0.safetensors"
SAME = ("rounds.parquet", "clients.parquet", "model.safetensors", KEPT, "manifest.json")
# Every client has a state, some are replaced in each round, and a model of each is kept.
CONFIG = run_spec("scaffold", rounds=3, checkpoint_every=1, save_models_at={"scaffold": [1]})


class Watch:
    """Resumes from each image, and keeps the first fault; later images are then not tried."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.plan = make_plan(CONFIG, dataset(), partition())
        self.saved = 0  # rounds of the last checkpoint that was said to be kept
        self.returned = False
        self.images: dict[str, Image] = {}
        self.fault = ""

    def __call__(self, image: Image) -> None:
        if self.fault:
            return
        key = hashlib.sha256(repr(sorted(image.items())).encode()).hexdigest()
        key += f"{self.saved}{self.returned}"
        if key not in self.images:
            self.images[key] = image
            restore(image, self.place)
            try:
                self._try()
            except Exception as error:
                self.fault = f"{error!r}"[:300]
            shutil.rmtree(self.place)

    def _try(self) -> None:
        folder, partial = self.place / "seed1", self.place / "seed1.partial"
        finished = self._whole(folder)
        if folder.exists() and not finished:
            raise AssertionError("a run's folder is there and not whole")
        if finished:
            return
        if self.returned:
            raise AssertionError("a finished run is gone")
        done = 0
        for file in partial.glob(f"{checkpoint.HOLDER}*/{checkpoint.CHECKPOINT}"):
            facts = load_tree(file)[1]
            no_lock: Any = None
            place = checkpoint.Place(folder, file.parent, no_lock, facts["subject"])
            state = checkpoint.resume(place, self.plan)
            done = state.done
            for client in state.client_states.clients():
                assert state.client_states.get(client)
        if done < self.saved:
            raise AssertionError(f"round {done} is there, round {self.saved} was kept")

    def _whole(self, folder: Path) -> bool:
        try:
            manifest = json.loads((folder / "manifest.json").read_text())
            return (folder / "timing.json").stat().st_size > 0 and all(
                sha256_of(folder / name) == digest for name, digest in manifest["files"].items()
            )
        except (OSError, ValueError):
            return False


def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """A whole run, watched."""
    root = tmp_path / "disk"
    root.mkdir()
    watch = Watch(tmp_path / "image")
    disk = Disk(root, watch)
    save = checkpoint.save

    def note(state: State, place: checkpoint.Place) -> None:
        save(state, place)
        watch.saved = state.done

    with disk.watching(monkeypatch):
        monkeypatch.setattr(checkpoint, "save", note)
        carry_out(root / "seed1", CONFIG)
        watch.returned = True
        disk._moment()
    return watch


def test_a_crash_at_every_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = play(tmp_path, monkeypatch)
    assert not watch.fault
    assert len(watch.images) > 100
    # From some of them, the whole way.
    monkeypatch.undo()
    carry_out(tmp_path / "whole", CONFIG)
    images = list(watch.images.values())
    some = images[:: len(images) // 6]
    taken = [each for each in images if any(name.endswith(f"finished/{KEPT}") for name in each)]
    assert taken
    for image in [*some, taken[0], taken[-1]]:
        restore(image, tmp_path / "again")
        carry_out(tmp_path / "again/seed1", CONFIG)
        for name in SAME:
            ours = (tmp_path / "again/seed1" / name).read_bytes()
            assert ours == (tmp_path / "whole" / name).read_bytes()
        shutil.rmtree(tmp_path / "again")


def _without_flush(path: Path) -> None:
    return


def _files_only(path: Path) -> None:
    if path.is_file():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


@pytest.mark.parametrize("flush", [_without_flush, _files_only])
def test_what_is_not_flushed_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: Callable[[Path], None]
) -> None:
    for module in (files, runner, checkpoint):
        monkeypatch.setattr(module, "flush", flush)
    assert play(tmp_path, monkeypatch).fault


def test_a_wrong_order_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old client states removed before the checkpoint that does without them."""
    from fedrepro.run.store import ClientStore

    whole = ClientStore.flush

    def eager(self: ClientStore) -> dict[str, int]:
        versions = whole(self)
        self.settle()
        return versions

    monkeypatch.setattr(ClientStore, "flush", eager)
    assert play(tmp_path, monkeypatch).fault
