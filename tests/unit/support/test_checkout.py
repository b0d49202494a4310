"""What git knows of a folder of code."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedrepro.support import checkout
from support.git import commit_all, git


@pytest.fixture(autouse=True)
def _ask_again() -> Iterator[None]:
    yield
    checkout.of_folder.cache_clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of code, in a repository that has more than that."""
    code = tmp_path / "repository/methods"
    code.mkdir(parents=True)
    (code / "mine.py").write_text("one = 1\n", encoding="utf-8")
    (code.parent / "notes.txt").write_text("notes\n", encoding="utf-8")
    return code


def state(folder: Path) -> dict[str, object] | None:
    checkout.of_folder.cache_clear()
    return checkout.of_folder(folder)


def test_a_folder_is_at_a_commit_until_its_code_changes(folder: Path) -> None:
    commit = commit_all(folder.parent)
    assert state(folder) == {"commit": commit, "dirty": False}
    (folder.parent / "notes.txt").write_text("other\n", encoding="utf-8")
    (folder.parent / "elsewhere.py").touch()
    assert state(folder) == {"commit": commit, "dirty": False}  # no code of this folder
    (folder / "mine.py").write_text("one = 2\n", encoding="utf-8")
    assert state(folder) == {"commit": commit, "dirty": True}
    another = commit_all(folder.parent)
    assert another != commit and state(folder) == {"commit": another, "dirty": False}
    (folder / "new.py").touch()
    assert state(folder) == {"commit": another, "dirty": True}


def test_compiled_code_is_no_change_and_an_ignored_folder_of_code_is(folder: Path) -> None:
    (folder / ".gitignore").write_text("__pycache__/\nmore/\n", encoding="utf-8")
    commit = commit_all(folder.parent)
    for inner in (folder, folder / "inner"):
        (inner / "__pycache__").mkdir(parents=True)
        (inner / "__pycache__/mine.cpython-311.pyc").touch()
    assert state(folder) == {"commit": commit, "dirty": False}
    (folder / "more").mkdir()
    (folder / "more/own.py").touch()
    assert state(folder) == {"commit": commit, "dirty": True}


def test_a_process_asks_once(folder: Path) -> None:
    before = checkout.of_folder(folder)
    commit_all(folder.parent)
    assert before is None and checkout.of_folder(folder) is None


def test_where_git_knows_nothing_nothing_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert state(folder) is None  # no repository
    git(folder.parent, "init", "--quiet")
    assert state(folder) is None  # without a commit
    commit = commit_all(folder.parent)
    (folder.parent / ".git/HEAD").write_text("rubbish\n", encoding="utf-8")
    assert state(folder) is None
    (folder.parent / ".git/HEAD").write_text(f"{commit}\n", encoding="utf-8")
    assert state(folder) == {"commit": commit, "dirty": False}
    monkeypatch.setenv("PATH", str(folder))
    assert state(folder) is None  # no git


def test_a_hooks_variables_lead_nowhere_else(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = commit_all(folder.parent)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert state(folder) == {"commit": commit, "dirty": False}


def test_a_package_that_is_no_checkout_has_no_commit_of_what_it_lies_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a wheel in an environment inside of somebody's repository."""
    commit = commit_all(folder.parent)
    monkeypatch.setattr(checkout, "PACKAGE", folder)
    monkeypatch.setattr(checkout, "ORIGIN", folder)
    assert checkout.of_package() is None
    monkeypatch.setattr(checkout, "ORIGIN", folder.parent)
    assert checkout.of_package() == {"commit": commit, "dirty": False}


def test_the_difference_of_a_file_between_commits_and_to_today(folder: Path) -> None:
    first = commit_all(folder.parent)
    (folder / "mine.py").write_text("one = 2\n", encoding="utf-8")
    second = commit_all(folder.parent)
    lines = checkout.difference(folder, first, second, "mine.py")
    assert "-one = 1" in lines and "+one = 2" in lines and "1 file changed" in lines[1]
    assert checkout.difference(folder, second, None, "mine.py") == []
    (folder / "mine.py").write_text("one = 3\n", encoding="utf-8")
    assert "+one = 3" in checkout.difference(folder, second, None, "mine.py")
    assert checkout.difference(folder, first, second, "mine.py") == lines  # of no later change
    assert checkout.is_commit(folder, first)
    for other in ("0" * 40, "HEAD", "--help", None, 7, first[:12]):
        assert not checkout.is_commit(folder, other)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to give files away")
def test_another_users_checkout_has_its_commit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git itself refuses it: dubious ownership."""
    commit = commit_all(folder.parent)
    for path in (folder.parent, *folder.parent.rglob("*")):
        os.chown(path, 1234, 1234)
    monkeypatch.setenv("HOME", str(folder))
    refused = ["git", "-C", str(folder), "log"]
    assert subprocess.run(refused, capture_output=True, check=False).returncode
    assert state(folder) == {"commit": commit, "dirty": False}


def test_a_git_that_refuses_anyway_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Versions 2.35 to 2.37 obey files only."""
    old = folder.parent / "git"
    old.write_text(
        "#!/bin/sh\necho fatal: detected dubious ownership in repository >&2\nexit 128\n"
    )
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")
    assert state(folder) is None
    assert not checkout.is_commit(folder, "0" * 40)
    (line,) = capsys.readouterr().err.splitlines()
    assert str(folder) in line and "another user" in line


def test_code_that_git_ignores_is_in_no_commit(folder: Path) -> None:
    (folder.parent / ".gitignore").write_text("my_*.py\n", encoding="utf-8")
    commit = commit_all(folder.parent)
    assert state(folder) == {"commit": commit, "dirty": False}
    (folder / "my_method.py").touch()
    assert state(folder) == {"commit": commit, "dirty": True}
