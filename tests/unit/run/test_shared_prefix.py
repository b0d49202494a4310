"""A run that goes on from another ends with the bytes that it would have had from the start.

The same for every inner method, server and clients, is in tests/property/test_every_method.py.
"""

import errno
import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedrepro
from fedrepro.config.run_spec import RunSpec
from fedrepro.provenance import arithmetic, identity
from fedrepro.run import checkpoint, runner
from fedrepro.run.shared_prefix import ParentRun, Sharing, kept_in
from support.places import TESTS
from support.refusals import refused
from support.tiny_run import dataset, partition, run_spec

SUPERFED = {"superfed_mm": {"start": 0.5}, "superfed_lm": {"start": 0.5}}
# t_s is 4 of 6 rounds and the window 2: three rounds are the inner method's.
VALUES: dict[str, Any] = {
    "rounds": 6, "epochs": 1, "model": "superfed_twonn", "checkpoint_every": 4,
    "hyperparameters": {"ima": {"start": 0.67, "window": 2}, **SUPERFED},
}  # fmt: skip
SHARED = 3
# With a server optimizer's state, states of clients, decisions, and numbers of clients.
INNER = (
    ("fedavg", {}),
    ("fedavg+fedadam", {}),
    ("scaffold+fedyogi", {}),
    ("aaggff_d+fedavg", {}),
    ("apfl", {"evaluate": {"clients": True}}),
    ("superfed_mm", {"evaluate": {"every": 2, "clients": True}}),
)


def spec_of(composition: str, **changes: Any) -> RunSpec:
    return run_spec(composition, **{**VALUES, **changes})


def carry_out(
    folder: Path,
    spec: RunSpec,
    sharing: Sharing,
    code: str = "code",
    rounds: int | None = None,
    note: Callable[[str], None] = print,
) -> tuple[dict[str, Any], list[int]]:
    """A run and the rounds that were played; it is stopped after ``rounds``."""
    played: list[int] = []

    def report(progress: runner.Progress) -> None:
        played.append(progress.round)
        if progress.round == rounds:
            raise StopIteration

    share = partition(spec.setting.evaluate.clients)
    return runner.run(
        spec, dataset(), share, folder, code, report, sharing=sharing, note=note
    ), played


def alone(folder: Path) -> Sharing:
    return Sharing(folder)


class World:
    """A parent run that has kept round 3, and its child run."""

    def __init__(
        self, root: Path, inner: str = "fedavg", child: str | None = None, **changes: Any
    ) -> None:
        self.root, self.notes = root, list[str]()
        self.inner = spec_of(inner, **changes)
        self.child = spec_of(child or f"ima+{inner}", **changes)
        self.kept = root / "trunks"

    def parent(self, code: str = "code", **stop: Any) -> None:
        carry_out(
            self.root / "trunk", self.inner, Sharing(self.kept, frozenset({SHARED})), code, **stop
        )

    def sharing(self, code: str = "code") -> Sharing:
        parent = ParentRun(self.inner, code, {}, SHARED, self.kept)
        return Sharing(self.root / "none", parent=parent)

    def go_on(self, name: str = "tail", **more: Any) -> tuple[dict[str, Any], list[int]]:
        return carry_out(
            self.root / name, self.child, self.sharing(), note=self.notes.append, **more
        )

    def expect_the_same(self, began: bool = True) -> None:
        """Of the child run's files and a run's from the start, all but what it went on from."""
        carry_out(self.root / "whole", self.child, alone(self.root / "none"))
        one, other = self.root / "tail", self.root / "whole"
        assert {file.name for file in one.iterdir()} == {file.name for file in other.iterdir()}
        for file in {file.name for file in one.iterdir()} - {"manifest.json", "timing.json"}:
            assert (one / file).read_bytes() == (other / file).read_bytes(), file
        found, wanted = (json.loads((each / "manifest.json").read_text()) for each in (one, other))
        went = found.pop("went_on_from", None)
        told = {"method": self.inner.method, "seed": 1, "round": SHARED}
        assert went == (told if began else None)
        assert found == wanted


TAILS = [
    (inner, f"{wrapper}+{inner}", changes)
    for inner, changes in INNER
    for wrapper in ("ima", "ima@released")
]
PERSONAL = {"evaluate": {"every": 2, "clients": True}}


@pytest.mark.parametrize(
    ("inner", "child", "changes"),
    [*TAILS, ("fedprox", "superfed_mm", PERSONAL), ("fedprox", "superfed_lm", PERSONAL)],
    ids=str,
)
def test_a_tail_ends_with_the_same_bytes(
    tmp_path: Path, inner: str, child: str, changes: dict[str, Any]
) -> None:
    world = World(tmp_path, inner, child, **changes)
    world.parent()
    assert kept_in(world.kept) == [(SHARED, world.kept / "round3")]
    _, played = world.go_on()
    assert played == [4, 5, 6] and not world.notes
    world.expect_the_same()
    timing = json.loads((tmp_path / "tail/timing.json").read_text())
    assert timing["rounds_per_second"] * timing["wall_seconds"] == pytest.approx(3)
    assert timing["resumed"] == 0


