"""`fedrepro export`: a table, its runs and what to cite, in a new folder."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.values import SCALES
from support.report_world import make_world, write_run


def test_a_table_is_exported_with_its_runs_and_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bench = load(make_world(tmp_path, rows=1, columns=2))
    target = bench.table("ima", "table_1", "demo")
    write_run(bench, target.runs[0], [0.1234] * 40)
    assert main(["export", "ima", "table_1", "--scale", "demo", "--to", "appendix"]) == 0
    files = {path.name: path.read_text(encoding="utf-8") for path in Path("appendix").iterdir()}
    assert "81.17" in files["table_1.tex"] and "12.34" in files["table_1.csv"]
    (run,) = csv.DictReader(files["runs.csv"].splitlines())
    assert (run["setting"], run["seed"]) == (target.runs[0].setting, str(target.runs[0].seed))
    (manifest,) = json.loads(files["manifests.json"])
    assert manifest["config_hash"] == run["configuration"]
    works = files["references.bib"]
    for key in ("zhou2024averaging", "mcmahan2017fedavg", "{mnist", "{fedrepro,"):
        assert works.count(key) == 1, (key, works)
    assert main(["export", "ima", "table_1", "--scale", "demo", "--to", "appendix"]) == 2


def test_a_hole_of_a_run_that_has_begun_is_said_and_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the judged setting and in that of scale demo; of a run that is not made nothing is."""
    monkeypatch.chdir(tmp_path)
    bench = load(make_world(tmp_path, rows=1, columns=2))
    for scale in SCALES[:2]:
        run = bench.table("ima", "table_1", scale).runs[0]
        write_run(bench, run, [0.5] * 40)
        (run.folder / "rounds.parquet").write_bytes(b"x")
        capsys.readouterr()
        assert main(["export", "ima", "table_1", "--scale", scale, "--to", scale]) == 0
        (said, _) = capsys.readouterr().err.splitlines()
        assert "rounds.parquet" in said
        with Path(scale, "table_1.csv").open(encoding="utf-8") as file:
            notes = [row["note"] for row in csv.DictReader(file)]
        assert "rounds.parquet" in notes[0] and notes[1:] == [""]
        shutil.rmtree(run.folder)
