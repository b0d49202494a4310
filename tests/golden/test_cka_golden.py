"""Linear CKA as in FedFA's released CKA.py (commit e4aa421)."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedrepro.papers.ima.decomposition_of_runs import linear_cka, mean_cka
from support.refusals import refused

GOLDEN = json.loads((Path(__file__).parent / "cka.json").read_text())


def features(name: str) -> Tensor:
    return torch.tensor(GOLDEN[name], dtype=torch.float64)


def test_linear_cka() -> None:
    x, y, turned = features("X"), features("Y"), features("X_rotated_scaled")
    assert linear_cka(x, y) == pytest.approx(GOLDEN["linear_XY"], abs=1e-12)
    assert linear_cka(y, x) == pytest.approx(GOLDEN["linear_XY"], abs=1e-12)
    assert linear_cka(x, x) == pytest.approx(GOLDEN["linear_XX"], abs=1e-12)
    assert linear_cka(x, turned) == pytest.approx(GOLDEN["linear_XZ"], abs=1e-12)
    mean = (2 * GOLDEN["linear_XY"] + 1) / 3
    assert mean_cka([x, y, turned]) == pytest.approx(mean, abs=1e-12)


def test_what_is_refused() -> None:
    with refused(names=("1", "models")):
        mean_cka([features("X")])
    with refused(names=("samples", "same")):
        linear_cka(features("X"), features("Y")[1:])
