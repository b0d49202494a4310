"""What a run tells a tracker and the allocator, whether or not those are installed."""

import ctypes
import math
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, NoReturn

import numpy as np
import pytest

import fedrepro as fr
from fedrepro.run import devices, tracking
from fedrepro.run.tracking import TENSORBOARD, tracker_of
from support.tiny_run import run_spec

SCORES = {"test_loss": 0.5, "test_accuracy": math.nan, "client_loss": math.inf}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls of a pretended TensorBoard."""
    calls: list[tuple[Any, ...]] = []

    class Writer:
        def __init__(self, folder: Path, purge_step: int) -> None:
            calls.append(("begin", folder, purge_step))

        def add_text(self, name: str, text: str, step: int) -> None:
            assert '"rounds": 12' in text
            calls.append(("text", name, step))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            if value == 13:
                raise OSError("the disk is full")
            calls.append(("scalar", name, value, step))

        def close(self) -> None:
            calls.append(("close",))

    module = ModuleType("torch.utils.tensorboard")
    vars(module)["SummaryWriter"] = Writer
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return calls


def test_finite_numbers_of_each_round_from_the_first_one_on(
    written: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    """A run that resumes hides what was logged of rounds that it plays again."""
    assert tracking.finite(SCORES) == {"test_loss": 0.5}
    tracker = tracker_of("tensorboard", tmp_path, run_spec())
    assert written == []
    for number in (4, 5):
        tracker.log(number, SCORES | {"learning_rate": 0.1 * number})
    tracker.close(finished=True)
    assert written == [
        ("begin", tmp_path / TENSORBOARD / "test/blobs/fedavg/seed1", 4),
        ("text", "configuration", 4),
        ("scalar", "test_loss", 0.5, 4), ("scalar", "learning_rate", 0.4, 4),
        ("scalar", "test_loss", 0.5, 5), ("scalar", "learning_rate", 0.5, 5),
        ("close",),
    ]  # fmt: skip


def test_a_tracker_that_fails_is_given_up_and_said_so_once(
    written: list[tuple[Any, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tracker = tracker_of("tensorboard", tmp_path, run_spec())
    for number in range(1, 5):
        tracker.log(number, {"test_loss": 13 if number == 2 else 1.0})
    tracker.close(finished=False)
    assert [call for call in written if call[0] == "scalar"] == [("scalar", "test_loss", 1.0, 1)]
    assert ("close",) not in written
    said = capsys.readouterr().err
    assert said.count("track: 'tensorboard': ") == said.count("disk is full") == 1


def test_a_tracker_that_cannot_be_made_ends_no_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with a protobuf or NumPy that does not fit it: its import raises whatever it likes."""

    class Broken(ModuleType):
        def __getattr__(self, name: str) -> NoReturn:
            raise TypeError("Descriptors cannot be created directly")

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", Broken("tensorboard"))
    tracker = tracker_of("tensorboard", tmp_path, run_spec())
    tracker.log(1, SCORES)
    tracker.close(finished=True)
    (line,) = capsys.readouterr().err.splitlines()
    assert "track: 'tensorboard': " in line and "Descriptors" in line


class Client:
    """A pretended MlflowClient, whose store outlives it."""

    runs: ClassVar[dict[str, dict[str, Any]]]
    experiments: ClassVar[dict[str, str]]

    def __init__(self, tracking_uri: str) -> None:
        assert tracking_uri.startswith("file://") and tracking_uri.endswith("results/mlflow")

    def get_experiment_by_name(self, name: str) -> Any:
        known = self.experiments.get(name)
        return known and SimpleNamespace(experiment_id=known)

    def create_experiment(self, name: str) -> str:
        assert name not in self.experiments
        return self.experiments.setdefault(name, f"x{len(self.experiments)}")

    def search_runs(self, experiments: list[str], wanted: str, max_results: int) -> list[Any]:
        asked = re.fullmatch(r"tags.digest = '(\w+)' and attributes.status = '(\w+)'", wanted)
        assert asked and max_results == 1
        return [
            SimpleNamespace(info=SimpleNamespace(run_id=name))
            for name, run in self.runs.items()
            if (run["tags"]["digest"], run["status"]) == asked.groups()
            and run["experiment"] in experiments
        ]

    def create_run(self, experiment: str, run_name: str, tags: dict[str, str]) -> Any:
        name = f"r{len(self.runs)}"
        self.runs[name] = {"experiment": experiment, "name": run_name, "tags": tags}
        self.runs[name] |= {"status": "RUNNING", "params": {}, "metrics": []}
        return SimpleNamespace(info=SimpleNamespace(run_id=name))

    def update_run(self, name: str, status: str) -> None:
        self.runs[name]["status"] = status

    set_terminated = update_run

    def log_param(self, name: str, key: str, value: str) -> None:
        self.runs[name]["params"][key] = value

    def log_metric(self, name: str, key: str, value: float, step: int) -> None:
        assert self.runs[name]["status"] == "RUNNING"
        self.runs[name]["metrics"].append((key, value, step))


def test_mlflow_goes_on_with_the_interrupted_run_of_this_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("mlflow")
    vars(module)["MlflowClient"] = Client
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.setattr(Client, "runs", {}, raising=False)
    monkeypatch.setattr(Client, "experiments", {}, raising=False)
    one, other = run_spec(), run_spec(rounds=9)
    for spec, number, finished in (
        (one, 1, False), (other, 1, True), (one, 2, True), (other, 1, False), (one, 3, False),
    ):  # fmt: skip
        tracker = tracker_of("mlflow", tmp_path, spec)
        tracker.close(finished)  # before it has logged anything: nothing begins
        tracker.log(number, SCORES)
        tracker.close(finished)
    found = [
        (run["tags"]["digest"], run["status"], [step for *_, step in run["metrics"]])
        for run in Client.runs.values()
    ]
    assert found == [
        (one.digest, "FINISHED", [1, 2]), (other.digest, "FINISHED", [1]),
        (other.digest, "KILLED", [1]), (one.digest, "KILLED", [3]),
    ]  # fmt: skip
    first = Client.runs["r0"]
    assert {key for key, *_ in first["metrics"]} == {"test_loss"}
    assert first["name"] == "fedavg seed 1" and first["params"]["rounds"] == "12"
    assert (first["tags"]["method"], first["tags"]["seed"]) == ("fedavg", "1")
    assert Client.experiments == {"test/blobs": "x0"}


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
@pytest.mark.parametrize("refused", [None, -1, -2, -3])
def test_memory_up_to_a_gibibyte_is_kept(
    refused: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the names and numbers of glibc's malloc.h."""
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3
    options: dict[int, int] = {}

    def mallopt(option: int, value: int) -> int:
        options[option] = value
        return int(option != refused)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert devices.keep_freed_memory() == (refused is None)
    assert options[mmap_threshold] == 2**30 and options[top_pad] == 2**26
    assert options[mmap_threshold] < options[trim_threshold] < 2**31
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())  # musl
    assert devices.keep_freed_memory() is False


def test_runs_of_a_program_that_differ_have_folders_of_their_own(
    written: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    samples = [(np.eye(3, dtype="f4"), np.arange(3))]
    for lr in (0.1, 0.2, 0.1):
        watching = fr.callbacks.TensorBoard(tmp_path)
        options: dict[str, Any] = {"rounds": 1, "test": samples[0], "lr": lr}
        fr.train("fedavg", "logistic", samples, callbacks=watching, **options)
    folders = [call[1] for call in written if call[0] == "begin"]
    assert folders[0] != folders[1] and folders[0] == folders[2]
