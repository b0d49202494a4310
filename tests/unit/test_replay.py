"""`make replay`: short runs by old and new code, commits of results, first differences."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from support.places import ROOT
from support.scripts import script
from support.tiny_run import carry_out, run_spec

old_code = script("old_code")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay") / "run"
    changes: dict[str, Any] = {"rounds": 4, "evaluate": {"every": 1}}
    carry_out(folder, run_spec(**changes))
    return folder


@pytest.fixture
def pair(finished: Path, tmp_path: Path) -> tuple[Path, Path]:
    shutil.copytree(finished, tmp_path / "now")
    return finished, tmp_path / "now"


def test_equal_runs_do_not_differ(pair: tuple[Path, Path]) -> None:
    assert old_code.difference(*pair) == ""
    file = pair[1] / "rounds.parquet"  # a column that came later
    pd.read_parquet(file).assign(new=1.0).to_parquet(file)
    assert old_code.difference(*pair) == ""


def test_the_first_differing_round_is_named(pair: tuple[Path, Path]) -> None:
    for name, column, row in (("rounds", "test_loss", 3), ("clients", "update_norm", 4)):
        file = pair[1] / f"{name}.parquet"
        table = pd.read_parquet(file)
        table.loc[row, column] *= 1 + 1e-15 if column == "test_loss" else 1.5
        table.to_parquet(file)
    changed = pd.read_parquet(pair[1] / "clients.parquet").loc[4]
    found = old_code.difference(*pair)
    assert found.startswith(
        f"round {changed['round']:.0f}: update_norm {changed['update_norm']:.9g}"
    )


def test_lost_numbers_are_differences(pair: tuple[Path, Path]) -> None:
    file = pair[1] / "clients.parquet"
    pd.read_parquet(file).drop(columns="update_norm").to_parquet(file)
    assert "update_norm is no longer recorded" in old_code.difference(*pair)
    file.unlink()
    assert old_code.difference(*pair) == "clients.parquet is no longer written"


def test_one_bit_of_the_model_is_a_difference(pair: tuple[Path, Path]) -> None:
    file = pair[1] / "model.safetensors"
    tensors = load_file(file)
    name = min(tensors)
    tensors[name].view(-1)[0] = torch.nextafter(tensors[name].view(-1)[0], torch.tensor(9.0))
    save_file(tensors, file)
    assert old_code.difference(*pair).startswith(f"round {old_code.ROUNDS}: 1 tensors")


def test_a_short_run_keeps_everything_but_its_length(tmp_path: Path) -> None:
    """As every commit's code is called: another folder, configuration and process.

    What the code does not know has no fingerprint, and what comes after it is made.
    """
    run = old_code.Short("ima/fmnist-shards2-demo", "ima+fedavg", 1, "sequential")
    unknown = run._replace(method="no_such_method")
    nothing, code = old_code.play(ROOT, [unknown, run], tmp_path)
    assert nothing is None
    manifest = json.loads((tmp_path / run.folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["code"] == code and manifest["rounds_done"] == old_code.ROUNDS
    rounds = pd.read_parquet(tmp_path / run.folder / "rounds.parquet")
    assert rounds["round"].tolist() == [*range(1, old_code.ROUNDS + 1)]
    assert manifest["run"]["hyperparameters"]["ima"]["start"] == 0.75
    assert not (tmp_path / "results/trunks").exists()


def test_a_commit_counts_if_it_is_here_and_was_clean() -> None:
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    if not head:
        pytest.skip("no git checkout")
    for dirty, expected in ((False, head), (True, "")):
        manifest = {"git": {"fedrepro": {"commit": head, "dirty": dirty}}}
        assert old_code.named_commit(manifest) == expected
    assert old_code.named_commit({"git": {"fedrepro": {"commit": "0" * 40, "dirty": False}}}) == ""
    assert old_code.named_commit({"git": None}) == old_code.named_commit({}) == ""
