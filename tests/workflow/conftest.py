"""One finished project for all tests here, also when several processes run them."""

import fcntl
from pathlib import Path

import pytest

from support.project import Project


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Project:
    """A small project in which everything has been made. Tests change copies of it."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent  # the same for all processes
    root = shared / "finished"
    with (shared / "finished.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            project = Project.make(root)
            called = project.snakemake()
            assert called.returncode == 0, called.stdout
    return Project(root)


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    """A copy of the finished project."""
    return finished.copy(tmp_path / "project")
