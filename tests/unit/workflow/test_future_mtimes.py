"""Files from tomorrow."""

import os
import time
from pathlib import Path

import pytest

from fedrepro.workflow.snakemake_patches import reset_future_mtimes
from support.numbers_in_text import numbers_in


def test_only_what_is_from_the_future_is_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    times = {"a/b/tomorrow": 86_400.0, "a/soon": 5.0, "yesterday": -86_400.0}
    now = time.time()
    for name, ahead in times.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now + ahead,) * 2)
    assert reset_future_mtimes([tmp_path, tmp_path / "absent"]) == 1
    assert numbers_in(capsys.readouterr().err) == [1]
    found = {name: (tmp_path / name).stat().st_mtime - now for name in times}
    assert found == pytest.approx({**times, "a/b/tomorrow": 0.0}, abs=2)
    assert reset_future_mtimes([tmp_path]) == 0 and not capsys.readouterr().err


def test_one_that_may_not_be_written_to_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A colleague's, in a group's workbench, or one on a file system that is read only."""
    file = tmp_path / "tomorrow"
    file.touch()
    os.utime(file, (time.time() + 86_400.0,) * 2)

    def refuses(path: Path, *given: object) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(os, "utime", refuses)
    assert reset_future_mtimes([tmp_path]) == 0 and not capsys.readouterr().err
