"""Files that a code host reads: forms, checks and promises name what there is."""

import ast
import re
import shutil
from pathlib import Path
from typing import get_args

import pytest
import yaml

from fedrepro.support.plugins import Kind
from support.git import commit_all, git
from support.places import ROOT

FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
CHECKS = ROOT / ".github/workflows/check.yml"
RELEASE = ROOT / ".github/workflows/release.yml"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_a_form_asks_for_something_and_has_labels_for_all_of_it(form: Path) -> None:
    content = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert content["name"] and content["description"]
    assert len({field["id"] for field in content["body"]}) == len(content["body"])
    assert all(field["attributes"]["label"] for field in content["body"])
    assert any(field.get("validations", {}).get("required") for field in content["body"])


def test_the_checks_call_what_there_is() -> None:
    targets = {*re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    jobs = yaml.safe_load(CHECKS.read_text(encoding="utf-8"))["jobs"]
    called = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    made = [command.split()[1] for command in called if command.startswith("make ")]
    assert {"check", "setup", "pythons"} <= {*made} <= targets
    others = [command for command in called if not command.startswith(("make ", ".tools/bin/uv "))]
    assert all(command.startswith('PATH="$PWD/.venv/bin:$PATH" ') for command in others)
    asked = (ROOT / ".github/pull_request_template.md").read_text(encoding="utf-8")
    assert {*re.findall(r"`make ([a-z-]+)`", asked)} <= targets


def test_a_release_is_published_once_its_wheel_has_made_a_run() -> None:
    jobs = yaml.safe_load(RELEASE.read_text(encoding="utf-8"))["jobs"]
    tried = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert (ROOT / tried[0].split()[0]).exists()
    assert any("fedrepro run mine/skewed my_prox" in each for each in tried)
    assert {job.get("needs") for name, job in jobs.items() if name != "build"} == {"build"}


def test_who_cites_this_is_told_of_papers_or_where_they_are() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert "reports/papers/references.yaml" in citation["message"]
    known = yaml.safe_load((ROOT / "reports/papers/references.yaml").read_text(encoding="utf-8"))
    titles = {known["entries"][key]["title"] for key in known["papers"].values()}
    assert {each["title"] for each in citation["references"]} <= titles


def test_no_command_advises_make() -> None:
    """A workbench and an installed wheel have no Makefile; pages and docs speak of a clone."""
    for path in (ROOT / "src").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        texts = {
            id(node): node.value
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        for node in nodes:
            if isinstance(node, ast.Expr):
                texts.pop(id(node.value), None)  # a docstring
        assert not [text for text in texts.values() if "`make " in text], path


def test_what_runs_code_is_named() -> None:
    said = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    first = said.partition("- **A plug-in**")[2].partition(" of a workbench")[0]
    assert {*re.findall(r"`(\w+)/`", first)} == {*get_args(Kind)}


def test_the_configuration_s_readme_names_all_of_it() -> None:
    said = (ROOT / "config/README.md").read_text(encoding="utf-8")
    there = {path.name + "/" * path.is_dir() for path in (ROOT / "config").iterdir()}
    named = {
        name.partition("/")[0] + "/" * ("/" in name)
        for name in re.findall(r"^\| `(\S+)`", said, re.M)
    }
    assert named == there - {"README.md"}


def test_text_has_the_same_bytes_in_every_clone(tmp_path: Path) -> None:
    """Also where git is told to write CRLF, with which scripts are "not found"."""
    made, clone = tmp_path / "made", tmp_path / "clone"
    made.mkdir()
    (made / "script").write_bytes(b"#!/bin/sh\ntrue\n")
    (made / "binary").write_bytes(b"PAR1\x00\r\n\n")
    shutil.copyfile(ROOT / ".gitattributes", made / ".gitattributes")
    commit_all(made)
    git(tmp_path, "-c", "core.autocrlf=true", "clone", "--quiet", str(made), str(clone))
    for name in ("script", "binary"):
        assert (clone / name).read_bytes() == (made / name).read_bytes()


def test_no_folder_of_tests_is_left_out(pytestconfig: pytest.Config) -> None:
    """Patterns without a slash leave out folders of that name at any depth."""
    files = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}
    # `make bench`, `make test-slurm`, and CI's job `image`.
    elsewhere = {Path("tests") / name for name in ("benchmarks", "slurm", "container")}
    names = {pattern for pattern in pytestconfig.getini("norecursedirs") if "/" not in pattern}
    out = {path for path in files if {*path.parts} & names and not {*path.parents} & elsewhere}
    assert out == set()
