"""A failed run, and wrong experiment files, as a person at the terminal meets them."""

import json
from typing import Any

import pytest

from support.project import Project

PAGE = "reports/site/ima/table_1.html"

BROKEN = '''\
"""A method that fails."""

from dataclasses import dataclass

from fedrepro.engine.method import Method


@dataclass(frozen=True)
class Broken(Method):
    """Nobody's."""

    def broadcast(self, ctx, server):
        raise ArithmeticError("on purpose")
'''


def cells(project: Project, item: str) -> list[dict[str, Any]]:
    table = project.root / f"results/tables/demo/ima/{item}.json"
    found: list[dict[str, Any]] = json.loads(table.read_text(encoding="utf-8"))["cells"]
    return found


def test_a_failed_run_leaves_a_hole_and_the_rest_goes_on(project: Project) -> None:
    methods = project.root / "mine"
    methods.mkdir()
    (methods / "broken.py").write_text(BROKEN, encoding="utf-8")
    project.edit(
        project.experiment,
        "{label: FedProx, method: fedprox}",
        "{label: Broken, method: broken}\n      - {label: SCAFFOLD, method: scaffold}",
    )

    called = project.snakemake(PAGE, "--keep-going", FEDREPRO_METHODS=str(methods))

    assert called.returncode != 0
    assert "ArithmeticError: on purpose" in called.stdout
    assert "Traceback" not in called.stdout
    log = "results/logs/run/ima/tiny/broken/seed1.log"
    assert f"seed1/manifest.json; see {log}" in called.stdout
    assert "Traceback" in (project.root / log).read_text(encoding="utf-8")
    assert (project.root / "results/runs/ima/tiny/scaffold/seed1/manifest.json").is_file()
    assert "failed" in (project.root / PAGE).read_text("utf-8")
    first, hole, last = cells(project, "table_1")
    assert first["paper"]["hole"] is None
    assert "ArithmeticError" in hole["paper"]["hole"]
    assert last["paper"]["hole"] is None

    good = BROKEN.replace(
        'raise ArithmeticError("on purpose")', "return super().broadcast(ctx, server)"
    )
    (methods / "broken.py").write_text(good, encoding="utf-8")
    called = project.snakemake(PAGE, FEDREPRO_METHODS=str(methods))
    assert called.returncode == 0, called.stdout
    first, mended, _ = cells(project, "table_1")
    assert first["paper"]["mean"] == mended["paper"]["mean"]
    assert "on purpose" not in (project.root / PAGE).read_text("utf-8")
    assert project.due(PAGE, FEDREPRO_METHODS=str(methods)) == set()


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "method: fedprox}",
            "method: fedprax}",
            "tables.table_1.columns.FedProx.method: method fedprax: part: 'fedprax': ",
        ),
        ("rounds: 2\n", "rounds: -2\n", "settings.tiny.rounds: -2: expected a whole number"),
    ],
)
def test_a_mistake_in_an_experiment_file_is_one_line(
    project: Project, old: str, new: str, line: str
) -> None:
    project.edit(project.experiment, old, new)
    called = project.snakemake("-n")
    assert called.returncode == 2
    said = called.stdout.splitlines()
    assert said[0].startswith("Using workflow specific profile")
    assert len(said) == 2
    assert said[1].startswith(f"fedrepro: config/experiments/ima.yaml: {line}")


def test_more_shards_than_samples_is_one_line(project: Project) -> None:
    project.edit(
        project.experiment,
        "{scheme: iid, clients: 4}",
        "{scheme: shards, clients: 3000, classes_per_client: 2}",
    )
    called = project.snakemake("results/runs/ima/tiny/fedavg/seed1/manifest.json")
    assert called.returncode != 0
    assert "Traceback" not in called.stdout
    said = [line for line in called.stdout.splitlines() if line.startswith("fedrepro: ")]
    assert "shards" in said[0]
    assert said[-1].startswith("fedrepro: failed: results/partitions/mnist5k/shards-clients3000")
