"""Your own table may use a published setting in a row."""

from pathlib import Path

import pytest

from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.report.cells import tables
from fedrepro.report.pages.answers import cells_of_runs
from fedrepro.report.papers.published import Published
from fedrepro.workflow.checks import check_methods
from support.places import ROOT
from support.project import CONFIG, EXPERIMENT
from support.refusals import refused
from support.report_world import write_run

MINE = """\
system: mine
title: Mine
paper: none
methods:
  fedprox: {mu: 0.5}
settings:
  long:
    dataset: mnist5k
    partition: {scheme: iid, clients: 4}
    model: logistic
    rounds: 3
    participation: 1.0
    epochs: 1
    batch_size: 100
    optimizer: {lr: 0.1}
tables:
  table_1:
    title: Both
    rows:
      - {label: Mine, setting: long}
      - {label: Theirs, setting: ima/tiny, demo: ima/tiny}
    columns:
      - {label: FedProx, method: fedprox}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "config/experiments").mkdir(parents=True)
    for name, text in (
        ("config", CONFIG),
        ("experiments/ima", EXPERIMENT),
        ("experiments/mine", MINE),
    ):
        (tmp_path / f"config/{name}.yaml").write_text(text, encoding="utf-8")
    catalogue = (ROOT / "config/datasets.yaml").read_text(encoding="utf-8")
    (tmp_path / "config/datasets.yaml").write_text(catalogue, encoding="utf-8")
    return tmp_path


def test_its_runs_are_those_of_the_other_file(root: Path) -> None:
    bench = load(root)
    check_methods(bench)
    target = bench.table("mine", "table_1", "paper")
    own, theirs = RunKey("mine/long", "fedprox", 1), RunKey("ima/tiny", "fedprox", 1)
    assert target.runs == (own, theirs)
    assert bench.run_spec("ima/tiny", "fedprox", 1).hyperparameters == {"fedprox": {"mu": 0.01}}
    write_run(bench, own, [0.5] * 3)
    write_run(bench, theirs, [0.75] * 2)
    table = tables.compute(bench, target, Published())
    assert [row.setting for row in table.rows] == ["mine/long", "ima/tiny"]
    assert [cell.result.mean for cell in table.cells] == [50.0, 75.0]
    uses = cells_of_runs(bench, Published(), {theirs})[theirs]
    assert {use.table for use in uses} == {"ima, Table 1", "mine, Table 1"}
    (only,) = cells_of_runs(bench, Published(), {own}, only="mine")[own]
    assert only.place == "Mine, FedProx"


@pytest.mark.parametrize(
    ("name", "nearest"), [("ima/tinny", "ima/tiny"), ("imma/tiny", "ima/tiny")]
)
def test_a_setting_that_is_none_is_named_with_the_nearest(
    root: Path, name: str, nearest: str
) -> None:
    file = root / "config/experiments/mine.yaml"
    file.write_text(MINE.replace("setting: ima/tiny", f"setting: {name}"), encoding="utf-8")
    key = "tables.table_1.rows.Theirs.setting"
    with refused("value", file="experiments/mine.yaml", key=key, value=name, near=nearest):
        load(root)
