"""Files that stay, or are one line."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedrepro.support.errors import UserError
from fedrepro.support.files import all_below, atomic_folder, settle, visible, write_atomically
from support.refusals import refused


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("wanted", ["x", "deep/x"])
def test_a_file_that_cannot_be_written_is_one_line_that_names_what_is_no_folder(
    tmp_path: Path, linked: bool, wanted: str
) -> None:
    """It said that the wanted file exists."""
    there = tmp_path / "there"
    there.symlink_to(tmp_path / "nowhere") if linked else there.touch()
    path = there / wanted
    with (
        refused("unwritable", file=str(path)) as raised,
        write_atomically(path),
    ):
        pass
    cause = raised.value.__cause__
    assert isinstance(cause, NotADirectoryError) and cause.filename == str(there)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_folder_that_cannot_be_replaced_stays(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rename = tmp_path / "data", os.rename
    folder.mkdir()
    (folder / "old").touch()

    def failing(path: Path, target: Path) -> None:
        if path.name.endswith(".tmp"):
            raise error
        rename(path, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises((UserError, KeyboardInterrupt)), atomic_folder(folder) as made:
        (made / "new").touch()
    assert [path.name for path in folder.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [folder]


def content(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


LISTED = {"made", "parts/1", "gone"}
OLD = {"made": "old", "gone": "old", "parts/1": "old"}
MINE = {"note": "mine", "parts/note": "mine", "plots/1": "mine"}
NEW = {"made": "new", "parts/1": "new", "parts/2": "new"}


def replace(folder: Path, **more: str) -> None:
    with atomic_folder(folder, lambda there: LISTED) as made:
        write(made, NEW | more)


def test_what_is_not_ours_stays_in_a_folder_that_is_replaced(tmp_path: Path) -> None:
    """And beside it, whatever its name."""
    write(tmp_path / "data", OLD | MINE)
    names = ("data.old", ".data.old", ".data.tmp", "data.tmp", "data.partial", ".data.my.old")
    for name in names:
        write(tmp_path / name, MINE)
    outside = tmp_path / "outside"
    write(outside, MINE)
    (tmp_path / "data" / "link").symlink_to(outside)
    (tmp_path / "data" / "parts").rename(tmp_path / "data" / "kept")
    (tmp_path / "data" / "parts").symlink_to(outside)  # in the place of a folder of the new one
    (tmp_path / "data" / "unlisted").write_text("old")
    replace(tmp_path / "data", unlisted="new")
    link = tmp_path / "data" / "link"
    assert link.readlink() == outside
    link.unlink()
    kept = {"note": "mine", "plots/1": "mine", "kept/note": "mine", "kept/1": "old"}
    assert content(tmp_path / "data") == NEW | kept | {"unlisted": "new"}
    assert content(outside) == MINE
    for name in names:
        assert content(tmp_path / name) == MINE
    assert len(list(tmp_path.iterdir())) == len(names) + 2


def test_a_file_is_ours_by_its_path_and_not_by_its_name(tmp_path: Path) -> None:
    """Of files that the new folder lacks, at any depth: `gone` is ours, `parts/gone` is theirs."""
    ours = {"gone": "old", "parts/past": "old", "parts/deep/past": "old"}
    theirs = {"past": "mine", "parts/gone": "mine", "parts/deep/gone": "mine", "deep/past": "mine"}
    write(tmp_path / "data", ours | theirs)
    made = {"made": "new", "parts/made": "new", "parts/deep/made": "new", "deep/made": "new"}
    with atomic_folder(tmp_path / "data", lambda there: {*ours}) as folder:
        write(folder, made)
    assert content(tmp_path / "data") == made | theirs


def test_what_cannot_be_read_is_told_apart_from_what_cannot_be_written(tmp_path: Path) -> None:
    """By its place: a file from elsewhere is the source, one beside the folder is ours."""
    target, elsewhere = tmp_path / "own" / "data", tmp_path / "elsewhere"
    for writing in (atomic_folder, write_atomically):
        for name, code in ((elsewhere / "x", "unreadable"), (None, "unwritable")):
            with pytest.raises(UserError) as failed, writing(target) as made:
                (name or made / "missing" / "x").open()
            assert (failed.value.code, failed.value.file) == (code, str(name or target))
            assert not target.exists()


@pytest.mark.parametrize("writing", [atomic_folder, write_atomically])
def test_on_a_full_disk_what_is_copied_can_be_read(tmp_path: Path, writing: Any) -> None:
    """By the error, in which `shutil.copyfile` names the file that it reads."""
    target = tmp_path / "own" / "data"
    with pytest.raises(UserError) as failed, writing(target):
        raise OSError(errno.ENOSPC, "No space left on device", "/elsewhere/x", None, str(target))
    assert (failed.value.code, failed.value.file) == ("unwritable", str(target))


@pytest.mark.parametrize("writing", [atomic_folder, write_atomically])
def test_a_folder_above_that_cannot_be_made_is_not_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writing: Any
) -> None:
    def refused(path: Path, *arguments: object, **keys: object) -> None:
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(UserError) as failed, writing(tmp_path / "results" / "data" / "own"):
        pass
    assert failed.value.code == "unwritable"


def test_a_folder_is_seen_without_what_editors_leave(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys((".#b.py", "b.py", "a.py", ".a.py", "c.txt", "d/e.py"), ""))
    assert [path.name for path in visible(tmp_path, "*.py")] == ["a.py", "b.py"]
    write(tmp_path, dict.fromkeys(("__MACOSX/d/f.py", ".git/f.py", "d/._e.py"), ""))
    assert visible(tmp_path, "**/*.py") == [tmp_path / name for name in ("a.py", "b.py", "d/e.py")]


def test_a_link_to_a_folder_stays_one(tmp_path: Path) -> None:
    write(tmp_path / "disk/data", OLD)
    (tmp_path / "data").symlink_to(tmp_path / "disk/data")
    replace(tmp_path / "data")
    assert (tmp_path / "data").is_symlink()
    assert content(tmp_path / "disk/data") == NEW
    write(tmp_path, {"file": "mine"})
    (tmp_path / "round").symlink_to(tmp_path / "round")
    for name in ("file", "round"):
        with refused("value", file=f"/{name}"):
            replace(tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"


class Killed(BaseException):
    """In place of a kill."""


def test_a_kill_at_any_moment_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes next finds the old folder or the new one, with all that is not ours."""
    names = ("rename", "unlink", "rmdir", "mkdir")

    def killed_at(moment: int, folder: Path) -> bool:
        left = moment

        def counted(real: Callable[..., None]) -> Callable[..., None]:
            def call(*given: Any, **more: Any) -> None:
                nonlocal left
                left -= 1
                if left < 0:  # and nothing more is done: no clean-up by a dead process
                    raise Killed
                real(*given, **more)

            return call

        with monkeypatch.context() as patch:
            for name in names:
                patch.setattr(os, name, counted(getattr(os, name)))
            try:
                replace(folder)
            except Killed:
                return True
        return False

    moment = 0
    while True:
        folder = tmp_path / f"{moment}" / "data"
        write(folder, OLD | MINE)
        if not killed_at(moment, folder):
            break
        settle(folder, lambda there: LISTED)
        assert content(folder) in (OLD | MINE, NEW | MINE), moment
        replace(folder)
        assert content(folder) == NEW | MINE
        assert list(folder.parent.iterdir()) == [folder]
        moment += 1
    assert moment > 10


def test_what_vanishes_while_a_folder_is_walked_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the temporary files of a run that is under way."""
    for name in ("a/b.txt", "c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "above").symlink_to(tmp_path)  # not followed
    walk = os.walk

    def with_more(folder: Path) -> Any:
        for above, folders, names in walk(folder):
            yield above, [*folders, "gone"], [*names, ".rounds.1.tmp"]

    monkeypatch.setattr(os, "walk", with_more)
    found = {str(Path(path).relative_to(tmp_path)): facts for path, facts in all_below(tmp_path)}
    assert {*found} == {"a", "a/b.txt", "c.txt", "dangling", "above"}
    assert found["c.txt"] == (tmp_path / "c.txt").lstat()
    assert [*all_below(tmp_path / "missing")] == []


@pytest.mark.parametrize("path", ["", "/", "."])
def test_a_path_without_a_name_is_no_file_to_write(path: str) -> None:
    with refused("value", file=str(Path(path))), write_atomically(Path(path)):
        pass
