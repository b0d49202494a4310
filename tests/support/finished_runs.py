"""Finished runs of small settings, which analyses read."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from fedrepro.cli.main import main
from support.places import ROOT

FILE = Path("config/experiments/superfed.yaml")


def make_runs(root: Path, experiment: str, runs: Iterable[tuple[str, str, int]]) -> None:
    """Make runs, each a setting, a method and a seed, of an experiment file of SuPerFed's."""
    (root / FILE).parent.mkdir(parents=True)
    for name in ("config.yaml", "datasets.yaml"):
        shutil.copy(ROOT / "config" / name, root / "config")
    (root / FILE).write_text(experiment)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for setting, method, seed in runs:
            assert main(["run", setting, method, "--seed", str(seed)]) == 0
