"""`fedrepro export`: a table, its runs and what to cite, in a new folder."""

import csv
import json
from pathlib import Path

import pytest

from fedrepro.cli.main import main
from fedrepro.config.loading import load
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
