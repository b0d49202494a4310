"""What is made again, and what is not, when runs are given what others left."""

from pathlib import Path

import pytest

from support.given_experiment import EXPERIMENT
from support.given_run import METHODS
from support.project import CONFIG, Project

RUNS = "results/runs/ima"
MAKER = f"{RUNS}/maker/maker/seed0/manifest.json"
JUDGES = f"{RUNS}/judges/judges/seed1/manifest.json"
TAUGHT = f"{RUNS}/taught/taught/seed1/manifest.json"
FEDAVG = f"{RUNS}/taught/fedavg/seed1/manifest.json"
WITH = {"FEDREPRO_METHODS": str(METHODS)}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.make(tmp_path_factory.mktemp("given") / "project")
    (project.root / "config/config.yaml").write_text(CONFIG, encoding="utf-8")
    project.experiment.write_text(EXPERIMENT, encoding="utf-8")
    called = project.snakemake(TAUGHT, FEDAVG, **WITH)
    assert called.returncode == 0, called.stdout
    return project


def due(project: Project) -> set[str]:
    return project.due(TAUGHT, FEDAVG, **WITH)


def test_all_that_is_given_is_made_first_and_once(given: Project) -> None:
    for run in (MAKER, JUDGES, TAUGHT, FEDAVG):
        assert (given.root / run).is_file()
    assert due(given) == set()


@pytest.mark.parametrize(
    ("old", "new", "made"),
    [
        ("server_epochs: 1", "server_epochs: 2", {TAUGHT}),
        ("critic_steps: 2", "critic_steps: 3", {MAKER, JUDGES, TAUGHT}),
        ("lr: 0.02", "lr: 0.04", {TAUGHT, FEDAVG}),
    ],
)
def test_what_a_change_makes_again(given: Project, old: str, new: str, made: set[str]) -> None:
    text = given.experiment.read_text(encoding="utf-8")
    try:
        given.edit(given.experiment, old, new)
        assert due(given) == made
    finally:
        given.experiment.write_text(text, encoding="utf-8")


def test_the_command_asks_for_what_is_missing(given: Project, tmp_path: Path) -> None:
    project = given.copy(tmp_path / "project")
    (project.root / MAKER).unlink()
    called = project.fedrepro("run", "ima/judges", "judges", "--seed", "1", **WITH)
    assert called.returncode == 2
    assert "results/runs/ima/maker/maker/seed0: " in called.stdout
    assert "expected a finished run: fedrepro run ima/maker maker --seed 0" in called.stdout
