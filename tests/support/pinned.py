"""Numbers that code of ours gave once, in ``tests/golden``: what is landed was computed with it.

They say nothing about who is right, as oracles and the authors' numbers do, but a change of any
expression behind them shows. In float64, they are the same on all machines but for the last digits.
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedrepro.engine import tree

FOLDER = Path(__file__).parents[1] / "golden"
WRITE = "PIN_NUMBERS"  # with this environment variable, files are written instead of compared


def summary(what: Any) -> list[float]:
    """The number of values, their norm, and their product with numbers that differ by place."""
    values = np.asarray(
        what.detach().double().numpy() if isinstance(what, torch.Tensor) else what, np.float64
    ).ravel()
    known = np.where(np.isfinite(values), values, 0.0)
    places = np.cos(np.arange(len(values)) ** 2 + 1.0)
    missing = float(np.count_nonzero(values != known))
    return [float(len(values)), missing, float(np.linalg.norm(known)), float(places @ known)]


def of_tree(what: Mapping[str, Any]) -> dict[str, list[float]]:
    return {name: summary(leaf) for name, leaf in tree.named(dict(what))}


def check(file: str, name: str, numbers: Any, rel: float = 1e-6) -> None:
    """Compare numbers with those that a file has under a name."""
    path = FOLDER / file
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    as_read = json.loads(json.dumps(numbers))
    if WRITE in os.environ:
        text = json.dumps({**known, name: _rounded(as_read)}, sort_keys=True, indent=None)
        path.write_text(text.replace('}, "', '},\n"') + "\n", encoding="utf-8")
        return
    _compare(as_read, known[name], name, rel)


def _rounded(what: Any) -> Any:
    if isinstance(what, dict):
        return {key: _rounded(each) for key, each in what.items()}
    if isinstance(what, list):
        return [_rounded(each) for each in what]
    return float(f"{what:.9g}") if isinstance(what, float) and math.isfinite(what) else what


def _compare(found: Any, wanted: Any, place: str, rel: float) -> None:
    assert isinstance(wanted, type(found)) or {type(found), type(wanted)} <= {int, float}, place
    if isinstance(found, dict):
        assert found.keys() == wanted.keys(), place
        for key in found:
            _compare(found[key], wanted[key], f"{place}: {key}", rel)
    elif isinstance(found, list):
        assert len(found) == len(wanted), place
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            _compare(one, other, f"{place}[{number}]", rel)
    elif isinstance(found, float):
        assert found == pytest.approx(wanted, rel=rel, abs=1e-9, nan_ok=True), place
    else:
        assert found == wanted, place
