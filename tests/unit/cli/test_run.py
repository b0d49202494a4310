"""``fedrepro run`` by hand: what it makes first, what it keeps, and what it says of it."""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedrepro.cli import run
from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.run.runner import Progress
from fedrepro.support.errors import UserError
from support.project import OF_TABLE

EXPERIMENT = """\
system: own
title: Own
paper: none
seeds: {demo: [1], paper: [1]}
settings:
  s:
    dataset: own
    partition: {scheme: iid, clients: 3, test_fraction: 0.2}
    model: logistic
    rounds: 4
    participation: 1
    epochs: 1
    batch_size: 8
    optimizer: {lr: 0.1}
    evaluate: {clients: true}
tables:
  table_1:
    title: A table
    rows: [{label: S, setting: s, metric: {of: accuracy, over_clients: average}}]
    columns: [{label: FedAvg, method: fedavg}, {label: IMA, method: ima_late+fedavg}]
methods:
  ima_late: {variant_of: ima, start: 0.5, window: 2}
"""
FOLDER = Path("results/runs/own/s")
RUN = ["run", "own/s", "fedavg", "--seed", "1"]


def write_data(path: Path, seed: int, rows: int = 90) -> None:
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(2, rows))
    kind = np.where(a + b + random.normal(size=rows) > 0, "x", "y")
    pd.DataFrame({"a": a, "b": b, "kind": kind}).to_csv(path, index=False)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return begin(tmp_path, monkeypatch, 1)


