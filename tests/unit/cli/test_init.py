"""What `fedrepro init` copies."""

from pathlib import Path

import pytest

from fedrepro.cli.main import main
from support.places import ROOT


def test_a_workbench_begins_without_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the printed numbers of chosen papers, but no reference result as if it were its own."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", "mine", "--with", "fedevg", "ima", "fedevg"]) == 0
    papers = tmp_path / "mine/reports/papers"
    assert {path.name for path in papers.iterdir()} == {"fedevg", "ima", "systems.yaml"}
    assert (papers / "systems.yaml").read_text(encoding="utf-8") == "- fedevg\n- ima\n"
    theirs = {
        path.relative_to(ROOT / "reports/papers")
        for system in ("fedevg", "ima")
        for path in (ROOT / "reports/papers" / system).rglob("*")
        if path.is_file() and "reference" not in path.parts
    }
    assert {path.relative_to(papers) for path in papers.rglob("*/*") if path.is_file()} == theirs
    assert not [*tmp_path.rglob("reference"), *tmp_path.rglob("__pycache__")]
    assert main(["init", "mine"]) == 2
    assert "'mine': expected a folder that does not exist yet" in capsys.readouterr().err
