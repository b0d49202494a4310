"""Landed results of scale compact: what is kept, and that damage is noticed."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pyarrow.parquet
import pytest

from fedrepro.config.targets import RunKey
from fedrepro.run import landed_runs
from fedrepro.run.integrity import Check
from fedrepro.run.landed_runs import LandedRun
from fedrepro.run.results import find_run, read_run, reference_folder, seal_of_run
from fedrepro.support.checksummed_json import seal_of
from fedrepro.support.errors import UserError
from support.manifests import write_bare
from support.refusals import refused

SETTING = "fedgo/compact-x"
ROUNDS = {"round": [1, 2, 3], "test_accuracy": [0.1, None, 0.3]}
CLIENTS = {"round": [1, 1, 3, 3], "client": [0, 1, 0, 1], "test_accuracy": [0.0, 0.1, 0.25, 1 / 3]}


def kept(run: RunKey, **more: Any) -> LandedRun:
    about = {"setting": run.setting, "method": run.method, "seed": run.seed, "rounds": 3}
    manifest = {"run": about, "rounds_done": 3, "status": "finished", "files": {}}
    manifest["seal"] = seal_of(manifest)
    tables = {"rounds.parquet": ROUNDS, "clients.parquet": CLIENTS, **more}
    tables = {name: landed_runs.reduced(name, each) for name, each in tables.items()}
    tables = {name: each for name, each in tables.items() if each}
    return LandedRun(manifest, {"cpu_seconds": 2.5}, {}, tables)


RUNS = [RunKey(SETTING, "fedavg", 1), RunKey(SETTING, "fedavg", 2), RunKey(SETTING, "fedgo", 1)]


@pytest.fixture
def landed(tmp_path: Path) -> Path:
    others = {"decisions.parquet": {"round": [1, 3], "weight": [0.5, 0.75]}}
    runs = {run: kept(run, **(others if run.method == "fedgo" else {})) for run in RUNS}
    landed_runs.write(tmp_path, SETTING, runs)
    return tmp_path


def test_what_is_kept_comes_back(landed: Path) -> None:
    for run in RUNS:
        record = find_run(landed, run)
        assert (record.state, record.reference) == ("finished", True)
        assert record.timing == {"cpu_seconds": 2.5}
        assert record.rounds["round"] == [1, 2, 3]
        first, gap, last = record.rounds["test_accuracy"]
        assert (first, last) == (0.1, 0.3)
        assert math.isnan(gap)
        # Of clients, the last evaluated round.
        assert record.clients["round"] == [3, 3]
        assert record.clients["test_accuracy"] == [0.25, 1 / 3]
        assert seal_of_run(landed, run) == record.manifest["seal"]
        assert read_run(landed, run).state == "not run"  # here
    folder = reference_folder(RUNS[0])
    (landed / folder).parent.mkdir(parents=True)
    write_bare(landed, RUNS[0]).rename(landed / folder)
    assert find_run(landed, RUNS[0]).folder == folder  # which comes first
    shutil.rmtree(landed / folder)
    assert find_run(landed, RUNS[0]).decisions == {}
    assert find_run(landed, RUNS[2]).decisions == {"round": [3], "weight": [0.75]}
    assert find_run(landed, RunKey(SETTING, "fedgo", 2)).state == "not run"


def test_pandas_alone_reads_them(landed: Path) -> None:
    folder = landed / landed_runs.folder_of(SETTING)
    rounds = pandas.read_parquet(folder / "rounds.parquet")
    last = rounds[rounds["round"] == 3]
    assert last.groupby("method")["test_accuracy"].mean().to_dict() == {"fedavg": 0.3, "fedgo": 0.3}


def test_clients_without_scores_are_not_kept() -> None:
    assert (
        landed_runs.reduced("clients.parquet", {"round": [1], "client": [0], "update_norm": [1]})
        == {}
    )


def test_scores_averaged_over_batches_are_not_kept() -> None:
    columns = {"round": [1], "test_ece": [0.5], "test_ece_batch": [0.25]}
    assert landed_runs.reduced("rounds.parquet", columns) == {"round": [1], "test_ece": [0.5]}


def test_mixtures_are_scored_once_and_kept_whole() -> None:
    columns = {"client": [0, 0], "weight": [0.0, 0.1], "accuracy": [0.5, 1.0]}
    more = {"accuracy_batch": [0.5, 0.75]}
    assert landed_runs.reduced("mixtures.parquet", columns | more) == columns


@pytest.mark.parametrize("stays", [RUNS[1:2], RUNS[1:]])
@pytest.mark.parametrize("writes", range(4))
def test_killed_at_any_write_it_leaves_the_runs_that_stay(
    landed: Path, writes: int, stays: list[RunKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of three is changed meanwhile, one perhaps dropped, and one is new."""
    changed, new = RUNS[0], RunKey(SETTING, "fedgo", 2)
    before = landed_runs.runs_landed_in(landed, SETTING)
    same = {run: before[run] for run in stays}
    later = {"round": [1, 2], "test_accuracy": [0.5, 0.6]}
    after = {changed: kept(changed, **{"rounds.parquet": later}), new: kept(new), **same}
    whole, begun = landed_runs._write, list[Path]()

    def killed(path: Path, columns: Any) -> None:
        begun.append(path)
        if len(begun) > writes:
            raise KeyboardInterrupt
        whole(path, columns)

    monkeypatch.setattr(landed_runs, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        landed_runs.write(landed, SETTING, after)
    monkeypatch.undo()
    assert landed_runs.runs_landed_in(landed, SETTING) == (same if writes else before)
    landed_runs.write(landed, SETTING, after)
    assert landed_runs.runs_landed_in(landed, SETTING) == after


def test_a_first_landing_that_was_killed_has_no_run(landed: Path) -> None:
    (landed / landed_runs.folder_of(SETTING) / "runs.parquet").unlink()
    assert landed_runs.runs_landed_in(landed, SETTING) == {}
    assert landed_runs.settings_with_results(landed) == []


def test_settings_with_results_are_all_named(landed: Path) -> None:
    for setting in ("fedgo/compact-a", "aaggff/compact-y"):
        landed_runs.write(landed, setting, {RunKey(setting, "fedavg", 1): kept(RUNS[0])})
    names = ["aaggff/compact-y", "fedgo/compact-a", SETTING]
    assert landed_runs.settings_with_results(landed) == names


def test_a_run_whose_own_manifest_is_damaged_is_damage(tmp_path: Path) -> None:
    """Even where it was packed so."""
    whole = kept(RUNS[0])
    damaged = replace(whole, manifest={**whole.manifest, "rounds_done": 2})
    landed_runs.write(tmp_path, SETTING, {RUNS[0]: damaged})
    assert find_run(tmp_path, RUNS[0]).state == "damaged"


def test_writing_again_replaces(landed: Path) -> None:
    landed_runs.write(landed, SETTING, {RUNS[0]: kept(RUNS[0])})
    assert set(landed_runs.runs_landed_in(landed, SETTING)) == {RUNS[0]}
    assert not (landed / landed_runs.folder_of(SETTING) / "decisions.parquet").exists()


def rewritten(path: Path, change: Any) -> None:
    columns = pyarrow.parquet.read_table(path).to_pydict()
    change(columns)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def one_digit(columns: dict[str, list[Any]]) -> None:
    columns["test_accuracy"][0] = 0.11


def other_seed(columns: dict[str, list[Any]]) -> None:
    columns["seed"][0], columns["seed"][1] = columns["seed"][1], columns["seed"][0]


def no_seed(columns: dict[str, list[Any]]) -> None:
    del columns["seed"]


def twice(columns: dict[str, list[Any]]) -> None:
    for values in columns.values():
        values.append(values[0])


def other_time(columns: dict[str, list[Any]]) -> None:
    columns["timing"][0] = columns["timing"][0].replace("2.5", "2.6")


def other_quality(columns: dict[str, list[Any]]) -> None:
    columns["quality"][0] = '{"numbers": {"accuracy": 0.5}}'


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("runs.parquet", twice),
        ("runs.parquet", other_time),
        ("runs.parquet", other_quality),
        ("rounds.parquet", one_digit),
        ("clients.parquet", one_digit),
        ("runs.parquet", other_seed),
        ("runs.parquet", no_seed),
        ("rounds.parquet", no_seed),
    ],
)
def test_a_changed_number_is_damage(landed: Path, name: str, change: Any) -> None:
    folder = landed / landed_runs.folder_of(SETTING)
    rewritten(folder / name, change)
    record = find_run(landed, RUNS[0])
    assert record.state == "damaged"
    assert record.rounds == {}
    assert f"{landed_runs.folder_of(SETTING)}" in record.why
    assert seal_of_run(landed, RUNS[0]) == "damaged"
    faults = list(Check(landed / "reports").faults())
    assert len(faults) == 1
    assert "git restore" in faults[0]
    assert "make" not in faults[0]  # a workbench has no Makefile


