"""The workbenches in examples/: complete, and judged from their landed results alone."""

import csv
import json
import re
from pathlib import Path

import pytest

from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.run.results import read_run
from support.places import ROOT
from support.scripts import script

EXAMPLES = sorted(path.parents[1] for path in ROOT.glob("examples/*/config/config.yaml"))
MOST_CELLS, MOST_BYTES = 24, 500_000


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.name)
def example(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an example's paper; here are its files, without results made on this machine."""
    script("whole_site").with_committed_files(tmp_path, request.param)
    monkeypatch.chdir(tmp_path)
    return str(request.param.name)


def test_it_is_complete_and_judged(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["check-paper", example])
    assert status == 0, capsys.readouterr().out
    assert main(["verify", "reports"]) == 0
    capsys.readouterr()
    assert main(["claims", "--json"]) == 0
    claims = json.loads(capsys.readouterr().out)
    tested = [claim for claim in claims if claim["compact"] != "none"]
    assert tested and all(claim["compact_seeds"] >= 5 for claim in tested)
    bench, reference = load(), script("reference")
    for group in reference.compact(bench, "*"):
        for run in group.runs:
            record = read_run(Path(), run, reference=True)
            assert reference.is_current(bench, record), f"{run}: to be made: `make compact`"


def test_its_printed_numbers_have_a_place(example: str) -> None:
    folder = Path("reports/papers") / example
    with (folder / "cells.csv").open(encoding="utf-8") as file:
        printed = [row["item"] for row in csv.DictReader(file)]
    assert 0 < len(printed) <= MOST_CELLS
    with (folder / "notes.csv").open(encoding="utf-8") as file:
        places = {row["item"] for row in csv.DictReader(file) if "https://" in row["note"]}
    assert set(printed) <= places, "notes.csv says with an address where a table was read"


def test_it_is_small(example: str) -> None:
    files = [path for path in (ROOT / "examples" / example).rglob("*") if path.is_file()]
    ignored = ("results", "schema", "site", ".snakemake", "__pycache__")
    kept = [path for path in files if not set(ignored) & set(path.parts)]
    assert sum(path.stat().st_size for path in kept) <= MOST_BYTES


def test_examples_are_no_part_of_a_wheel() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "examples" not in text.partition("[tool.hatch.build")[2].partition("[tool.ruff")[0]


@pytest.mark.parametrize("source", EXAMPLES, ids=lambda path: path.name)
def test_its_page_of_claims_says_what_the_terminal_says(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From the clone, as `make examples` and `fedrepro --root` are called."""
    monkeypatch.chdir(ROOT)
    script("whole_site").write_example(source, tmp_path / "site")
    assert main(["--root", str(source), "claims", "--json"]) == 0
    words = [claim["compact"].split(",")[0] for claim in json.loads(capsys.readouterr().out)]
    page = (tmp_path / "site/claims.html").read_text(encoding="utf-8")
    rows = re.findall(r'<tr id="(.*?)</tr>', page, re.DOTALL)
    assert len(rows) == len(words)
    assert all(f"</span> {word}" in row for word, row in zip(words, rows, strict=True))
    assert "not computed" not in words