def test_what_a_trunk_keeps_changes_none_of_its_files(tmp_path: Path) -> None:
    world = World(tmp_path, "scaffold")
    world.parent()
    carry_out(tmp_path / "other", world.inner, alone(tmp_path / "none"))
    for file in ("manifest.json", "rounds.parquet", "clients.parquet", "model.safetensors"):
        assert (tmp_path / "trunk" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()


def test_a_trunk_that_was_broken_off_serves(tmp_path: Path) -> None:
    """And goes on itself, and leaves as it is what it kept."""
    world = World(tmp_path, "scaffold")
    with pytest.raises(StopIteration):
        world.parent(rounds=SHARED + 1)
    about = world.kept / "round3/about.json"
    before = about.stat().st_mtime_ns
    world.go_on()
    world.expect_the_same()
    world.parent()
    assert about.stat().st_mtime_ns == before


def test_a_finished_trunk_that_kept_nothing_is_no_hindrance(tmp_path: Path) -> None:
    world = World(tmp_path)
    carry_out(tmp_path / "trunk", world.inner, alone(world.kept))
    world.parent()
    assert kept_in(world.kept) == []  # it is not played again for that
    _, played = world.go_on()
    assert len(played) == 6 and not world.notes
    world.expect_the_same(began=False)


def test_code_that_changed_since_it_was_imported_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a child run of the new code would continue from rounds of the old code."""
    world = World(tmp_path)
    path, known = next(iter(fedrepro.CODE_FILES.items()))
    monkeypatch.setitem(fedrepro.CODE_FILES, path, (known[0] ^ 1, known[1]))
    with refused(file=Path(path).name, names=("changed", "process")):
        world.parent()
    assert not list(tmp_path.iterdir())


def test_a_parent_that_is_made_again_replaces_a_damaged_checkpoint(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.parent()
    (world.kept / "round3/checkpoint.safetensors").write_bytes(b"")
    shutil.rmtree(tmp_path / "trunk")
    world.parent()
    _, played = world.go_on()
    assert played == [4, 5, 6] and not world.notes
    world.expect_the_same()


def test_an_earlier_round_serves_and_a_later_one_does_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    sharing = Sharing(world.kept, frozenset({1, 2, 3, 4, 5}))
    carry_out(tmp_path / "trunk", world.inner, sharing)
    (world.kept / "round3/checkpoint.safetensors").write_bytes(b"")
    manifest, played = world.go_on()
    assert manifest["went_on_from"]["round"] == 2 and played == [3, 4, 5, 6]
    (note,) = world.notes
    assert note.startswith(f"{world.kept}/round3: ")


def test_a_parent_replaces_what_one_of_other_code_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.parent("earlier")
    shutil.rmtree(tmp_path / "trunk")
    world.parent()
    _, played = world.go_on()
    assert played == [4, 5, 6] and not world.notes


@pytest.mark.parametrize("change", ["code", "rate", "seed", "shares"])
def test_another_runs_checkpoint_is_not_gone_on_from(tmp_path: Path, change: str) -> None:
    world = World(tmp_path)
    child, inner = world.child, world.inner
    if change == "rate":
        world.inner = spec_of("fedavg", optimizer={"lr": 0.2})
    elif change == "seed":
        world.inner = replace(inner, seed=2)
    if change == "shares":
        sharing = Sharing(world.kept, frozenset({SHARED}))
        folder, share = tmp_path / "trunk", partition(held_out=True)
        runner.run(inner, dataset(), share, folder, "code", sharing=sharing)
    else:
        world.parent("other" if change == "code" else "code")
    world.child, world.inner = child, inner
    _, played = world.go_on()
    assert len(played) == 6
    (note,) = world.notes
    differing = {"code": "code", "shares": "data"}.get(change, "configuration")
    assert note.startswith(f"{world.kept}/round3: ") and differing in note


@pytest.mark.parametrize(
    ("way", "goes_on"),
    [
        ({"threads": 2}, False),  # sums in another order
        ({"executor": "parallel", "threads": 2}, True),  # the same bits in two processes
        ({"checkpoint_every": 1}, True),
    ],
    ids=str,
)
def test_only_a_parent_of_the_same_class_of_arithmetic_serves(
    tmp_path: Path, way: dict[str, Any], goes_on: bool
) -> None:
    world = World(tmp_path)
    execution = replace(world.inner.execution, **way)
    assert (arithmetic.of_spec(replace(world.inner, execution=execution))
            == arithmetic.of_spec(world.child)) == goes_on  # fmt: skip
    child, world.inner = world.inner, replace(world.inner, execution=execution)
    world.parent()
    world.inner = child
    _, played = world.go_on()
    assert (played, len(world.notes)) == (([4, 5, 6], 0) if goes_on else ([1, 2, 3, 4, 5, 6], 1))
    world.expect_the_same(began=goes_on)


def test_the_times_of_a_child_are_those_of_its_own_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that was broken off, those of all its rounds; each takes a second here."""
    seconds = itertools.count()
    monkeypatch.setattr(runner, "_cpu_seconds", lambda: float(next(seconds)))
    world = World(tmp_path)

    def timing(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((tmp_path / name / "timing.json").read_text())
        return found

    for last in (4, 5):  # after the checkpoints of rounds 3 and 4
        with pytest.raises(StopIteration):
            world.parent(rounds=last)
    world.parent()
    parent = timing("trunk")
    assert (parent["cpu_seconds"], parent["resumed"]) == (3 + 1 + 2, 2)
    world.go_on()
    child = timing("tail")
    assert (child["cpu_seconds"], child["resumed"]) == (3, 0)
    assert child["rounds_per_second"] == pytest.approx(3 / child["wall_seconds"])
    assert parent["rounds_per_second"] == pytest.approx(6 / parent["wall_seconds"])


def test_a_parent_on_other_data_is_not_gone_on_from(tmp_path: Path) -> None:
    """The same numbers of samples, clients and classes: only the values differ."""
    world = World(tmp_path)
    sharing = Sharing(world.kept, frozenset({SHARED}))
    other = replace(dataset(1), meta={"content_sha256": "other"})
    runner.run(world.inner, other, partition(), tmp_path / "trunk", "code", sharing=sharing)
    _, played = world.go_on()
    assert len(played) == 6 and len(world.notes) == 1


def test_another_machine_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.parent()
    monkeypatch.setattr(identity, "processor", lambda: "another")
    _, played = world.go_on()
    assert len(played) == 6 and len(world.notes) == 1


@pytest.mark.parametrize("file", ["checkpoint.safetensors", "about.json", "clients", "missing"])
def test_a_damaged_checkpoint_is_told_and_not_gone_on_from(tmp_path: Path, file: str) -> None:
    """Also where a single bit of a model is another, which no format would notice."""
    world = World(tmp_path, "scaffold")
    world.parent()
    folder = world.kept / "round3"
    path = folder / file
    if file == "clients":
        path = next((folder / "clients").iterdir())
    if file == "missing":
        next((folder / "clients").iterdir()).unlink()
    else:
        content = bytearray(path.read_bytes())
        content[-9] ^= 1
        path.write_bytes(content)
    world.go_on()
    assert len(world.notes) == 1 and "cannot resume from it" in world.notes[0]
    world.expect_the_same(began=False)


@pytest.mark.parametrize("linked", [True, False])
def test_killed_after_any_round_it_goes_on_to_the_same_bytes(
    tmp_path: Path, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its own first checkpoint from the parent run again.

    What it goes on from stays whole.
    """
    if not linked:
        monkeypatch.setattr(checkpoint.os, "link", _refused)
    world = World(tmp_path, "scaffold")
    world.parent()
    for last in (4, 5):
        with pytest.raises(StopIteration):
            world.go_on(rounds=last)
    _, played = world.go_on()
    assert played == [5, 6]
    world.expect_the_same()
    about = json.loads((world.kept / "round3/about.json").read_text())
    assert not list(checkpoint.changed_files(world.kept / "round3", about))


def _refused(*_: object) -> None:
    raise OSError(errno.ENOTSUP, "links are not supported")


def test_killed_for_real(tmp_path: Path) -> None:
    """kill -9 in the middle of a child run, then the same command."""
    world = World(tmp_path, "scaffold")
    world.parent()
    program = (
        "import os, sys; from pathlib import Path; from unit.run.test_shared_prefix import *\n"
        "world = World(Path(sys.argv[1]), 'scaffold')\n"
        "die = lambda progress: progress.round == 5 and os.kill(os.getpid(), 9)\n"
        "runner.run(world.child, dataset(), partition(), world.root / 'tail', 'code', die,"
        " sharing=world.sharing())"
    )
    where = {"cwd": TESTS, "timeout": 120}
    called = subprocess.run([sys.executable, "-c", program, str(tmp_path)], **where)
    assert called.returncode == -9
    _, played = world.go_on()
    assert played == [5, 6]
    world.expect_the_same()
