"""The command `fedrepro`: what it says, and how it says no."""

import json
from pathlib import Path

import pytest

from fedrepro.cli import main as cli
from support.places import ROOT


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(
    ("arguments", "start", "end"),
    [
        (
            "run ima/fmnist-shard2-demo fedavg --seed 1",
            "config/experiments: setting: 'ima/fmnist-shard2-demo': expected the name of a setting",
            "; did you mean 'ima/fmnist-shards2-demo'?",
        ),
        (
            "run ima/fmnist-shards2-demo fedprax --seed 1",
            "method fedprax: part: 'fedprax': expected one of ",
            "; did you mean 'fedprox'?",
        ),
        (
            "run ima/fmnist-shards2-demo ima+central --seed 1",
            "method ima+central: wrapper: 'ima': expected a method that it can wrap",
            "",
        ),
        (
            "run ima/fmnist-shards2-demo fedavg+ima --seed 1",
            "method fedavg+ima: order: 'ima': expected wrappers, then one method",
            "",
        ),
        (
            "run ima/fmnist-shards2-demo fedavg --seed -1",
            "the command line: --seed: -1: expected a whole number from 0 to 4294967295",
            "",
        ),
        (
            "run ima/fmnist-shards2-demo fedavg --seed 1 --executor vectorized",
            "the command line: executor: 'vectorized': expected one of auto, parallel",
            "; did you mean 'vectorised'?",
        ),
        (
            "run ima/fmnist-shards2-demo fedavg --seed 1 --device gpu",
            "the command line: device: 'gpu': expected cpu, cuda or cuda:<number>",
            "",
        ),
        (
            "table ima table_11 --scale demo",
            "config/experiments/ima.yaml: tables: 'table_11': expected the name of a table",
            "; did you mean 'table_1'?",
        ),
        (
            "table ima table_1 --scale papre",
            "the command line: scale: 'papre': expected demo or paper",
            "; did you mean 'paper'?",
        ),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], arguments: str, start: str, end: str
) -> None:
    assert cli.main(arguments.split()) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"fedrepro: {start}")
    assert said.rstrip("\n").endswith(end)


@pytest.mark.parametrize("command", ["", "run", "methods", "coverage", "datasets", "table"])
def test_help_reads_well(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([*command.split(), "--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith("usage: fedrepro")
    assert "==SUPPRESS==" not in said


def test_methods_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["methods", "--json"]) == 0
    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert listed["fedprox"]["hyperparameters"]["mu"] == 0.01
    assert "squared" not in listed["fedprox"]["hyperparameters"]  # a divergence
    assert "loss" in listed["fedprox"]["hooks"]
    assert "Li et al." in listed["fedprox"]["paper"]
    assert listed["fedavg"]["hooks"] == ["weigh", "step"]  # for its divergences only
    assert {"init", "step"} <= set(listed["ima"]["hooks"])
    assert listed["ima"]["kind"] == "wrapper"
    assert listed["fedadam"]["kind"] == "server optimizer"
    assert listed["fedadam"]["hooks"] == []


def test_methods_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["methods"]) == 0
    said = capsys.readouterr().out
    for word in ("fedavg", "scaffold", "ima", "fedyogi", "mu = 0.01"):
        assert word in said


def test_coverage_counts_table_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["coverage", "--json"]) == 0
    rows = {(row["system"], row["table"]): row for row in json.loads(capsys.readouterr().out)}
    assert rows["ima", "table_1"]["targets"] == 192
    assert rows["all", "all"]["printed"] == 1389


def test_a_fault_of_the_program_goes_to_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: object) -> None:
        raise ArithmeticError("on purpose")

    monkeypatch.setattr("fedrepro.cli.listing.list_methods", fail)
    log = tmp_path / "logs/methods.log"
    assert cli.main(["--log", str(log), "methods"]) == 1
    said = capsys.readouterr().err
    assert said == f"fedrepro: a fault of this program: ArithmeticError: on purpose; see {log}\n"
    assert "Traceback" in log.read_text(encoding="utf-8")
    assert said in log.read_text(encoding="utf-8")


def test_interruption_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedrepro.cli.listing.list_methods", stop)
    assert cli.main(["methods"]) == 130
    assert capsys.readouterr().err == "fedrepro: interrupted\n"
