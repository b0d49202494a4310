"""A landed run of scale compact, made again from this checkout."""

import os
import shutil
from pathlib import Path

from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.run.manifest import is_of_this_kind
from fedrepro.run.results import read_run
from fedrepro.run.run_comparison import compare_landed
from support.places import ROOT

RUN = RunKey("aaggff/compact-silos", "fedavg", 1)  # the cheapest


def test_a_landed_run_gives_the_same_numbers_again(tmp_path: Path) -> None:
    """The same bits on the same kind of machine, elsewhere the same but for rounding."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    landed = read_run(ROOT, RUN, reference=True)
    assert landed.state == "finished"
    arguments = ("run", RUN.setting, RUN.method, "--seed", str(RUN.seed))
    assert main(["--root", os.fspath(tmp_path), *arguments]) in (0, None)
    made = read_run(tmp_path, RUN)
    found = compare_landed(landed, made, same_kind=is_of_this_kind(landed.manifest))
    assert found.expected, found.words
    bench = load(ROOT)
    assert made.manifest["numerics"] == landed.manifest["numerics"]
    spec = bench.run_spec(RUN.setting, RUN.method, RUN.seed)
    assert made.manifest["config_hash"] == spec.digest == landed.manifest["config_hash"]
    # Rounding alone: after 30 rounds with a small step, far below what another seed would change.
    for then, now in zip(*(each.rounds["test_loss"] for each in (landed, made)), strict=True):
        assert abs(now - then) <= 1e-3 * then
