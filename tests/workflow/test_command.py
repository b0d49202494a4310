"""The command `fedrepro`: what it says, and how it says no."""

import json
import re
import shutil
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from fedrepro.cli import main as cli
from fedrepro.config.loading import load
from fedrepro.report.cells import coverage
from support.places import ROOT
from support.report_world import copy_inputs


@cache
def covered() -> list[dict[str, Any]]:
    """The repository's coverage, as if all were computed: reading real results takes seconds."""
    with TemporaryDirectory() as folder:
        copy_inputs(Path(folder))
        shutil.copytree(ROOT / "config", Path(folder) / "config")
        rows = COVERAGE(load(Path(folder)))
    computed = ("computed", *coverage.TRAINED.values(), *coverage.ARITHMETIC.values())
    return [{**row, **dict.fromkeys(computed, row["targets"])} for row in rows]


COVERAGE = coverage.coverage


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(coverage, "coverage", lambda bench: covered())


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
            "method fedprax: part: 'fedprax': expected a name that `fedrepro methods` lists",
            "; did you mean 'fedprox' or 'fedper' or 'fedfa'?",
        ),
        (
            "run ima/fmnist-shards2-demo ima+fedprox_nu0.5 --seed 1",
            "method ima+fedprox_nu0.5: part: 'fedprox_nu0.5': expected fedprox with values of its "
            "hyperparameters, each once in this order: ",
            "halved, mu, sample_weighted, squared; did you mean 'mu'?",
        ),
        (
            "run ima/fmnist-shards2-demo fedprox_mu0.1_mu0.5 --seed 1",
            "method fedprox_mu0.1_mu0.5: part: ",
            "each once in this order: constant_server_lr, halved, mu, sample_weighted, squared",
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
            "table fedgoo table_3",
            "config/experiments: system: 'fedgoo': expected a system with an experiment file: "
            "aaggff, ",
            "; did you mean 'fedgo'?",
        ),
        (
            "methods fedprx",
            "the command line: NAME: 'fedprx': expected a method",
            "; did you mean 'fedprox'?",
        ),
        ("models twon", "model: name: 'twon': expected one of ", "; did you mean 'twonn'?"),
        (
            "settings ima/fmnist",
            "config/experiments: setting: 'ima/fmnist': expected the name of a setting",
            "",
        ),
        (
            "--root nowhere methods",
            "the command line: --root: 'nowhere': expected a workbench, which has "
            "config/config.yaml",
            "`fedrepro init` creates one",
        ),
        (
            "init docs",
            "the command line: FOLDER: 'docs': expected a folder that does not exist yet",
            "",
        ),
        (
            "init /nowhere/new --with imma",
            "the command line: --with: 'imma': expected one of aaggff, fedevg",
            "; did you mean 'ima'?",
        ),
        (
            "table ima table_1 --scale papre",
            "the command line: scale: 'papre': expected demo, compact or paper",
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


@pytest.mark.parametrize(
    "command",
    ["", "init", "run", "methods", "models", "settings", "coverage", "claims", "table"],
)
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
    assert "gradient" in listed["fedprox"]["hooks"]
    assert "Li et al." in listed["fedprox"]["paper"]
    # for its divergences only
    assert listed["fedavg"]["hooks"] == ["aggregation_weights", "server_update"]
    assert {"init_server", "server_update"} <= set(listed["ima"]["hooks"])
    assert listed["ima"]["kind"] == "wrapper"
    assert listed["fedadam"]["kind"] == "server optimizer"
    assert listed["fedadam"]["hooks"] == []


LISTINGS = ("methods", "models", "datasets", "settings ima", "coverage")


@pytest.mark.parametrize("command", LISTINGS)
def test_programs_get_a_line_for_each_row_with_tabs(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert cli.main(command.split()) == 0
    header, *rows = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert len(rows) > 10 and {len(row) for row in rows} == {len(header)}
    assert len({tuple(row[:2]) for row in rows}) == len(rows)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", [*LISTINGS, "methods fedprox", "datasets mnist5k"])
def test_a_terminal_gets_what_fits_it(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    columns: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cli.main(command.split()) == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= columns
    said = {word for line in lines for word in line.split()}
    # Names that rows are called by, and numbers, stand on one line.
    named = {"methods": "fedadagrad", "models": "discriminator_cnn_mlp", "coverage": "1397"}
    named |= {"datasets": "cifar100_superclasses", "settings ima": "ima/fmnist-dirichlet0.1"}
    assert named.get(command, command.split()[-1]) in said


def test_one_by_its_name_is_said_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    for command, words in {
        "methods fedprox": ("hyperparameters\tmu = 0.01", "deviations\t21: ", "eq. 2"),
        "datasets mnist5k": ("licence\tCC BY-SA 3.0", "citation\tY. LeCun"),
        "models twonn": ("family\tmlp", "src/fedrepro/models/mlp.py, twonn"),
        "settings ima/fmnist-shards2": ("  dataset: fmnist\n", "    momentum: 0.9\n"),
    }.items():
        assert cli.main(command.split()) == 0
        said = capsys.readouterr().out
        assert all(word in said for word in words), said


def test_coverage_counts_table_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["coverage", "--json"]) == 0
    rows = {(row["system"], row["table"]): row for row in json.loads(capsys.readouterr().out)}
    assert rows["ima", "table_1"]["targets"] == 192
    assert rows["all", "all"]["printed"] == 1397


def test_coverage_says_which_cells_need_no_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_inputs(tmp_path)
    shutil.copytree(ROOT / "config", tmp_path / "config")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["coverage"]) == 0
    line = "fedrepro: some cells need no run but are not computed yet: `fedrepro study fedgo_cost`"
    assert capsys.readouterr().err == f"{line}\n"
    Path("results/studies").mkdir(parents=True)
    Path("results/studies/fedgo_cost.json").touch()
    assert cli.main(["coverage"]) == 0
    assert not capsys.readouterr().err


def test_scripts_find_every_column_of_coverage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those in which all is 0, which terminals are spared."""
    rows = [{**row, "not_comparable": 0} for row in covered()]
    assert rows[0].keys() == covered()[0].keys()
    monkeypatch.setattr(coverage, "coverage", lambda bench: rows)
    assert cli.main(["coverage"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split("\t") == list(rows[0]) and len(lines) == len(rows)


def test_coverage_counts_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["coverage", "--figures", "--json"]) == 0
    *systems, everything = json.loads(capsys.readouterr().out)
    assert everything["system"] == "all" and len(systems) == 5
    counted = ("printed", "as_printed", "in_part", "otherwise", "missing")
    assert [everything[name] for name in counted] == [29, 25, 3, 1, 0]
    assert everything["printed"] == sum(row["printed"] for row in systems)
    assert 0 <= everything["computed_paper"] <= 29


def test_a_fault_of_the_program_goes_to_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: object) -> None:
        raise ArithmeticError("on purpose")

    monkeypatch.setattr("fedrepro.cli.listing.list_methods", fail)
    log = tmp_path / "logs/methods.log"
    assert cli.main(["--log", str(log), "methods"]) == 1
    said = capsys.readouterr().err
    assert said == (
        f"fedrepro: internal error: ArithmeticError: on purpose; please report it with {log}\n"
    )
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
