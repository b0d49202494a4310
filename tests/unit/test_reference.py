"""What `make reference` plans, what it says that costs, and what it keeps."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.cost.estimate import CostEstimate
from fedrepro.cost.model import CostModel, RunCost
from fedrepro.provenance import numerics
from fedrepro.run import digests
from fedrepro.run.integrity import Check
from fedrepro.run.results import reference_folder, reference_runs, timing_of
from fedrepro.support import checksummed_json
from fedrepro.support.files import sha256_of
from support.manifests import write_manifest
from support.places import ROOT
from support.refusals import refused
from support.scripts import script

reference, render_reference = script("reference"), script("render_reference")

SETTING = "superfed/mnist-500@released"


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return load(ROOT)


def wanted(rows: str, *seeds: int) -> Any:
    return reference.Wanted(table="superfed/table_2_3_released", rows=rows, seeds=seeds)


def test_the_runs_of_some_rows(bench: Workbench) -> None:
    runs = reference.runs_of(bench, wanted("MNIST, 500 clients, released settings", 1, 3))
    assert {run.setting for run in runs} == {SETTING}
    assert len(runs) == len(set(runs)) == 2 * len({run.method for run in runs})
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    with refused(key="rows", file="reference.yaml", value="MNIST, 5", names=("MNIST", "5")):
        reference.runs_of(bench, wanted("MNIST, 5", 1))


def test_the_runs_of_some_columns(bench: Workbench) -> None:
    rows = wanted("MNIST, 500 clients, released settings", 2)
    runs = reference.runs_of(bench, rows.model_copy(update={"columns": "SuPerFed-?M, released*"}))
    assert [run.method for run in runs] == ["superfed_mm@released", "superfed_lm@released"]
    with refused(key="columns", file="reference.yaml", value="FedAv"):
        reference.runs_of(bench, rows.model_copy(update={"columns": "FedAv"}))


def test_the_cost_is_what_a_plan_says(bench: Workbench, tmp_path: Path) -> None:
    rows = wanted("MNIST, 500 clients, released settings", 1)
    runs = reference.runs_of(bench, rows)
    target = reference.Group("", rows.table, runs).target(runs)
    estimate = CostEstimate(CostModel(replace(bench, root=tmp_path), [target]))
    assert {*runs} < estimate.costs.keys()  # with parent runs, which are made first
    (*_, everything) = estimate.lines()
    assert everything["hours"] > 1
    assert reference.in_words(estimate.costs.values()) == (
        f"{len(estimate.costs)} runs to make, some {everything['hours']:.1f} hours of one core"
    )
    unknown = RunCost(runs[0], False, why="nobody knows")
    assert reference.in_words([unknown]) == "1 run to make; 1 without hours: nobody knows"


def test_small_runs_of_one_seed_are_made_together() -> None:
    runs = {n: [RunKey("a/b", f"{n}{m}", m) for m in (1, 2)] for n in "xy"}
    groups = [
        (reference.Group(f"{name}, seed {run.seed}", "a/t", [run]), [run])
        for name, each in runs.items()
        for run in each
    ]
    (x1, x2), (y1, y2) = runs.values()
    assert reference.batches(groups, by_seed=True) == {"seed 1": [x1, y1], "seed 2": [x2, y2]}
    apart = {group.title: missing for group, missing in groups}
    assert reference.batches(groups, by_seed=False) == apart


def test_finished_runs_are_kept_without_their_model(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = replace(bench, root=Path())
    run, other = RunKey(SETTING, "fedavg", 1), RunKey(SETTING, "fedavg", 2)
    spec = bench.run_spec(run.setting, run.method, run.seed)
    described = spec.description()
    run.folder.mkdir(parents=True)
    (run.folder / "model.safetensors").write_bytes(b"large")
    manifest = run.folder / "manifest.json"

    def left(**changes: Any) -> list[RunKey]:
        content = {"run": {**described, **changes}, "files": {}, "rounds_done": spec.setting.rounds}
        write_manifest(run.folder, {**content, "numerics": numerics.of_run(spec)})
        return list(reference.keep_finished(here, [run, other]))

    assert left(lr_decay=0.99) == [run, other]  # of another configuration than today's
    assert not reference_folder(run).exists()
    assert left() == [other]
    assert [path.name for path in reference_folder(run).iterdir()] == ["manifest.json"]
    assert list(digests.faults(Path(), "superfed")) == []
    manifest.unlink()
    assert list(reference.keep_finished(here, [run, other])) == [other]


class Killed(BaseException):
    """Stands for `kill -9`: nothing of ours handles it."""


@pytest.mark.parametrize("compact", [False, True])
def test_a_landing_that_is_killed_between_two_files_is_made_up_for(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, compact: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunKey(SETTING, "fedavg", 1)
    described = bench.run_spec(run.setting, run.method, run.seed).description()
    papers = tmp_path / "reports/papers"

    def finish(score: float) -> None:
        run.folder.mkdir(parents=True, exist_ok=True)
        files = {"model.safetensors": ""}  # which is not kept
        for name in ("rounds.parquet", "clients.parquet"):
            table = pyarrow.table({"round": [1], "client": [0], "test_accuracy": [score]})
            pyarrow.parquet.write_table(table, run.folder / name)
            files[name] = sha256_of(run.folder / name)
        write_manifest(run.folder, {"run": described, "files": files})
        manifest = json.loads((run.folder / "manifest.json").read_bytes())
        checksummed_json.write(run.folder / "timing.json", {}, timing_of(manifest))

    def land(writes: int) -> bool:
        """Whether there are as many writes, before the last of which this is killed."""
        replace_file, left = os.replace, [writes]

        def replacing(*names: Any) -> None:
            if Path(names[1]).is_relative_to(papers) or not Path(names[1]).is_absolute():
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
            replace_file(*names)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replacing)
            try:
                (reference.pack if compact else lambda runs: [*map(reference.keep, runs)])([run])
            except Killed:
                return False
        return True

    for first, second in ((0.5, 0.5), (0.5, 0.75)):  # a new result, and one that replaces it
        for writes in range(20):
            shutil.rmtree(papers, ignore_errors=True)
            (papers / "superfed").mkdir(parents=True)
            (papers / "systems.yaml").write_text("- superfed\n", encoding="utf-8")
            if second != first:
                finish(first)
                assert land(20)
            finish(second)
            whole = land(writes)
            wrong = list(Check(Path("reports")).faults())
            assert whole or writes == 0 or wrong, writes
            assert land(20)
            assert list(Check(Path("reports")).faults()) == []
            if whole:
                break
        assert writes >= 4


def test_the_list_is_of_rows_that_are_there(bench: Workbench) -> None:
    path = ROOT / reference.LIST
    each = reference.validate(reference.List, reference.read_yaml(path), path).runs
    assert len(each) >= 5
    assert all(reference.runs_of(bench, rows) for rows in each)


def test_what_was_kept_is_of_todays_configuration(bench: Workbench) -> None:
    """Else its cells are compared with nothing; `fedrepro run` makes it again."""
    kept = list(reference_runs(ROOT))
    assert len(kept) > 100
    assert [each.run for each in kept if not reference.is_current(bench, each)] == []


def test_the_pages_beside_them_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for page, text in render_reference.pages().items():
        assert page.read_text(encoding="utf-8") == text, "python scripts/render_reference.py"


def test_committed_results_are_as_they_were_written() -> None:
    """Each with its checksums, in its own place."""
    check = Check(ROOT / "reports")
    assert list(check.faults()) == []
    assert check.counts["reference results"] >= 148


def test_what_lies_in_results_is_not_compared_with_itself(
    bench: Workbench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The landed run may be that very run; so only the others are made again."""
    monkeypatch.chdir(tmp_path)
    here, absent = (RunKey("aaggff/compact-silos", name, 1) for name in ("fedavg", "afl"))
    here.folder.mkdir(parents=True)
    made: list[list[RunKey]] = []
    monkeypatch.setattr(reference, "is_current", lambda *_: True)
    monkeypatch.setattr(reference, "make", lambda runs, *_: made.append(runs))
    group = reference.Group("Silos", "aaggff/compact_silos", [here, absent])
    found = reference.Outcome("12 numbers differ, on the same kind of machine", False)
    monkeypatch.setattr(reference, "compare_landed", lambda *_, **__: found)
    with refused(names=("1", "differ")):
        reference.make_again(bench, [group], 1)
    assert made == [[absent]]
    said = capsys.readouterr().out
    assert "Silos: 2 of 2 landed; 1 left out, as they lie in results/" in said
    assert "aaggff/compact-silos afl seed 1: 12 numbers differ" in said
