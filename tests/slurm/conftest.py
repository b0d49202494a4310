"""One cluster for all tests here; without root or SLURM they are skipped, which says why.

The tests mostly wait, so they run at the same time. What they share is made by pytest's own
process, whose children find it by name.
"""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import cluster
import pytest

from support.project import Project

MADE = "FEDREPRO_SLURM_PROJECT"  # the folder of the project whose data are ready
RUNNING = pytest.StashKey[ExitStack]()
# Not under pytest's own folder, which only its owner may enter: munge wants to be reached.
STATE = Path("/var/tmp/fedrepro-slurm")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Start the cluster and make what all tests begin with, once."""
    if hasattr(session.config, "workerinput") or cluster.why_not():
        return
    session.config.stash[RUNNING] = stack = ExitStack()
    stack.enter_context(cluster.running(STATE))
    folder = Path(stack.enter_context(TemporaryDirectory()))
    os.environ[MADE] = str(prepared(folder / "project").root)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if RUNNING in session.config.stash:
        session.config.stash[RUNNING].close()


def prepared(root: Path) -> Project:
    """A project whose data are ready, so that a test's jobs are about what it tests."""
    project = Project.make(root)
    partition = "results/partitions/mnist5k/iid-clients4/seed{}.npz"
    called = project.snakemake(*map(partition.format, (1, 2, 3)))
    assert called.returncode == 0, called.stdout
    # Three processes a job import it, and may write no bytecode where Python is told so.
    subprocess.run([sys.executable, "-m", "compileall", "-q", project.root / "src"], check=True)
    return project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    reason = cluster.why_not()
    if reason:
        pytest.skip(reason)
    return Project(Path(os.environ[MADE])).copy(tmp_path / "project")
