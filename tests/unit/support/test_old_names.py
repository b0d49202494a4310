"""Files from before the names of today: old keys are read, old hooks refused with the new name."""

from pathlib import Path

import pytest

from fedrepro.config.loading import load
from fedrepro.engine.method import Method
from fedrepro.methods.registry import compose
from fedrepro.support import plugins
from fedrepro.support.errors import UserError
from fedrepro.support.old_names import (
    OLD_ATTRIBUTES,
    OLD_HOOKS,
    OLD_IMPORTS,
    OLD_KEYS,
    _tell,
    with_new_keys,
)
from support.project import ROOT

HEAD = """from dataclasses import dataclass
from typing import ClassVar
from fedrepro.engine.method import Method
"""
CLASS = """
@dataclass(frozen=True)
class Mine(Method):
    \"\"\"Mine.\"\"\"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(plugins.VARIABLE, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("old", "new"), OLD_HOOKS.items())
def test_a_hook_by_its_old_name_is_refused(folder: Path, old: str, new: str) -> None:
    arguments = "self, rounds" if old == "begins_as" else "self, ctx, *more"
    body = f"    def {old}({arguments}):\n        return None\n"
    (folder / "mine.py").write_text(HEAD + CLASS + body, encoding="utf-8")
    with pytest.raises(UserError, match=rf"mine\.py: Mine\.{old}: is called '{new}' now"):
        compose("mine")


@pytest.mark.parametrize(("old", "new"), OLD_ATTRIBUTES.items())
def test_an_attribute_by_its_old_name_is_refused(folder: Path, old: str, new: str) -> None:
    (folder / "mine.py").write_text(f"{HEAD}{CLASS}    {old}: ClassVar = ()\n", encoding="utf-8")
    with pytest.raises(UserError, match=rf"mine\.py: Mine\.{old}: is called '{new}' now"):
        compose("mine")


def test_names_of_the_authors_own_are_not_refused(folder: Path) -> None:
    body = "    moves: int = 3\n\n    def step(self, size):\n        return size\n"
    (folder / "mine.py").write_text(HEAD + CLASS + body, encoding="utf-8")
    assert vars(compose("mine")[0]) == {"moves": 3}


@pytest.mark.parametrize(
    "line",
    [
        "from fedrepro.engine.method import divergence",
        "from fedrepro.engine.method import Product",
        "from fedrepro.methods.deciding.rule import Decider",
        "from fedrepro.models._registry import build",
    ],
)
def test_an_old_import_is_refused_with_the_new_one(folder: Path, line: str) -> None:
    (folder / "mine.py").write_text(f"{line}\n{HEAD}{CLASS}    pass\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"is called '\S+' now") as refusal:
        compose("mine")
    assert any(f"{new!r} now" in str(refusal.value) for new in OLD_IMPORTS.values())


def test_the_new_names_are_those_of_the_hooks() -> None:
    assert {*OLD_HOOKS.values(), *OLD_ATTRIBUTES.values()} <= vars(Method).keys()
    assert not vars(Method).keys() & {*OLD_HOOKS, *OLD_ATTRIBUTES}


def test_old_keys_are_read_and_told_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    _tell.cache_clear()
    content = {"methods": {"a": {"trunk": "b", "mu": 1}}, "settings": [{"trunk": {"own": 1}}]}
    for _ in range(2):
        found = with_new_keys("experiment", content, "f.yaml")
    assert found == {**content, "methods": {"a": {"parent": "b", "mu": 1}}}
    line = "fedrepro: f.yaml: methods.a.trunk: is called 'parent' now; 'trunk' goes with the next"
    assert capsys.readouterr().err == f"{line} release\n"
    with pytest.raises(UserError, match=r"c\.yaml: own: is called 'plugins' now, which is there"):
        with_new_keys("config", {"own": {}, "plugins": {}}, "c.yaml")


def test_a_workbench_from_before_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _tell.cache_clear()
    for path in (ROOT / "config").rglob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        for names in OLD_KEYS.values():
            for where, new in names.items():
                text = text.replace(f" {new}: ", f" {where[-1]}: ")
        there = tmp_path / path.relative_to(ROOT)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(text, encoding="utf-8")
    with (tmp_path / "config/config.yaml").open("a", encoding="utf-8") as file:
        file.write("\nown: { methods: mine }\n")
    (tmp_path / "mine").mkdir()
    old, new = load(tmp_path), load(ROOT)
    said = capsys.readouterr().err
    assert "config/config.yaml: own: is called 'plugins' now" in said
    assert "'parent' now" in said and "'surrogate_for' now" in said
    assert old.config.plugins.methods == Path("mine")
    for system, experiment in new.experiments.items():
        assert old.experiments[system].model_dump() == experiment.model_dump()
    assert old.datasets == new.datasets
