"""Fingerprints follow what code does, not how it is written."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedrepro.methods import _registry as registry
from fedrepro.run import fingerprint
from support.places import ROOT

RUN = {"composition": "ima+fedprox", "model": "logistic"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with three modules in place of ours."""
    root = tmp_path / "fedrepro"
    (root / "part").mkdir(parents=True)
    (root / "__init__.py").write_text('"""Top."""\n__version__ = "1"\n')
    (root / "part/__init__.py").write_text("")
    (root / "part/leaf.py").write_text("def leaf():\n    return 1\n")
    (root / "part/sister.py").write_text("from . import leaf\nfrom .. import far\n")
    (root / "far.py").write_text("import math\n")
    (root / "apart.py").write_text("x = 1\n")
    (root / "start.py").write_text(
        '"""Doc."""\n\ndef run(a, b):\n    """Doc."""\n    from fedrepro.part import sister\n'
        "    return a + b\n"
    )
    monkeypatch.setattr(fingerprint, "PACKAGE", root)
    return root


def changed(root: Path, file: str, text: str) -> bool:
    """Whether the fingerprint of the module `start` changes when a file gets a new text."""

    def now() -> str:
        for cached in (fingerprint._parse, fingerprint._imported, fingerprint._digest):
            cached.cache_clear()
        return fingerprint.of_module("fedrepro.start")

    before = now()
    (root / file).write_text(text)
    return now() != before


def test_closure_follows_absolute_relative_and_inner_imports(package: Path) -> None:
    found = fingerprint.closure([package / "start.py"])
    names = {path.relative_to(package).as_posix() for path in found}
    assert names == {
        "__init__.py",
        "start.py",
        "part/__init__.py",
        "part/sister.py",
        "part/leaf.py",
        "far.py",
    }


@pytest.mark.parametrize(
    "text",
    [
        "# a comment\ndef run(a,b):\n  from fedrepro.part import sister\n\n  return (a+b)  # sum\n",
        '"""Other words."""\ndef run(\n    a,\n    b,\n):\n    """Other."""\n'
        '    from fedrepro.part import sister\n    "a remark"\n    return a + b\n',
    ],
)
def test_comments_formatting_and_docstrings_change_nothing(package: Path, text: str) -> None:
    assert not changed(package, "start.py", text)


def test_code_changes_count_wherever_they_are_imported_from(package: Path) -> None:
    assert changed(package, "part/leaf.py", "def leaf():\n    return 2\n")
    assert changed(package, "part/__init__.py", "x = 1\n")
    assert not changed(package, "apart.py", "x = 2\n")
    assert not changed(package, "__init__.py", '__version__ = "2"\n')


def test_a_run_depends_on_its_own_methods_and_server_optimizer_only() -> None:
    def files(composition: str) -> set[str]:
        start = fingerprint.module_path("fedrepro.run.runner")
        found = fingerprint.closure([start, *registry.module_files(composition)])
        return {path.stem for path in found if path.parent.name in ("methods", "server")}

    assert {"ima", "fedprox"} <= files("ima+fedprox")
    assert not {"ima", "fedprox", "scaffold", "fedadam", "fedyogi"} & files("fedavg")
    assert "fedadam" in files("fedavg+fedadam")
    assert "fedyogi" not in files("fedavg+fedadam")


@pytest.mark.parametrize("name", ["report", "cli", "workflow", "analysis"])
def test_no_run_depends_on_reports_and_commands(name: str) -> None:
    found = fingerprint.closure([fingerprint.module_path("fedrepro.run.runner")])
    inside = {path.relative_to(fingerprint.PACKAGE).parts[0] for path in found}
    assert name not in inside


def test_execution_is_no_part_of_what_a_run_is() -> None:
    assert fingerprint.of_config({**RUN, "device": "cpu"}) == fingerprint.of_config(
        {**RUN, "device": "cuda", "checkpoint_every": 3}
    )
    assert fingerprint.of_config({**RUN, "seed": 1}) != fingerprint.of_config({**RUN, "seed": 2})


def test_reading_the_configuration_and_fingerprinting_need_no_torch() -> None:
    program = (
        "import sys\n"
        "from fedrepro.config.loading import load\n"
        "from fedrepro.run import fingerprint\n"
        "bench = load()\n"
        "run = bench.table('ima', 'table_1', 'paper').runs[0]\n"
        "fingerprint.of_code(bench.run_config(run.setting, run.method, run.seed))\n"
        "assert not {'torch', 'pandas'} & set(sys.modules)\n"
    )
    root = ROOT
    subprocess.run([sys.executable, "-c", program], cwd=root, check=True)
