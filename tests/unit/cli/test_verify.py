"""Which folders ``fedrepro verify`` checks, and its status."""

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedrepro.cli import verify
from support.refusals import refused


@pytest.mark.parametrize(
    ("there", "checked"),
    [
        ((), ["results"]),  # and says that it is missing
        (("results",), ["results"]),
        (("reports/papers",), ["reports"]),
        (("results", "reports/papers"), ["results", "reports"]),
        (("results", "reports/site"), ["results"]),
    ],
    ids=str,
)
def test_without_a_folder_all_that_are_there_are_checked(
    there: tuple[str, ...], checked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in there:
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert [str(each) for each in verify._folders(Namespace(folder=None))] == checked
    assert verify._folders(Namespace(folder=Path("copy"))) == [Path("copy")]


@pytest.mark.parametrize("folder", [None, Path("reports"), Path("results")])
@pytest.mark.parametrize("wrong", [(), ("results",), ("reports",), ("results", "reports")])
def test_faults_of_every_folder_count_and_runs_are_compared_with_the_results_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: Path | None,
    wrong: tuple[str, ...],
) -> None:
    for name in ("results", "reports/papers"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    def check(at: Path, full: bool) -> SimpleNamespace:
        assert full
        return SimpleNamespace(
            results=at, counts={f"files of {at}": 2}, unrecorded=[f"paper of {at}"], unlisted=[],
            faults=lambda: iter([f"{at}/a", f"{at}/b"] if str(at) in wrong else []),
        )  # fmt: skip

    monkeypatch.setattr(verify, "Check", check)
    monkeypatch.setattr(verify, "_other_results", lambda results: [f"runs of {results}"])
    words = Namespace(accept=None, folder=folder, full=True)
    checked = ["results", "reports"] if folder is None else [str(folder)]
    faults = [f"{at}/{name}" for at in checked if at in wrong for name in "ab"]
    assert verify.handle(words) == (1 if faults else 0)
    out, said = capsys.readouterr()
    assert out.split() == faults
    assert all(f"2 files of {at}" in said and f"paper of {at}" in said for at in checked)
    assert (f": {len(faults)} wrong" in said) == bool(faults)
    assert ("runs of results" in said) == ("results" in checked) and "runs of reports" not in said


@pytest.mark.parametrize("folder", ["results/runs", "elsewhere", ".", "config"])
def test_a_folder_in_which_nothing_can_be_checked_is_not_called_right(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that nothing is wrong, of a part of the results, of a workbench and of any folder."""
    for name in ("results/runs/mine/even/fedavg/seed1", "elsewhere/mine", "data", "config/schema"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with refused("value", file="the command line", key="FOLDER"):
        verify.handle(Namespace(accept=None, folder=Path(folder), full=False))
    (tmp_path / "copy/logs").mkdir(parents=True)  # of results in which nothing is finished
    assert verify.handle(Namespace(accept=None, folder=Path("copy"), full=False)) == 0
