"""What several tests of runs begin with."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedrepro.support import checkout
from support.places import ROOT


@pytest.fixture
def workbench(tmp_path: Path) -> Iterator[Path]:
    """With a method and a model of its own, in a repository of its own."""
    root = tmp_path / "workbench"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "workflow/skeleton", root, ignore=ignored)
    shutil.copy(ROOT / "config/datasets.yaml", root / "config")
    yield root
    checkout.of_folder.cache_clear()
