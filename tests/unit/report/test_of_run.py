"""What `fedrepro run` says of the printed cells that a run belongs to."""

from pathlib import Path

import pytest

from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.of_run import lines_of
from support.places import ROOT
from support.report_world import make_world, write_run

PAPER = "ima/fmnist-shards2"
PLACE = "Table I, FMNIST, #C=2, FedAvg: "


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return load(make_world(tmp_path, rows=1, columns=2))


def finish(bench: Workbench, seed: int, accuracy: float, setting: str = PAPER) -> list[str]:
    run = RunKey(setting, "fedavg", seed)
    write_run(bench, run, [accuracy] * 300)
    return lines_of(bench, run)


def test_each_seed_brings_the_verdict_nearer(bench: Workbench) -> None:
    (first,) = finish(bench, 1, 0.80)
    said = "80.00 (1 of 3 seeds), printed 81.17: undecided, needs at least 2 seeds"
    assert first == PLACE + said
    finish(bench, 2, 0.81)
    (third,) = finish(bench, 3, 0.91)
    assert third.startswith(f"{PLACE}91.00 (mean of 3 of 3 seeds: 84.00), printed 81.17: undecided")


def test_why_there_is_no_verdict(bench: Workbench) -> None:
    write_run(bench, RunKey(PAPER, "fedavg", 1), [0.8] * 300, lr_decay=0.5)
    (line,) = lines_of(bench, RunKey(PAPER, "fedavg", 1))
    why = "not comparable: The configuration has changed since, in lr_decay."
    assert line == f"{PLACE}80.00 (1 of 3 seeds), printed 81.17: {why}"
    diverged = RunKey(PAPER, "ima+fedavg", 1)
    write_run(bench, diverged, [0.8] * 3, status="diverged")
    (line,) = lines_of(bench, diverged)
    assert ": no number, printed " in line
    assert line.endswith(": not comparable: Seed 1 diverged at round 3.")


def test_a_demo_run_has_no_such_line(bench: Workbench) -> None:
    assert finish(bench, 1, 0.8, f"{PAPER}-demo") == []


def test_a_cell_that_a_part_of_a_table_repeats_has_one_line() -> None:
    """Heart's averages stand in Table 7, and in the page of its Heart rows."""
    bench = load(ROOT)
    seed = bench.table("aaggff", "table_7_heart", "paper").seeds[0]
    lines = lines_of(bench, RunKey("aaggff/heart", "fedavg", seed))
    assert lines
    numbers = [line.partition(": ")[2] for line in lines]
    assert len(numbers) == len({*numbers}), lines
