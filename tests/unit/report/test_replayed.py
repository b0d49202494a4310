"""A replay speaks for the very result that was replayed, and for the very code that replayed it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.provenance import numerics
from fedrepro.report.cells import tables
from fedrepro.report.papers.published import Published
from fedrepro.support.files import sha256_of
from support.manifests import write_manifest
from support.report_world import write_run
from support.search_world import settle

TABLE = {
    "title": "A table",
    "metric": "accuracy",
    "rows": [{"label": "S", "setting": "s"}],
    "columns": [{"label": "Prox", "method": "fedprox"}],
}
OLD = {"core": "old", "method fedprox": "old"}
RUN = RunKey("own/s", "fedprox", 1)
NAME = "s/fedprox/seed1"


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    settle(tmp_path, tables={"table_1": TABLE}, seeds={"demo": [1], "paper": [1]})
    return load(tmp_path)


def landed(bench: Workbench, ids: dict[str, str] | None, reference: bool = True) -> str:
    """A result whose manifest has these ids of code; the hash of its rounds."""
    folder = write_run(bench, RUN, [0.5, 0.8], reference=reference)
    manifest = json.loads((folder / "manifest.json").read_text())
    timing = json.loads((folder / "timing.json").read_text())
    for each in (manifest, timing):
        each.pop("seal", None)
    manifest.pop("numerics")
    if ids is not None:
        manifest["numerics"] = ids
    write_manifest(folder, manifest)
    return sha256_of(folder / "rounds.parquet")


def replayed(bench: Workbench, name: str = NAME, **values: Any) -> None:
    file = bench.root / "reports/papers/own/reference/replayed.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    known = {"rounds": 2, "outcome": "same bits", "agrees": True, "commit": "", "seed": None}
    before = file.stat().st_mtime if file.exists() else 0
    file.write_text(json.dumps({name: {**known, **values}}))
    os.utime(file, (before + 1, before + 1))  # as if minutes passed


def why_not(bench: Workbench) -> str:
    """Why the number of the only cell is not known to be that of today's code; "" if it is."""
    bench = load(bench.root)  # nothing is remembered of earlier files
    (cell,) = tables.compute(bench, bench.table("own", "table_1"), Published()).cells
    (run,) = cell.result.runs
    assert run.value == pytest.approx(80)
    return run.code


def today(bench: Workbench) -> dict[str, str]:
    return numerics.of_run(bench.run_spec(RUN.setting, RUN.method, RUN.seed))


@pytest.mark.parametrize("ids", [OLD, None], ids=["other ids", "no ids"])
def test_a_replay_with_the_same_bits_counts_as_the_code_that_replayed(
    bench: Workbench, ids: dict[str, str] | None
) -> None:
    record = landed(bench, ids)
    assert why_not(bench)
    replayed(bench, record=record, numerics=today(bench))
    assert not why_not(bench)
    # One part of several is enough to be other code.
    for part, own in today(bench).items():
        replayed(bench, record=record, numerics={**today(bench), part: f"not {own}"})
        assert part in why_not(bench)


@pytest.mark.parametrize("ids", [OLD, None], ids=["other ids", "no ids"])
def test_a_replay_of_another_result_says_nothing(
    bench: Workbench, ids: dict[str, str] | None
) -> None:
    record = landed(bench, ids)
    for name, its in (
        (NAME, "0" * 64),  # of an earlier result of the same run
        ("s/fedprox/seed2", record),
        ("s/fedavg/seed1", record),
        ("t/fedprox/seed1", record),
        ("own/s/fedprox/seed1", record),
    ):
        replayed(bench, name, record=its, numerics=today(bench))
        assert why_not(bench), name


def test_a_replay_with_other_bits_counts_against_the_code_that_replayed(bench: Workbench) -> None:
    record = landed(bench, today(bench))
    assert not why_not(bench)
    differs = {"agrees": False, "outcome": "differs in round 2"}
    replayed(bench, record=record, numerics=OLD, **differs)
    assert not why_not(bench)  # that other code gives other numbers is nothing new
    replayed(bench, record="0" * 64, numerics=today(bench), **differs)
    assert not why_not(bench)  # nor is it about this result
    replayed(bench, record=record, numerics=today(bench), **differs)
    assert "differs in round 2" in why_not(bench)


def test_a_replay_speaks_for_no_result_of_this_machine(bench: Workbench) -> None:
    """Which says by itself what made it, though its rounds may be the same bytes."""
    record = landed(bench, OLD, reference=False)
    replayed(bench, record=record, numerics=today(bench))
    assert why_not(bench)
