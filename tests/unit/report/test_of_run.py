"""What `fedrepro run` says of the printed cells that a run belongs to."""

import re
from pathlib import Path

import pytest

from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.report.pages.answers import lines_of
from support.places import ROOT
from support.report_world import make_world, write_run

PAPER = "ima/fmnist-shards2"
PLACE = "Table I, FMNIST, #C=2, FedAvg"


def numbers(line: str, place: str = PLACE) -> list[str]:
    """The numbers that a line about this cell has."""
    assert line.startswith(f"{place}: ")
    return re.findall(r"\d+(?:\.\d+)?", line.removeprefix(place))


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return load(make_world(tmp_path, rows=1, columns=2))


def finish(bench: Workbench, seed: int, accuracy: float, setting: str = PAPER) -> list[str]:
    run = RunKey(setting, "fedavg", seed)
    write_run(bench, run, [accuracy] * 300)
    return lines_of(bench, run)


def test_each_seed_brings_the_verdict_nearer(bench: Workbench) -> None:
    (first,) = finish(bench, 1, 0.80)
    assert numbers(first) == ["80.00", "1", "3", "81.17", "2"] and ": undecided" in first
    finish(bench, 2, 0.81)
    (third,) = finish(bench, 3, 0.91)
    assert numbers(third)[:5] == ["91.00", "3", "3", "84.00", "81.17"] and ": undecided" in third


def test_why_there_is_no_verdict(bench: Workbench) -> None:
    write_run(bench, RunKey(PAPER, "fedavg", 1), [0.8] * 300, lr_decay=0.5)
    (line,) = lines_of(bench, RunKey(PAPER, "fedavg", 1))
    assert numbers(line) == ["80.00", "1", "3", "81.17"]
    assert ": not comparable: " in line and line.endswith(" lr_decay.")
    diverged = RunKey(PAPER, "ima+fedavg", 1)
    write_run(bench, diverged, [0.8] * 3, status="diverged")
    (line,) = lines_of(bench, diverged)
    assert numbers(line, f"{PLACE} + IMA") == ["84.68", "1", "3"]  # printed; seed; round
    assert ": not comparable: " in line


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