def begin(root: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> Path:
    (root / "config/experiments").mkdir(parents=True)
    (root / "config/config.yaml").write_text("{}\n", encoding="utf-8")
    (root / "config/datasets.yaml").write_text(OF_TABLE, encoding="utf-8")
    (root / "config/experiments/own.yaml").write_text(EXPERIMENT, encoding="utf-8")
    write_data(root / "own.csv", seed)
    monkeypatch.chdir(root)
    return root


def model(method: str = "fedavg") -> bytes:
    return (FOLDER / method / "seed1/model.safetensors").read_bytes()


def test_another_raw_file_makes_data_partition_and_run_again(
    bench: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(RUN) == 0
    before = model()
    write_data(bench / "own.csv", 2, rows=120)
    assert main(RUN) == 0
    after = model()
    begin(tmp_path_factory.mktemp("new"), monkeypatch, 2)
    write_data(Path("own.csv"), 2, rows=120)
    assert main(RUN) == 0
    assert before != after == model()


def test_a_run_says_whether_it_trained(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(RUN) == 0
    said = capsys.readouterr().err
    assert f"own/s fedavg seed 1: done, in {FOLDER}/fedavg/seed1; own, Table 1: " in said
    assert main(RUN) == 0
    said = capsys.readouterr().err
    assert "done before, by the same code and configuration on the same data, in " in said
    assert "round" not in said.replace("rounds/s", "")


def test_a_child_run_says_once_that_it_continued(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    child = ["run", "own/s", "ima_late+fedavg", "--seed", "1"]
    assert main(RUN) == main(child) == 0
    assert "continued from fedavg after round 1" in capsys.readouterr().err
    assert main(child) == 0
    assert "continued" not in capsys.readouterr().err


def test_it_ends_with_a_line_for_each_printed_cell(
    bench: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If they cannot be judged, because of other files, the run is finished all the same."""
    monkeypatch.setattr(run, "lines_of", lambda *given: ["Table 1, S: 1.0", "Table 2, S: 1.0"])
    assert main(RUN) == 0
    said = capsys.readouterr().err
    assert f"done, in {FOLDER}/fedavg/seed1\n  Table 1, S: 1.0\n  Table 2, S: 1.0\n" in said

    def damaged(*given: object) -> list[str]:
        raise UserError("cells.csv: damaged")

    monkeypatch.setattr(run, "lines_of", damaged)
    assert main(RUN) == 0
    assert capsys.readouterr().err.endswith("seed1\n  no verdict: cells.csv: damaged\n")

    def divides(*given: object) -> list[str]:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(run, "lines_of", divides)
    assert main(RUN) == 0  # Snakemake would remove the run otherwise
    line = "no verdict: internal error: ZeroDivisionError: by zero"
    assert capsys.readouterr().err.endswith(f"seed1\n  {line}\n")


def test_its_last_line_has_the_number_of_its_table(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(RUN) == 0
    said = capsys.readouterr().err.strip().splitlines()[-1]
    clients = pd.read_parquet(FOLDER / "fedavg/seed1/clients.parquet")
    last = clients[clients["round"] == 4]
    mean = 100 * np.average(last["accuracy"], weights=last["test_samples"])
    assert said.endswith(f" {mean:.2f} %")


@pytest.mark.parametrize(
    ("method", "seed", "said"),
    [
        ("fedavg", "99", "; no table or figure reads seed 99: they read 1 (`seeds`)\n"),
        ("fedprox", "99", "seed99\n"),  # of no table, whatever its seed
    ],
)
def test_a_seed_that_no_table_reads_is_said(
    bench: Path, capsys: pytest.CaptureFixture[str], method: str, seed: str, said: str
) -> None:
    assert main(["run", "own/s", method, "--seed", seed]) == 0
    assert capsys.readouterr().err.endswith(said)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["--set", "mu=1", "--set", "mu=2"], "--set: 'mu=2': expected NAME=VALUE, each name once"),
        (["--set", "mu"], "--set: 'mu': expected NAME=VALUE"),
        (["--seed", "4294967296"], "--seed: 4294967296: expected a whole number from 0"),
        (["--seed", "-1"], "--seed: -1: expected a whole number from 0"),
    ],
)
def test_a_wrong_request_is_one_line(
    bench: Path, capsys: pytest.CaptureFixture[str], given: list[str], line: str
) -> None:
    assert main(["run", "own/s", "fedprox", "--seed", "1", *given]) == 2
    assert capsys.readouterr().err.startswith(f"fedrepro: the command line: {line}")
    assert not Path("results").exists()


def test_a_variant_is_another_run_with_its_own_value(bench: Path) -> None:
    assert main(["run", "own/s", "fedprox", "--seed", "1", "--set", "mu=0.5"]) == 0
    manifest = json.loads((FOLDER / "fedprox_mu0.5/seed1/manifest.json").read_text())
    assert manifest["run"]["hyperparameters"] == {"fedprox": {"mu": 0.5}}


def test_a_line_is_printed_every_five_seconds_and_in_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of rounds of two seconds each."""
    now = [100.0]
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    show = run.progress_lines("x")
    for number in range(1, 13):
        now[0] += 2
        show(Progress(number, 12, 0.5, 2.0 * (12 - number), 0.25, {}))
    lines = capsys.readouterr().err.splitlines()
    assert [int(line.split()[2]) for line in lines] == [1, 4, 7, 10, 12]
    assert lines[0] == "x: round 1 of 12, 0.50 rounds/s, 22 s left, accuracy 25.00%"
    assert lines[-1] == "x: round 12 of 12, 0.50 rounds/s, accuracy 25.00%"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(7.4, "7 s"), (59.6, "1 min 0 s"), (125, "2 min 5 s"), (7200 + 180 + 59, "2 h 3 min")],
)
def test_the_time_left_is_told_in_words(
    capsys: pytest.CaptureFixture[str], seconds: float, words: str
) -> None:
    run.progress_lines("x")(Progress(1, 2, 1.0, seconds, 0.5, {}))
    assert f"rounds/s, {words} left, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("accuracy", "scores", "of_clients", "score"),
    [
        (0.125, {"test_loss": 2.5}, False, ", accuracy 12.50%"),
        (0.125, {"client_accuracy": 0.125}, True, ", clients' accuracy 12.50%"),
        (0.125, {}, True, ", clients' accuracy 12.50%"),  # of an earlier round
        (math.nan, {"test_loss": 2.5}, False, ", loss 2.5"),
        (math.nan, {"test_loss": math.nan}, True, ""),
        (math.nan, {}, False, ""),
    ],
)
def test_a_line_has_the_accuracy_or_else_the_loss(
    capsys: pytest.CaptureFixture[str],
    accuracy: float,
    scores: dict[str, float],
    of_clients: bool,
    score: str,
) -> None:
    run.progress_lines("x")(Progress(3, 9, 1.0, None, accuracy, scores, of_clients))
    assert capsys.readouterr().err == f"x: round 3 of 9, 1.00 rounds/s{score}\n"


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_last_line_has_the_first_three_numbers_and_how_many_more(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    key = RunKey("own/s", "fedavg", 1)
    tables = [SimpleNamespace(table=f"Table {n}") for n in range(count)]
    answers = [SimpleNamespace(use=use, words="accuracy", value=n + 0.126, unit="%")
               for n, use in enumerate(tables)]  # fmt: skip
    answers[0].value = 0.000384  # such as megabytes, which were 0.00
    asked: list[object] = []

    def cells(bench: object, papers: object, runs: object, only: str) -> dict[RunKey, list[int]]:
        asked.extend([runs, only])
        return {key: [1]}

    monkeypatch.setattr(run, "cells_of_runs", cells)
    monkeypatch.setattr(run, "read_run", lambda root, key: key)
    monkeypatch.setattr(run, "answers_of", lambda record, uses: (record, uses))
    monkeypatch.setattr(run, "headline", lambda found: answers if found == (key, [1]) else [])
    words = run._numbers(SimpleNamespace(root=None), key)  # type: ignore[arg-type]
    assert asked == [{key}, "own"]
    shown = [f"Table {n}: accuracy {n + 0.13:.2f} %" for n in range(min(count, 3))]
    shown[0] = "Table 0: accuracy 0.000384 %"
    more = [f"and {count - 3} more"] if count > 3 else []
    assert words == "".join(f"; {part}" for part in [*shown, *more])

    def broken(*about: object) -> None:
        raise UserError("measure own: of_run: KeyError: 'x'")

    monkeypatch.setattr(run, "answers_of", broken)  # the run is finished, and stays
    assert "of_run" in run._numbers(SimpleNamespace(root=None), key)  # type: ignore[arg-type]


@pytest.mark.parametrize("played", [0, 6])
def test_how_a_run_ended_is_said_with_its_rounds_and_its_privacy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], played: int
) -> None:
    """Also of one that was there; that it went on from another's round, only where it did now."""
    key = RunKey("own/s", "fedavg", 1)
    monkeypatch.setattr(run, "_verdicts", lambda *about: [])
    monkeypatch.setattr(run, "_numbers", lambda *about: "; numbers")
    bench: Any = SimpleNamespace(root=Path())
    told = {
        "status": "diverged", "diverged_at": 5, "rounds_done": 4, "stopped": "the loss rose",
        "went_on_from": {"method": "fedprox", "round": 3},
        "privacy": {"epsilon": 1.23456, "delta": 0.00002, "neighbours": "add or remove one"},
    }  # fmt: skip
    run._say_outcome(bench, key, told, played)
    lines = [line.partition("seed 1: ")[2] for line in capsys.readouterr().err.splitlines()]
    numbers = [re.findall(r"[\d.e-]*\d", line.partition(", in results")[0]) for line in lines]
    assert numbers == [["5"], ["4"], *([["3"]] if played else []), ["1.23", "2e-05"], []]
    assert ("before" in lines[-1]) != bool(played) and lines[-1].endswith("; numbers")
    run._say_outcome(bench, key, {"status": "finished"}, played)
    assert len(capsys.readouterr().err.splitlines()) == 1
    none, least = ({"epsilon": each, "delta": 0.1, "neighbours": "x"} for each in (None, 0.0))
    assert "epsilon" in run._privacy(least) and "epsilon" not in run._privacy(none)


@pytest.mark.parametrize(
    ("prepared", "downloaded", "made"),
    [(False, False, True), (False, True, True), (True, True, True), (True, False, False)],
)
def test_prepared_data_are_kept_where_their_raw_files_are_gone(
    bench: Path, monkeypatch: pytest.MonkeyPatch, prepared: bool, downloaded: bool, made: bool
) -> None:
    """Else preparing them again finds out whether anything has changed."""
    for there, name in ((prepared, "data/own/meta.json"), (downloaded, "downloads/own/files.json")):
        if there:
            (Path("results") / name).parent.mkdir(parents=True)
            (Path("results") / name).touch()
    called: list[str] = []
    monkeypatch.setattr(run, "prepare_dataset", lambda name, *about: called.append(name))
    monkeypatch.setattr(run, "refuse_damage", lambda *about: called.append("checked"))
    monkeypatch.setattr(run, "open_dataset", lambda name, root: name)
    assert run._dataset(load(), "own") == "own"
    assert called == ["own"] * made + ["checked"]


def test_nothing_is_trained_on_damaged_data(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(RUN) == 0
    file = Path("results/data/own/train_x.npy")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert main([*RUN[:-1], "2"]) == 2
    assert "train_x.npy has a wrong checksum" in capsys.readouterr().err