@pytest.mark.parametrize("name", ["rounds.parquet", "clients.parquet", "runs.parquet"])
def test_so_is_a_file_cut_off(landed: Path, name: str) -> None:
    path = landed / landed_runs.folder_of(SETTING) / name
    path.write_bytes(path.read_bytes()[:-9])
    assert find_run(landed, RUNS[0]).state == "damaged"


# --- runs of one setting whose methods have different columns, tables and numbers of rows --------
def mixed() -> dict[RunKey, LandedRun]:
    """Seven runs: hardly two record the same, and one ended early."""
    loss, ece = [0.5, 0.25, 0.125], [0.01, 0.02, 0.03]
    own = {
        ("fedavg", 1): {},
        ("fedavg", 2): {"rounds.parquet": {"round": [1], "test_accuracy": [0.2]}},
        ("fedgo", 2): {"rounds.parquet": {**ROUNDS, "distillation_loss": loss}},
        ("fedgo", 10): {"rounds.parquet": {"round": [1, 2, 3], "distillation_loss": loss}},
        ("superfed_mm", 1): {
            "clients.parquet": {**CLIENTS, "test_ece": [0.5, None, 0.25, None]},
            "mixtures.parquet": {"client": [0, 0, 1], "weight": [0.0, 1.0, 0.0],
                                 "accuracy": [0.5, None, 1.0]},
        },
        ("aaggff", 2): {},
        ("aaggff", 1): {
            "rounds.parquet": {**ROUNDS, "test_ece": ece, "test_loss": [None] * 3},
            "clients.parquet": {"round": [3], "client": [0], "update_norm": [1.0]},
            "decisions.parquet": {"round": [1, 3, 3], "client": [0, 0, 1],
                                  "weight": [1.0, 0.25, 0.75]},
        },
    }  # fmt: skip
    return {
        (run := RunKey(SETTING, method, seed)): kept(run, **more)
        for (method, seed), more in own.items()
    }


