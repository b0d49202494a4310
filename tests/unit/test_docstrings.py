"""The examples in docstrings run, and give what they show."""

import doctest
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import fedrepro as fr
from support.places import ROOT

SOURCE = ROOT / "src"
X, Y = np.eye(3, dtype="float32"), np.arange(3)
# What the example of `train` defines; the others refer to it.
DEFINED = {
    "torch": torch,
    "x": X,
    "y": Y,
    "clients": [(X[[0, 1] * 20], Y[[0, 1] * 20]), (X[[1, 2] * 20], Y[[1, 2] * 20])],
}


def with_examples() -> list[str]:
    """The modules outside of the interface whose docstrings have examples."""
    files = sorted((SOURCE / "fedrepro").rglob("*.py"))
    shown = [file for file in files if ">>> " in file.read_text(encoding="utf-8")]
    names = [".".join(file.relative_to(SOURCE).with_suffix("").parts) for file in shown]
    return [name for name in names if not name.startswith("fedrepro.api.")]


def failed_and_tried(example: doctest.DocTest) -> tuple[int, int]:
    # pandas and numpy put spaces after a heading and in a column, which no file should have.
    return doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example)[:2]


@pytest.mark.parametrize("name", fr.__all__)
def test_the_example_of_a_function_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder(recurse=False)
    names = {} if name == "train" else dict(DEFINED)
    (example,) = finder.find(getattr(fr, name), name, globs=names)
    failed, tried = failed_and_tried(example)
    assert tried > 1
    assert not failed


@pytest.mark.parametrize("name", with_examples())
def test_the_examples_of_a_module_run_by_themselves(name: str) -> None:
    found = doctest.DocTestFinder().find(import_module(name), globs={})
    examples = [each for each in found if each.examples]
    assert examples
    assert not any(failed_and_tried(each)[0] for each in examples)
