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


def test_printed_numbers_come_with_the_package_where_the_workbench_has_none(
    tmp_path: Path,
) -> None:
    assert published.load(tmp_path).cells == published.load(ROOT).cells
