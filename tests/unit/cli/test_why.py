"""``fedrepro explain``: against today, against another run, on reference results and on damage."""

import json
import os
from pathlib import Path

import pytest

from fedrepro.cli import main as cli
from fedrepro.cli import why
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.engine.executor_facts import PER_CLIENT
from fedrepro.provenance.identity import Difference, Meaning
from fedrepro.run.results import reference_folder
from fedrepro.support.files import sha256_of
from support.manifests import write_manifest
from support.report_world import make_system, write_run

RUN = RunKey("fedgo/digits-demo", "fedavg", 1)
PROX = RunKey("fedgo/digits-demo", "fedprox", 1)
WHY = ("why", RUN.setting, RUN.method, "--seed", "1")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    monkeypatch.chdir(make_system(tmp_path, "fedgo"))
    return load(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main([*WHY, *arguments]) == 0
    return capsys.readouterr().out


def change(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    write_manifest(folder, manifest | changes)


def test_a_run_that_is_missing(bench: Workbench, capsys: pytest.CaptureFixture[str]) -> None:
    _, reason, compared = said(capsys).splitlines()
    assert reason.startswith(f"  {RUN.folder}/manifest.json ") and "missing" in reason
    assert compared.startswith(f"{RUN.folder}: ") and "manifest" in compared


def test_a_run_against_today(bench: Workbench, capsys: pytest.CaptureFixture[str]) -> None:
    """Data are not prepared here, which hides nothing else."""
    change(write_run(bench, RUN, [0.5, 0.75], rounds=7), git={}, code_files={"engine/net.py": "1"})
    lines = said(capsys).splitlines()
    assert lines[1].startswith("  clients.parquet, model.safetensors: missing")
    assert lines[2].startswith(f"From {RUN.folder}/manifest.json ")
    now = bench.setting(RUN.setting).rounds
    assert f"    rounds: 7 -> {now}" in lines and "    changed: engine/net.py" in lines
    assert "    added: methods/fedavg.py" in lines
    assert any(line.startswith("    torch: 2.9.0 -> ") for line in lines)
    assert any(line.startswith("    ") and ": results/data/" in line for line in lines)


def test_a_reference_result_is_taken_where_there_is_no_other(
    bench: Workbench, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(bench, RUN, [0.5, 0.75], reference=True)
    text = said(capsys)
    assert f"From {reference_folder(RUN)}/manifest.json, a reference result, to today:" in text
    assert "its files are not recorded by" in text


def test_two_runs_and_the_first_round_in_which_they_differ(
    bench: Workbench, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(bench, RUN, [0.5, 0.75, 0.8])
    folder = write_run(bench, PROX, [0.5, 0.7, 0.8])
    text = said(capsys, "--other", PROX.setting, PROX.method, "1")
    assert text.startswith(f"from {RUN.folder}\nto {PROX.folder}\n")
    assert "  method: fedavg -> fedprox" in text
    assert "  round 2 is the first that differs: test_loss: " in text and "0.75 -> 0.7" not in text
    for path in (folder, folder / "manifest.json", PROX.folder):
        again = said(capsys, "--other", str(path))
        assert again.splitlines()[2:] == text.splitlines()[2:]


def test_a_run_against_its_own_reference_result(
    bench: Workbench, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(bench, RUN, [0.5, 0.75])
    write_run(bench, RUN, [0.5, 0.75], reference=True)
    lines = said(capsys, "--other", str(reference_folder(RUN))).splitlines()
    assert lines[2:] == ["rounds", "  all 2 recorded rounds are equal"]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (["nowhere"], "--other: 'nowhere': "),
        (["a\0b"], "--other: 'a\\x00b': expected SETTING METHOD SEED"),
        ([RUN.setting, "fedavg"], "--other: 'fedgo/digits-demo fedavg': expected SETTING METHOD"),
        ([f"{RUN.folder}/rounds.parquet"], "/rounds.parquet': expected SETTING METHOD SEED"),
        ([RUN.setting, "fedavg", "1", "2"], "--other: 'fedgo/digits-demo fedavg 1 2': expected"),
        ([RUN.setting, "fedavg", "one"], "--other: SEED: 'one':"),
        ([RUN.setting, "fedavg", "9" * 30], "--other: SEED: 9999999"),
        (["fedgo/digit-demo", "fedavg", "1"], "'fedgo/digits-demo'?"),
        ([PROX.setting, PROX.method, "1"], "fedprox/seed1: "),
    ],
)
def test_what_names_no_run_is_one_line(
    bench: Workbench, capsys: pytest.CaptureFixture[str], other: list[str], words: str
) -> None:
    write_run(bench, RUN, [0.5, 0.75])
    assert cli.main([*WHY, "--other", *other]) == 2
    line = capsys.readouterr().err
    assert words in line and line.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "{}", "null", '{"run": 3}', '{"files": []}', "[" * 100_000,
        '{"run": {}, "files": {"rounds.parquet": 7}}',
        '{"run": {"rounds": []}, "code": {}, "code_files": {"a": {}}, "git": [], "packages": 1}',
        '{"git": {"fedrepro": {"commit": "--help"}}, "code_files": {"../../x": "1", "a": "2"}}',
        '{"hardware": {"a": {"b": [1, {"c": "\\u001b[2J"}]}}, "data": "\\ud800", "seal": 7}',
        '{"git": {"fedrepro": "x"}, "code_files": {"engine/net.py": "1"}, "status": "diverged"}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("against", ["today", "other"])
def test_no_damaged_manifest_ends_in_a_traceback(
    bench: Workbench, capsys: pytest.CaptureFixture[str], text: str, against: str
) -> None:
    folder = write_run(bench, RUN, [0.5, 0.75])
    other = write_run(bench, PROX, [0.5, 0.75])
    (folder / "manifest.json").write_text(text, encoding="utf-8")
    arguments = [] if against == "today" else ["--other", str(other)]
    status = cli.main([*WHY, *arguments])
    spoken = capsys.readouterr()
    assert status == 0 or (status == 2 and spoken.err.count("\n") == 1)
    assert "\x1b" not in spoken.out + spoken.err


def test_damaged_rounds_are_said_and_not_compared(
    bench: Workbench, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(bench, RUN, [0.5, 0.75])
    write_run(bench, PROX, [0.5, 0.75])
    (folder / "rounds.parquet").write_bytes(os.urandom(100))
    assert cli.main([*WHY, "--other", PROX.setting, PROX.method, "1"]) == 0
    spoken = capsys.readouterr()
    assert "rounds.parquet differs from the hash in its manifest" in spoken.err
    assert spoken.out.endswith(f" {RUN.folder}\n") and "->" not in spoken.out.split("rounds")[-1]
    change(folder, files={"rounds.parquet": sha256_of(folder / "rounds.parquet")})
    assert cli.main([*WHY, "--other", PROX.setting, PROX.method, "1"]) == 2
    assert "rounds.parquet: damaged: " in capsys.readouterr().err


def test_another_class_of_arithmetic_is_told(
    bench: Workbench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of a manifest from before it was recorded."""
    change(write_run(bench, RUN, [0.5, 0.75]), executor="vectorised")
    assert f"    arithmetic: stacked -> {PER_CLIENT}" in said(capsys).splitlines()
    other = f"{PER_CLIENT}, tf32, cuda"
    change(bench.root / RUN.folder, executor="sequential", arithmetic=other)
    assert f"    arithmetic: {other} -> {PER_CLIENT}" in said(capsys).splitlines()


def test_data_that_would_be_made_again_first_differ(
    bench: Workbench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are there are equal to the run's: they were made before their files changed."""
    write_run(bench, RUN, [0.5, 0.75])
    manifest = json.loads((RUN.folder / "manifest.json").read_text(encoding="utf-8"))
    monkeypatch.setattr(why, "current_manifest", lambda *_: (manifest, ""))
    assert "data" not in [line.strip() for line in said(capsys).splitlines()]
    changed = Difference(Meaning.OTHER_NUMBERS, "data", "data set digits", words="new files")
    monkeypatch.setattr(why, "data_now", lambda *_: ({}, [changed]))
    lines = [line.strip() for line in said(capsys).splitlines()]
    assert lines[lines.index("data") + 1 :] == ["new files"]
