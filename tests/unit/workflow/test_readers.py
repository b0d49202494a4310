"""Snakemake when nobody reads what it prints."""

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import logging, sys
from snakemake.logging import ColorizingTextHandler, logger
from fedrepro.workflow.readers import outlive_readers
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
