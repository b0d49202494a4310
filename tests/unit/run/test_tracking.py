"""A run tells TensorBoard or MLflow of itself, where they are installed; the run is the same."""

import math
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedrepro.cli import main as cli
from fedrepro.config.loading import load
from fedrepro.run.tracking import MLFLOW, TENSORBOARD, tracker_of
from support.places import ROOT

RUN = "results/runs/mine/even/fedavg/seed1"


def rounds_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, track: str) -> pd.DataFrame:
    """What a run recorded, in a workbench whose configuration has a line more."""
    skeleton = ROOT / "workflow/skeleton"
    shutil.copytree(skeleton, tmp_path, dirs_exist_ok=True)
    shutil.copy(ROOT / "config/datasets.yaml", tmp_path / "config")
    with (tmp_path / "config/config.yaml").open("a", encoding="utf-8") as file:
        file.write(f"track: {track}\n")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "mine/even", "fedavg", "--seed", "1"]) == 0
    return pd.read_parquet(tmp_path / RUN / "rounds.parquet")


@pytest.mark.skipif(not find_spec("tensorboard"), reason="the extra tensorboard is not installed")
@pytest.mark.filterwarnings("ignore")  # theirs
def test_tensorboard_shows_what_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = rounds_of(tmp_path, monkeypatch, "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events: Any = EventAccumulator(str(tmp_path / TENSORBOARD / "mine/even/fedavg/seed1"))
    events.Reload()
    told = [(each.step, each.value) for each in events.Scalars("test_accuracy")]
    recorded = zip(rounds["round"], rounds["test_accuracy"], strict=True)
    assert told == [(step, pytest.approx(value)) for step, value in recorded]


@pytest.mark.skipif(not find_spec("mlflow"), reason="the extra mlflow is not installed")
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_what_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = rounds_of(tmp_path, monkeypatch, "mlflow")
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=(tmp_path / MLFLOW).as_uri())
    experiment = client.get_experiment_by_name("mine/even")
    (run,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(run.info.run_id, "test_loss")
    told = sorted((each.step, each.value) for each in history)
    assert told == list(zip(rounds["round"], rounds["test_loss"], strict=True))
    assert run.info.status == "FINISHED" and run.data.params["seed"] == "1"

    other = load().run_spec("mine/even", "fedprox", 1)
    for number in (1, 2):  # broken off once, and gone on with
        tracker = tracker_of("mlflow", tmp_path, other)
        tracker.log(number, {"test_loss": float(number), "test_accuracy": math.nan})
        tracker.close(finished=number == 2)
    found = client.search_runs([experiment.experiment_id], "tags.method = 'fedprox'")
    assert [(each.info.status, each.data.metrics) for each in found] == [
        ("FINISHED", {"test_loss": 2.0})
    ]


@pytest.mark.skipif(bool(find_spec("tensorboard")), reason="it is installed")
def test_a_package_that_is_missing_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AssertionError):
        rounds_of(tmp_path, monkeypatch, "tensorboard")
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("fedrepro: config/config.yaml: track: 'tensorboard': ")
    assert "'.[tensorboard]'" in said
    assert not (tmp_path / RUN).exists()
