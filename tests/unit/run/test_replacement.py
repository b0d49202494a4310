"""A run's folder: what a run may replace, and that it loses nothing that someone else put there."""

import errno
import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import fedrepro as fr
from fedrepro.run import runner
from fedrepro.run.replacement import Replaces
from fedrepro.run.results import FINISHED, partial_of
from fedrepro.run.state import DECISION_COLUMNS, MIXTURE_COLUMNS, Rows
from fedrepro.run.store import save_tree
from support.refusals import refused
from support.tiny_run import dataset, partition, run_spec

KEEPS = {"save_models_at": {"fedavg": [1]}}  # a file for each client, which Snakemake does not know


def carry_out(
    folder: Path, rounds: int = 1, replaces: Replaces = "others", **changes: object
) -> int:
    """Rounds that were played."""
    played: list[int] = []
    spec = run_spec(rounds=rounds, **changes)
    data, dealt = dataset(), partition()
    runner.run(
        spec, data, dealt, folder, "code", lambda now: played.append(now.round), replaces=replaces
    )
    return len(played)


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def write(folder: Path, name: str, text: str = "mine") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


FOREIGN: Mapping[str, Callable[[Path], None]] = {
    "notes": lambda folder: write(folder, "thesis_notes.txt"),
    "a hidden file": lambda folder: write(folder, ".env"),
    "a folder": lambda folder: (folder / "data").mkdir(parents=True),
    "a model": lambda folder: write(folder, "model.safetensors"),
    "tables without a manifest": lambda folder: write(folder, "rounds.parquet"),
    "the manifest of something else": lambda folder: write(folder, "manifest.json", '{"name": 1}'),
    "a manifest that cannot be read": lambda folder: write(folder, "manifest.json", "{"),
    "other runs": lambda folder: carry_out(folder / "first") and None,
    "a link": lambda folder: folder.mkdir() or (folder / "link").symlink_to("nowhere"),
}


@pytest.mark.parametrize("replaces", ["none", "others", "all"])
@pytest.mark.parametrize("name", FOREIGN)
def test_a_folder_with_someones_own_files_is_refused(
    tmp_path: Path, name: str, replaces: Replaces
) -> None:
    folder = tmp_path / "experiments"
    FOREIGN[name](folder)
    before, names = content(tmp_path), sorted(tmp_path.rglob("*"))
    with refused(names=("experiments", "folder")) as caught:
        carry_out(folder, replaces=replaces)
    assert "\n" not in str(caught.value)
    assert (content(tmp_path), sorted(tmp_path.rglob("*"))) == (before, names)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE])
@pytest.mark.parametrize("name", ["manifest.json", "rounds.parquet"])
@pytest.mark.parametrize("amid", [False, True])
def test_a_run_that_cannot_be_read_for_a_moment_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, name: str, amid: bool
) -> None:
    """Whether it cannot be opened, or a read of it fails afterwards."""
    folder, open_of = tmp_path / "seed1", Path.open
    carry_out(folder)
    before = content(folder)

    class Gone(io.FileIO):
        def readinto(self, *_: Any) -> int:
            raise OSError(number, os.strerror(number))

        readall = read = readinto  # type: ignore[assignment]

    def opened(path: Path, *args: Any, **options: Any) -> Any:
        if path.name == name:
            if amid:
                return io.BufferedReader(Gone(path))
            raise OSError(number, os.strerror(number), str(path))
        return open_of(path, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", opened)
        with refused("unreadable", file=name):
            carry_out(folder)
    assert content(folder) == before
    assert carry_out(folder) == 0


@pytest.mark.parametrize("left", ["nothing", "folder", "files"])
def test_a_folder_without_someones_own_files_is_used(tmp_path: Path, left: str) -> None:
    folder = tmp_path / "seed1"
    if left == "folder":
        folder.mkdir()
    elif left != "nothing":
        carry_out(folder, **KEEPS)
        for name in ("manifest.json", "rounds.parquet", "clients.parquet", "timing.json"):
            (folder / name).unlink()
        (folder / "model.safetensors").unlink()
        assert list(folder.iterdir())
    assert carry_out(folder, **KEEPS) == 1
    assert list(tmp_path.iterdir()) == [folder]
    assert carry_out(folder, **KEEPS) == 0


def test_files_beside_and_among_those_of_a_run_stay_when_it_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "seed1"
    carry_out(folder, **KEEPS)
    beside = ("seed1.old", ".seed1.old", "seed1.partial", "seed1.tmp", ".seed1.0a.old", "seed2")
    for name in beside:
        write(folder.parent / name, "note")
    names = ("note", "plots/1.png", "round9.txt", "seed2/rounds.parquet")
    inside = dict.fromkeys(names, b"mine")
    for name in inside:
        write(folder, name)
    assert carry_out(folder, rounds=2) == 2
    found = content(folder)
    assert inside.items() <= found.items()
    listed = json.loads(found["manifest.json"])["files"]
    assert found.keys() - inside == {*listed, "manifest.json", "timing.json"}
    assert {path.name for path in folder.parent.iterdir()} == {*beside, "seed1"}
    for name in beside:
        assert content(folder.parent / name) == {"note": b"mine"}


def test_what_snakemake_left_of_another_result_goes(tmp_path: Path) -> None:
    """It removes the files that a rule names; the others, which only runs write, are of no use.

    Someone's own files of such names have another content, and stay.
    """
    folder = tmp_path / "results/runs/mine/own/fedavg/seed1"
    carry_out(folder)
    wanted = {name for name in content(folder) if name != "timing.json"}
    for name in wanted | {"timing.json"}:
        (folder / name).unlink()
    Rows(DECISION_COLUMNS).write(folder / "decisions.parquet")
    Rows((*MIXTURE_COLUMNS, "ece")).write(folder / "mixtures.parquet")
    save_tree(folder / "round1-images.safetensors", {"x": torch.ones(2)})
    save_file({"x": torch.ones(2)}, folder / "round2-own.safetensors")
    with refused(file=str(folder), names="decisions.parquet"):
        carry_out(folder, replaces="none")  # in a notebook's folder they may be someone's own
    assert carry_out(folder) == 1
    left = {name for name in content(folder) if name != "timing.json"}
    assert left == wanted | {"round2-own.safetensors"}
    for name in wanted | {"timing.json"}:
        (folder / name).unlink()
    others = ("decisions.parquet", "mixtures.parquet", "round9-mine.safetensors")
    for name in others:
        write(folder, name, "mine")
    Rows(("client", "weight")).write(folder / "mixtures.parquet")
    assert carry_out(folder) == 1
    left = {name for name in content(folder) if name != "timing.json"}
    assert left == {*wanted, *others, "round2-own.safetensors"}
    write(folder, "round1-global.safetensors")  # which the next result has too
    with refused(names="round1-global.safetensors"):
        carry_out(folder, rounds=2, **KEEPS)
    assert content(folder)["round1-global.safetensors"] == b"mine"


def test_files_that_come_while_a_run_trains_stay(tmp_path: Path) -> None:
    """The run is refused its folder then; once they are moved away, it needs no round again."""
    folder, rounds = tmp_path / "run", 2

    def come(progress: runner.Progress) -> None:
        if progress.round == rounds:
            write(folder, "rounds.parquet")

    data, dealt = dataset(), partition()
    with refused(file=str(folder), names="rounds.parquet"):
        runner.run(run_spec(rounds=rounds), data, dealt, folder, "code", come)
    assert content(folder) == {"rounds.parquet": b"mine"}
    folder.rename(tmp_path / "mine")
    assert carry_out(folder, rounds) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"run", "mine"}