def test_each_run_comes_back_with_its_own_columns(tmp_path: Path) -> None:
    """And no other's, nor the rows of others; in whatever order they are written."""
    runs = mixed()
    for order in (runs, dict(reversed(runs.items()))):
        landed_runs.write(tmp_path, SETTING, order)
        back = landed_runs.runs_landed_in(tmp_path, SETTING)
        assert back.keys() == runs.keys()
        for run, each in runs.items():
            assert back[run] == each
            named = {name: {*columns} for name, columns in each.tables.items() if columns}
            assert {name: {*columns} for name, columns in back[run].tables.items()} == named
            record = find_run(tmp_path, run)
            assert (
                record.state == "finished"
                and record.rounds["round"] == each.tables["rounds.parquet"]["round"]
            )
    last = find_run(tmp_path, RunKey(SETTING, "superfed_mm", 1))
    assert last.clients["test_ece"][0] == 0.25 and math.isnan(last.clients["test_ece"][1])
    ended = find_run(tmp_path, RunKey(SETTING, "aaggff", 1))
    assert "test_loss" not in ended.rounds and ended.clients == {}
    assert ended.decisions == {"round": [3, 3], "client": [0, 1], "weight": [0.25, 0.75]}
    assert find_run(tmp_path, RunKey(SETTING, "fedgo", 2)).decisions == {}


def test_the_order_of_writing_changes_no_byte(tmp_path: Path) -> None:
    runs = mixed()
    one = landed_runs.write(tmp_path / "one", SETTING, runs)
    other = landed_runs.write(tmp_path / "other", SETTING, dict(reversed(runs.items())))
    for file in one.iterdir():
        assert (other / file.name).read_bytes() == file.read_bytes()
        columns = pyarrow.parquet.read_table(file).to_pydict()
        named = [*zip(columns["method"], columns["seed"], strict=True)]
        assert named == sorted(named)


def test_a_file_that_is_overwritten_in_place_is_read_again(landed: Path) -> None:
    path = landed / landed_runs.folder_of(SETTING) / "rounds.parquet"
    assert find_run(landed, RUNS[0]).state == "finished"
    path.write_bytes(bytes(path.stat().st_size))
    assert find_run(landed, RUNS[0]).state == "damaged"


@pytest.mark.parametrize("name", landed_runs.TABLES)
def test_a_row_or_a_column_that_is_lost_is_damage(tmp_path: Path, name: str) -> None:
    """Of any run, also where it is one of several that have it, or the only one."""
    folder = landed_runs.write(tmp_path, SETTING, mixed())
    whole = pyarrow.parquet.read_table(folder / name).to_pydict()
    rows = range(len(whole["seed"]))
    runs = {*zip(whole["method"], whole["seed"], strict=True)}
    lost = [[place for place in rows if place != gone] for gone in rows]
    lost += [
        [place for place in rows if (whole["method"][place], whole["seed"][place]) != run]
        for run in runs
    ]
    changed = [{key: [values[at] for at in kept] for key, values in whole.items()} for kept in lost]
    changed += [{key: values for key, values in whole.items() if key != gone} for gone in whole]
    for columns in changed:
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / name)
        with pytest.raises(UserError, match="damaged"):
            landed_runs.runs_landed_in(tmp_path, SETTING)
    pyarrow.parquet.write_table(pyarrow.table(whole), folder / name)
    assert landed_runs.runs_landed_in(tmp_path, SETTING) == mixed()


def test_a_removed_table_is_damage(landed: Path) -> None:
    (landed / landed_runs.folder_of(SETTING) / "rounds.parquet").unlink()
    assert find_run(landed, RUNS[0]).state == "damaged"


def test_a_folder_of_another_setting_is_damage(landed: Path) -> None:
    other = "fedgo/compact-y"
    (landed / landed_runs.folder_of(SETTING)).rename(landed / landed_runs.folder_of(other))
    with refused("damaged", names="another"):
        landed_runs.runs_landed_in(landed, other)
