"""Runs that end at a target, or after evaluations without gain: `stop` in a setting."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.cost.estimate import CostEstimate, chosen
from fedrepro.cost.model import CostModel
from fedrepro.data.partition.partition import make_partition
from fedrepro.report.cells.tables import compute
from fedrepro.report.papers.published import Published
from fedrepro.run import results, runner
from fedrepro.run.standing import standing_of
from fedrepro.support.errors import UserError
from support import tiny_run
from support.report_world import write_run
from support.search_world import EXPERIMENT, settle

SAME = ("rounds.parquet", "clients.parquet", "model.safetensors", "manifest.json")


def played(folder: Path, **setting: Any) -> tuple[dict[str, Any], pd.DataFrame]:
    manifest = tiny_run.carry_out(folder, tiny_run.run_spec(**setting))
    return manifest, pd.read_parquet(folder / "rounds.parquet")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """All twelve rounds of the run that the tests stop."""
    manifest, rounds = played(tmp_path_factory.mktemp("whole") / "x")
    assert "stop" not in manifest["run"] and "stopped" not in manifest
    return rounds


@pytest.mark.parametrize(
    ("stop", "last"),
    [
        ({"at": 65}, 3),  # 0.65 is 65.0 %, whatever floating point makes of it
        ({"measure": "accuracy", "at": 66}, 5),
        ({"at": 99}, 12),
        ({"patience": 1}, 4),
        ({"patience": 4}, 9),
        ({"patience": 4, "at": 66}, 5),
        ({"measure": "loss", "at": 1.0}, None),
    ],
)
def test_a_run_ends_in_the_round_that_says_so(
    tmp_path: Path, whole: pd.DataFrame, stop: dict[str, Any], last: int | None
) -> None:
    manifest, rounds = played(tmp_path / "x", stop=stop)
    if last is None:  # lower is better
        last = int(whole["round"][whole["test_loss"] <= 1.0].iloc[0])
        assert 1 < last < 12
    assert rounds.equals(whole[:last])
    assert manifest["rounds_done"] == last and manifest["run"]["stop"].items() >= stop.items()
    assert bool(manifest.get("stopped")) == (last < 12)
    assert results.status_of(manifest) == ("finished", "")


def test_only_evaluated_rounds_count(tmp_path: Path, whole: pd.DataFrame) -> None:
    _, rounds = played(tmp_path / "x", stop={"at": 65}, evaluate={"every": 2})
    assert rounds["round"].tolist() == [2, 4] and whole["test_accuracy"][2] >= 0.65


def test_a_run_that_was_cut_off_ends_in_the_same_round(tmp_path: Path) -> None:
    spec = tiny_run.run_spec(stop={"patience": 4})
    tiny_run.carry_out(tmp_path / "whole", spec)

    def crash(progress: runner.Progress) -> None:
        if progress.round == 7:  # a checkpoint of round 6 is there, the best round was 5
            raise RuntimeError

    with pytest.raises(RuntimeError):
        tiny_run.carry_out(tmp_path / "x", spec, crash)
    seen: list[int] = []
    manifest = tiny_run.carry_out(tmp_path / "x", spec, lambda at: seen.append(at.round))
    assert seen[0] == 7 and manifest["stopped"]
    for name in SAME:
        assert (tmp_path / "x" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_validation_samples_count_before_test_samples(tmp_path: Path) -> None:
    """The published number's samples decide nothing where clients hold out others to choose by."""
    share = {"scheme": "iid", "clients": 6, "validation": 0.25}
    spec, data = (
        tiny_run.run_spec(stop={"at": 60}, partition=share, optimizer={"lr": 0.5}),
        tiny_run.dataset(),
    )
    held = make_partition(data.train.y, None, spec.setting.partition, 1)
    runner.run(spec, data, held, tmp_path / "x", "code")
    rounds = pd.read_parquet(tmp_path / "x/rounds.parquet")
    reached = [value >= 0.6 for value in rounds["validation_accuracy"]]
    assert reached == [False] * (len(rounds) - 1) + [True]
    assert len(rounds) < 12 and (rounds["test_accuracy"] >= 0.6).tolist() != reached


def test_a_measure_that_is_not_recorded_is_refused_before_the_first_round(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"stop\.measure: 'auroc': .* accuracy, loss"):
        played(tmp_path / "x", stop={"measure": "auroc", "at": 50})


@pytest.mark.parametrize(
    "stop", [{}, {"at": 0.97}, {"at": 101}, {"patience": 0}, {"measure": "acuracy", "at": 97}]
)
def test_impossible_stops(stop: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="stop"):
        tiny_run.run_spec(stop=stop)


def world(root: Path, metric: dict[str, Any], **stop: Any) -> Path:
    settings = {"s": {**EXPERIMENT["settings"]["s"], "rounds": 40, "stop": stop}}
    table = {
        "title": "T", "metric": metric, "rows": [{"label": "S", "setting": "s"}],
        "columns": [{"label": "FedAvg", "method": "fedavg"}],
    }  # fmt: skip
    seeds = {"demo": [1], "paper": [1]}
    return settle(root, settings=settings, tables={"t": table}, search={}, seeds=seeds)


def test_tables_read_rounds_to_the_target_of_a_stopped_run(tmp_path: Path) -> None:
    bench, run = load(world(tmp_path, {"rounds_to": 80}, at=80)), RunKey("own/s", "fedavg", 1)
    write_run(bench, run, [0.5, 0.7, 0.8], stopped="accuracy reached 80 %")
    assert standing_of(bench, run).is_current
    (cell,) = compute(bench, bench.table("own", "t"), Published()).cells
    assert cell.result.mean == 3 and not cell.result.trouble
    estimate = CostEstimate(CostModel(bench, chosen(bench, (), "paper")))
    assert estimate.lines()[-1]["done"] == 1 and estimate.as_json()["at_most"] == 0


@pytest.mark.parametrize(
    ("metric", "stop"),
    [
        ({"rounds_to": 81}, {"at": 80}),
        ({"rounds_to": 80, "mean_of": 2}, {"at": 80}),
        ({"megabytes_to": 81}, {"at": 80}),
        ({"reached_in_steps_of": 5}, {"at": 80}),
        ({"rounds_to": 80}, {"at": 0.1, "measure": "loss"}),
    ],
)
def test_a_table_of_rounds_that_a_run_does_not_play_is_refused(
    tmp_path: Path, metric: dict[str, Any], stop: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match=r"tables\.t\.rows\.S\.metric\..*own/s"):
        load(world(tmp_path, metric, **stop))


def test_without_gain_a_target_counts_as_not_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench, run = load(world(tmp_path, {"rounds_to": 80}, patience=2)), RunKey("own/s", "fedavg", 1)
    monkeypatch.chdir(tmp_path)
    assert main(["estimate"]) == 0 and "At most: 1 run" in capsys.readouterr().out
    write_run(bench, run, [0.5, 0.7, 0.7, 0.7], stopped="no gain")
    (cell,) = compute(bench, bench.table("own", "t"), Published()).cells
    assert cell.result.mean is None and "it stopped" in str(cell.result.hole)