def test_what_a_run_may_replace(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert carry_out(folder, replaces="none") == 1
    assert carry_out(folder, replaces="none") == carry_out(folder) == 0
    before = content(folder)
    with refused(file=str(folder), names=("1", "2")):
        carry_out(folder, rounds=2, replaces="none")
    assert content(tmp_path) == {f"run/{name}": file for name, file in before.items()}
    assert carry_out(folder, replaces="all") == 1
    again = content(folder)
    assert again.pop("timing.json") != before.pop("timing.json")
    assert again == before
    assert carry_out(folder, rounds=2) == 2
    (folder / "rounds.parquet").write_bytes(b"")
    with refused(file=str(folder), names=("damaged", "rounds.parquet")):
        carry_out(folder, rounds=2, replaces="none")
    assert carry_out(folder, rounds=2) == 2
    assert list(tmp_path.iterdir()) == [folder]


def test_a_result_that_outlived_its_call_leaves_nothing_behind(tmp_path: Path) -> None:
    """It was moved aside with a note in it, and is not what is asked for by now."""
    folder = tmp_path / "seed1"
    carry_out(folder)
    write(folder, "note")
    aside = partial_of(folder) / FINISHED
    aside.parent.mkdir()
    folder.rename(aside)
    assert carry_out(folder, rounds=2) == 2
    assert list(tmp_path.iterdir()) == [folder]
    assert (folder / "note").read_text() == "mine"


def test_links_and_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk" / "run"
    disk.mkdir(parents=True)
    (tmp_path / "run").symlink_to(disk)
    assert carry_out(tmp_path / "run") == 1
    assert (tmp_path / "run").is_symlink() and (disk / "manifest.json").exists()
    assert carry_out(tmp_path / "run", rounds=2) == 2
    assert [path.name for path in disk.parent.iterdir()] == ["run"]
    monkeypatch.chdir(disk)
    assert carry_out(Path(), rounds=2) == carry_out(Path("../run"), rounds=2) == 0
    for folder in (Path(), disk, Path("../run"), tmp_path / "run"):
        with refused(names=("directory", "another")):
            carry_out(folder)
    write(tmp_path, "file")
    with refused(names=("file", "folder")):
        carry_out(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_train_refuses_what_is_not_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = [[float(number % 2), 1.0] for number in range(8)]
    clients = [(x, [number % 2 for number in range(8)])] * 2

    def train(folder: str, rounds: int = 1, overwrite: bool = False) -> fr.Run:
        more = {"rounds": rounds, "overwrite": overwrite}
        return fr.train("fedavg", "logistic", clients, test=clients[0], folder=folder, **more)

    monkeypatch.chdir(tmp_path)
    write(tmp_path, "runs/note")
    for folder in (".", "..", "runs", os.fspath(tmp_path)):
        for overwrite in (False, True):
            with refused("value", names="folder"):
                train(folder, overwrite=overwrite)
    train("runs/first")
    with refused("value", file="runs/first", names="finished"):
        train("runs/first", rounds=2)
    assert train("runs/first", rounds=2, overwrite=True).rounds["round"].tolist() == [1, 2]
    assert (tmp_path / "runs/note").read_text() == "mine"


def test_notes_beside_a_run_of_a_workbench_stay(tmp_path: Path) -> None:
    """Snakemake removes the files that its rule names, before it calls the command."""
    folder = tmp_path / "results/runs/own/s/fedavg/seed1"
    write(folder, "NOTES.txt")
    assert carry_out(folder) == 1 and (folder / "NOTES.txt").read_text() == "mine"
    assert carry_out(folder) == 0
    (folder / "manifest.json").unlink()
    with refused(file="seed1"):  # of whom are the other files?
        carry_out(folder)
