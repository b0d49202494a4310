"""The script that seeds bugs: what it changes, and that its lists name what is there."""

import ast
import importlib.util
from pathlib import Path

import pytest

from support.places import ROOT

SOURCE = '''\
"""A text, 1 < 2."""

LIMIT: int = 3


def f(values: list[int], most: int = LIMIT + 0) -> bool:
    """Not this."""
    if most < len(values) and not values:
        raise ValueError(f"{1 + 1}")
    values.sort(key=abs)
    return True
'''


@pytest.fixture(scope="module")
def mutants() -> object:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts/mutants.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_changes(mutants, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    path = mutants.PACKAGE / "room/file.py"
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(SOURCE, encoding="utf-8")
    finder = mutants.Finder(path)
    finder.visit(ast.parse(SOURCE))
    made = {(mutant.was.strip(), mutant.now.strip()) for mutant in finder.found}
    assert made == {
        ("3", "4"),
        ("+", "-"),
        ("0", "1"),
        ("<", "<="),
        ("and", "or"),
        ("values.sort(key=abs)", "pass"),
        ("key=abs", ""),
        ("True", "False"),
    }
    for mutant in finder.found:
        assert mutant.mutated(SOURCE) != SOURCE
        ast.parse(mutant.mutated(SOURCE))


def test_the_sample_is_the_same_every_time(mutants) -> None:
    assert mutants.find(["workflow"]) == mutants.find(["workflow"])


def test_every_room_and_every_test_that_it_names_is_there(mutants) -> None:
    for room, tests in mutants.TESTS.items():
        assert (ROOT / mutants.PACKAGE / room).is_dir()
        for path in tests:
            assert (ROOT / path).exists(), path
