"""One cluster for all tests here; without root or SLURM they are skipped, which says why."""

from collections.abc import Iterator
from pathlib import Path

import cluster
import pytest

from support.project import Project


@pytest.fixture(scope="session", autouse=True)
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    reason = cluster.why_not()
    if reason:
        pytest.skip(reason)
    # Not under pytest's own folder, which only its owner may enter: munge wants to be reached.
    with cluster.running(Path("/var/tmp/fedrepro-slurm")):
        yield


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose data are ready, so that a test's jobs are about what it tests."""
    project = Project.make(tmp_path_factory.mktemp("made") / "project")
    partition = "results/partitions/mnist5k/iid-clients4/seed{}.npz"
    called = project.snakemake(*map(partition.format, (1, 2, 3)))
    assert called.returncode == 0, called.stdout
    return project


@pytest.fixture
def project(prepared: Project, tmp_path: Path) -> Project:
    return prepared.copy(tmp_path / "project")
