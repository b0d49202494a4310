"""The examples in docstrings of `import fedrepro as fr` run, and give what they show."""

import doctest
from pathlib import Path

import numpy as np
import pytest
import torch

import fedrepro as fr

X, Y = np.eye(3, dtype="float32"), np.arange(3)
# What the example of `train` defines; the others refer to it.
DEFINED = {
    "torch": torch,
    "x": X,
    "y": Y,
    "clients": [(X[[0, 1] * 20], Y[[0, 1] * 20]), (X[[1, 2] * 20], Y[[1, 2] * 20])],
}


@pytest.mark.parametrize("name", fr.__all__)
def test_the_example_of_a_function_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder(recurse=False)
    names = {} if name == "train" else dict(DEFINED)
    (example,) = finder.find(getattr(fr, name), name, globs=names)
    # pandas puts spaces after a heading, which no file should have.
    failed, tried = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example)
    assert tried > 1
    assert not failed
