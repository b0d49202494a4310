"""IMA's plane through three models, from its equations: as unit vectors and as printed (B15)."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedrepro.analysis.landscape import coordinates, plane, point
from fedrepro.engine.tree import Tree

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "landscape.json").read_text())


def model(name: str) -> Tree:
    return {"weight": torch.tensor(GOLDEN[name], dtype=torch.float64)}


def assert_same(ours: Tree, theirs: list[float]) -> None:
    expected: Tensor = torch.tensor(theirs, dtype=torch.float64)
    torch.testing.assert_close(ours["weight"], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("basis", ["unit", "paper"])
def test_plane(basis: str) -> None:
    first, second, third = (model(name) for name in ("w1", "w2", "w3"))
    directions = plane(first, second, third, unit=basis == "unit")
    for ours, name in zip(directions, ("u", "v"), strict=True):
        assert_same(ours, GOLDEN[f"{name}_{basis}"])
    mean = {"weight": (first["weight"] + second["weight"] + third["weight"]) / 3}
    models = {"w1": first, "w2": second, "w3": third, "avg": mean}
    for name, place in GOLDEN[f"coords_{basis}_basis"].items():
        assert coordinates(models[name], first, directions) == pytest.approx(place, abs=1e-13)
        assert_same(point(first, directions, *place), models[name]["weight"].tolist())
    assert_same(point(first, directions, 0.5, 0.25), GOLDEN[f"point_{basis}_a0_5_b0_25"])


def test_line() -> None:
    """L(beta w1 + (1 - beta) w2) is a row of the surface seen from w2."""
    second = model("w2")
    towards_first = {"weight": model("w1")["weight"] - second["weight"]}
    for beta, expected in zip(GOLDEN["interp_betas"], GOLDEN["interp"], strict=True):
        assert_same(point(second, (towards_first, towards_first), beta, 0.0), expected)
