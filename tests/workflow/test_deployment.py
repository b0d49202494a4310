"""Environments of jobs, `--sdm conda` and `--sdm apptainer`, without either command."""

import os
import subprocess
from pathlib import Path

import pytest

from fedrepro.workflow.snakemake_patches import IMAGE
from support.places import ROOT
from support.project import Project

DOWNLOADED = "results/downloads/mnist5k/files.json"
# Runs the command behind the image's name outside of any container.
APPTAINER = f"""#!/bin/sh
test "$1" = --version && exec echo apptainer version 1.3.0
echo "$@" >> called
while test "$1" != {IMAGE}; do shift; done
shift
exec "$@"
"""
PIP = """#!/bin/sh
echo "$@" > called
"""


def stand_in(folder: Path, name: str, text: str) -> str:
    """A PATH on which a command is another one."""
    folder.mkdir()
    (folder / name).write_text(text, encoding="utf-8")
    (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_jobs_run_in_the_image(tmp_path: Path) -> None:
    project = Project.make(tmp_path / "project")
    path = stand_in(tmp_path / "bin", "apptainer", APPTAINER)
    asked = (DOWNLOADED, "--sdm", "apptainer")
    refused = project.snakemake(*asked, PATH=path)
    assert refused.returncode == 2
    (line,) = [line for line in refused.stdout.splitlines() if "fedrepro" in line]
    assert f"{IMAGE}: expected the image" in line
    (project.root / IMAGE).touch()
    made = project.snakemake(*asked, PATH=path)
    assert made.returncode == 0, made.stdout
    assert "fedrepro --log results/logs/download/mnist5k.log download mnist5k" in (
        project.root / "called"
    ).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("source", "installed"),
    [("src/fedrepro/__init__.py", "install -e ."), ("Snakefile", "install /my/wheel.whl")],
)
def test_conda_jobs_have_the_clone_s_code_or_what_is_named(
    tmp_path: Path, source: str, installed: str
) -> None:
    path = stand_in(tmp_path / "bin", "pip", PIP)
    (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / source).touch()
    script = ROOT / "workflow/envs/fedrepro.post-deploy.sh"
    named = {"FEDREPRO": "/my/wheel.whl"}
    subprocess.run(["sh", script], cwd=tmp_path, env={"PATH": path} | named, check=True)
    said = (tmp_path / "called").read_text(encoding="utf-8")
    assert said == f"{installed}\n"
    if source == "Snakefile":  # a package of this name in an index may be a stranger's
        asked = subprocess.run(["sh", script], cwd=tmp_path, env={"PATH": path}, stderr=-1)
        assert asked.returncode and b"FEDREPRO: expected the path or URL of a wheel" in asked.stderr
