"""Which folders ``fedrepro verify`` checks."""

from argparse import Namespace
from pathlib import Path

import pytest

from fedrepro.cli import verify


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
