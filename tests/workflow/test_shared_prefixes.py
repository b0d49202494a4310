"""Runs that go on from others: what waits for what, and what is made again."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.project import CONFIG, OF_TABLE, Project

EXPERIMENT = """\
system: ima
title: Tails
paper: none
methods:
  ima: {window: 2, start: 0.75}
  early: {variant_of: ima, start: 0.5}
  fedprox: {mu: 0.01}
settings:
  a:
    dataset: own
    partition: {scheme: iid, clients: 4}
    model: logistic
    rounds: 8
    participation: 0.5
    epochs: 1
    batch_size: 10
    optimizer: {lr: 0.1}
tables:
  table_1:
    title: A table
    summary: {rounds: 1}
    rows: [{label: A, setting: a}]
    columns:
      - {label: FedAvg, method: fedavg}
      - {label: IMA, method: ima+fedavg}
      - {label: FedProx, method: fedprox}
"""


def run(method: str) -> str:
    return f"results/runs/ima/a/{method}/seed1/manifest.json"


FEDAVG, IMA, EARLY = map(run, ("fedavg", "ima+fedavg", "early+fedavg"))
AVERAGED_PROX = run("ima+fedprox")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    root = tmp_path_factory.mktemp("tails") / "project"
    project = Project.make(root, CONFIG, EXPERIMENT, OF_TABLE)
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{'yes' if a > b else 'no'}" for a, b in rng.normal(size=(80, 2))]
    (root / "own.csv").write_text("\n".join(["a,b,kind", *rows]), encoding="utf-8")
    called = project.snakemake(IMA)
    assert called.returncode == 0, called.stdout
    return project


def manifest(project: Project, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.root / path).read_text(encoding="utf-8"))
    return found


def test_the_trunk_is_made_first_and_gone_on_from(made: Project) -> None:
    """t_s = 6; before it two models fill the window."""
    assert manifest(made, IMA)["went_on_from"] == {"method": "fedavg", "seed": 1, "round": 5}
    assert "went_on_from" not in manifest(made, FEDAVG)
    kept = (made.root / "results/trunks").rglob("round*")
    assert {path.name for path in kept} == {"round5"}


# A new column makes neither the parent run nor its other child runs again, nor does a change of
# neither.
COLUMN = ("{label: IMA,", "{label: E, method: early+fedavg}\n      - {label: IMA,")
OTHERS = ("mu: 0.01", "mu: 0.1")


@pytest.mark.parametrize(
    ("changes", "due"),
    [
        ((COLUMN, OTHERS), set()),
        ((COLUMN, ("start: 0.75", "start: 0.6")), {IMA}),
        ((("lr: 0.1", "lr: 0.2"),), {FEDAVG, IMA}),
    ],
)
def test_what_a_change_makes_again(
    made: Project, changes: tuple[tuple[str, str], ...], due: set[str]
) -> None:
    text = made.experiment.read_text(encoding="utf-8")
    try:
        for old, new in changes:
            made.edit(made.experiment, old, new)
        assert made.due(FEDAVG, IMA) == due
    finally:
        made.experiment.write_text(text, encoding="utf-8")


def test_a_tail_waits_for_its_trunk(made: Project) -> None:
    assert made.due(EARLY, AVERAGED_PROX) == {EARLY, run("fedprox"), AVERAGED_PROX}


def test_a_run_is_not_trained_again_because_its_parent_is(made: Project, tmp_path: Path) -> None:
    """Snakemake removes it first; `timing.json` is of the call that trained it."""
    project = made.copy(tmp_path / "project")
    timing = (project.root / IMA).with_name("timing.json")
    before = timing.read_bytes()
    shutil.rmtree((project.root / FEDAVG).parent)
    called = project.snakemake(FEDAVG, IMA)
    assert called.returncode == 0, called.stdout
    assert timing.read_bytes() == before


def test_a_damaged_checkpoint_only_costs_time(made: Project, tmp_path: Path) -> None:
    """By the command: told in one line, and to the same bytes."""
    project = made.copy(tmp_path / "project")
    kept = next((project.root / "results/trunks").rglob("checkpoint.safetensors"))
    kept.write_bytes(kept.read_bytes()[:-1] + b"x")
    fault = "damaged: checkpoint.safetensors differs from"
    verdict = project.fedrepro("verify")
    assert verdict.returncode == 1 and f"round5: {fault}" in verdict.stdout
    before = manifest(project, IMA)
    shutil.rmtree((project.root / IMA).parent)
    called = project.fedrepro("run", "ima/a", "ima+fedavg", "--seed", "1")
    assert called.returncode == 0 and f"round5: cannot resume from it: {fault}" in called.stdout
    assert before.pop("went_on_from") and manifest(project, IMA) == before
