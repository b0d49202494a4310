"""The rules as a module of another Snakefile, such as `snakedeploy deploy-workflow` writes."""

from pathlib import Path

from fedrepro.report.papers import published
from support.places import ROOT
from support.project import MODULE, Project


def test_the_rules_are_a_module_whose_config_is_read_twice(tmp_path: Path) -> None:
    project = Project.make(tmp_path / "deployed")
    (project.root / "Snakefile").write_text(MODULE, encoding="utf-8")
    made = project.due("--config", "scale=paper")
    assert any(file.startswith("results/tables/paper/") for file in made)
    assert not any("demo" in file for file in made)


BROKEN = '''
"""A method that fails."""

from dataclasses import dataclass

from fedrepro.engine.method import Method


@dataclass(frozen=True)
class Broken(Method):
    """Nobody's."""

    def broadcast(self, ctx, server):
        raise ArithmeticError("on purpose")
'''

HOOKS = """
onerror:
    open("told", "w").close()

rule own:
    output: "own.txt"
    shell: "false"
"""


def test_after_a_failure_a_module_s_pages_are_rendered_whatever_its_rules_are_called(
    tmp_path: Path,
) -> None:
    """And what the user's Snakefile does then is done too, also about rules without a log."""
    project = Project.make(tmp_path / "deployed")
    imported = MODULE.replace("from fedrepro", "from fedrepro as theirs_*")
    (project.root / "Snakefile").write_text(f"{imported}{HOOKS}", encoding="utf-8")
    (project.root / "methods").mkdir()
    (project.root / "methods/broken.py").write_text(BROKEN, encoding="utf-8")
    project.edit(
        project.experiment,
        "{label: FedProx, method: fedprox}",
        "{label: FedProx, method: fedprox}\n      - {label: Broken, method: broken}",
    )
    page = "reports/site/ima/table_1.html"
    called = project.snakemake(
        page, "own.txt", "--keep-going", FEDREPRO_METHODS=str(project.root / "methods")
    )
    assert called.returncode != 0
    assert "Traceback" not in called.stdout
    assert "localrules" not in called.stdout
    assert (project.root / "told").exists()
    assert (project.root / page).exists()


def test_printed_numbers_come_with_the_package_where_the_workbench_has_none(
    tmp_path: Path,
) -> None:
    assert published.load(tmp_path).cells == published.load(ROOT).cells
