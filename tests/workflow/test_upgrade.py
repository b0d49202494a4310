"""A workbench that an older version made is opened by this one: nothing is made again.

tests/fixtures/README.md says how the fixture was made.
"""

import tarfile
from pathlib import Path

import pytest

from support.places import TESTS
from support.project import Project

FIXTURE = TESTS / "fixtures/workbench_f2fc93d0.tar.xz"


class Workbench(Project):
    """A folder without a package of its own: it uses the repository's, as if installed."""

    @property
    def path(self) -> str:
        return str(TESTS.parent / "src")


@pytest.fixture
def workbench(tmp_path: Path) -> Workbench:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    return Workbench(tmp_path / "bench")


def test_nothing_is_made_again(workbench: Workbench) -> None:
    called = workbench.snakemake("-n")
    assert called.returncode == 0 and "Nothing to be done" in called.stdout, called.stdout
    older = [line for line in called.stdout.splitlines() if line.startswith("fedrepro: ")]
    assert len(older) == 1 and "another version" in older[0]


def test_nothing_is_wrong(workbench: Workbench) -> None:
    checked = workbench.fedrepro("verify")
    assert checked.returncode == 0 and "nothing is wrong" in checked.stdout
    assert "would be made again" not in checked.stdout, checked.stdout


def test_a_finished_run_is_kept(workbench: Workbench) -> None:
    run = ("mine/skewed", "my_prox", "--seed", "1")
    explained = workbench.fedrepro("why", *run)
    assert "would not make it again" in explained.stdout
    again = workbench.fedrepro("run", *run)
    assert again.returncode == 0 and "done before" in again.stdout, again.stdout


def test_what_a_user_changes_is_made_again(workbench: Workbench) -> None:
    workbench.edit("methods/my_prox.py", "self.mu / 2", "self.mu / 3")
    due = workbench.due()
    runs = {name for name in due if name.startswith("results/runs/")}
    assert runs and all("my_prox" in name for name in runs)
