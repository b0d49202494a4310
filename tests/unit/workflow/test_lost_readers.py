"""Snakemake when nobody reads what it prints, and for nobody known."""

import getpass
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedrepro.workflow.snakemake_patches import name_user

CODE = """
import logging, sys
from snakemake.logging import ColorizingTextHandler, logger
from fedrepro.workflow.snakemake_patches import outlive_readers
logger.setLevel(logging.INFO)
logger.addHandler(ColorizingTextHandler(stream=sys.stderr, formatter=logging.Formatter()))
{protected}
logger.info("a message")
print("printed")
open("done", "w").close()
"""


def _status(protected: str, folder: Path) -> int:
    reader, writer = os.pipe()
    os.close(reader)
    code = [sys.executable, "-c", CODE.format(protected=protected)]
    called = subprocess.run(code, stdout=writer, stderr=writer, cwd=folder, check=False)
    os.close(writer)
    return called.returncode


def test_snakemake_goes_on_without_its_reader(tmp_path: Path) -> None:
    assert _status("outlive_readers()", tmp_path) == 0
    assert (tmp_path / "done").exists()


def test_it_would_not_by_itself(tmp_path: Path) -> None:
    """Else this module is not needed any more."""
    assert _status("", tmp_path) != 0
    assert not (tmp_path / "done").exists()


def test_a_user_without_a_name_is_called_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises((KeyError, OSError)):
        getpass.getuser()
    name_user()
    assert getpass.getuser() == "uid12345"  # a part of paths that compilers get


def test_a_user_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "somebody")
    name_user()
    assert getpass.getuser() == "somebody"
