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
    for profile in ("default", "slurm", "slurm-accounting"):
        ours = (ROOT / f"workflow/profiles/{profile}/profile.yaml").read_bytes()
        assert (tmp_path / f"mine/profiles/{profile}/profile.yaml").read_bytes() == ours
    assert main(["init", "mine"]) == 2
    assert "'mine': expected a folder that does not exist yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("copied", "said"),
    [
        ([], "no paper is in this workbench: `fedrepro init FOLDER --with SYSTEM`"),
        (
            ["--with", "fedevg"],
            "results at scale paper that come with fedrepro are only in a clone",
        ),
    ],
)
def test_claims_say_what_a_workbench_lacks(
    copied: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "mine"), *copied]) == 0
    assert main(["--root", str(tmp_path / "mine"), "claims"]) == 0
    listed = capsys.readouterr()
    assert said in listed.err
    assert ("\nfedevg-" in listed.out) == bool(copied)
