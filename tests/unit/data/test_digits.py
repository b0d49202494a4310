"""Numbers that float32 makes equal are refused, wherever they come from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

import fedrepro as fr
from fedrepro.data.readers.arrays import as_float32
from fedrepro.support.errors import UserError
from support.refusals import refused
from unit.data.test_own_data import prepared

Y = np.arange(60) % 2
TIMES = 1_700_000_000 + np.random.default_rng(0).permutation(60)


@given(st.integers(0, 2**31), st.floats(0, 14), st.sampled_from([1, 60, 1e-3]), st.integers(2, 300))
def test_what_is_kept_has_its_differences(seed: int, power: float, unit: float, rows: int) -> None:
    """Whatever the offset: nearly all values differ, or by less than their spread would show."""
    assume(unit > 1e-12 * 10**power)  # otherwise they may differ by the rounding of sums
    values = unit * np.random.default_rng(seed).integers(0, 500, rows) + 10**power
    numbers = np.unique(np.round(values, 6))
    spread = float(np.subtract(*np.quantile(numbers, [0.75, 0.25])))
    try:
        kept = as_float32("x", "x", values[:, None])
    except UserError:
        assert np.spacing(np.float32(values.max())) > 0.01 * spread
        return
    fine = np.abs(kept[:, 0] - values).max() <= 0.02 * spread
    assert fine or len(np.unique(kept)) >= 0.85 * len(numbers)


@given(st.integers(0, 2**31), st.floats(-6, 6))
def test_usual_numbers_are_kept(seed: int, power: float) -> None:
    rng = np.random.default_rng(seed)
    columns = [
        rng.normal(size=200), rng.lognormal(0, 3, 200), np.full(200, 0.1), rng.integers(0, 3, 200),
        0.1 + 0.2 * (rng.random(200) < 0.5) - 0.2 * (rng.random(200) < 0.5),
        rng.random(200) * 1e6 * (rng.random(200) < 0.05),
    ]  # fmt: skip
    values = 10**power * np.stack(columns, 1)
    assert np.array_equal(as_float32("x", "x", values), values.astype(np.float32))


def test_sums_that_should_be_equal_are_no_different_numbers() -> None:
    values = np.array([0.1 + 0.2, 0.3, 0.5 - 0.2, 1.1 * 3, 3.3] * 4)[:, None]
    assert len(np.unique(values)) > len(np.unique(as_float32("x", "x", values)))


@pytest.mark.parametrize("standardise", [True, False, "per_client"])
def test_a_table_s_columns(tmp_path: Path, standardise: Any) -> None:
    ages = [20 + row for row in range(60)]
    rows = [f"{time},{age},{y},{'abc'[y]}" for time, age, y in zip(TIMES, ages, Y, strict=True)]
    keys = {"group": "g", "standardise": standardise}
    if standardise is True:  # in float64, before
        assert len(np.unique(prepared(tmp_path, "t,a,y,g", rows, **keys).train.x[:, 0])) == 60
        rows[7] = rows[7].replace(",27,", ",9999999999,")
        with refused(key="a", names="60"):
            prepared(tmp_path, "t,a,y,g", rows, **keys)
        return
    with refused(key="t", names="60"):
        prepared(tmp_path, "t,a,y,g", rows, **keys)


class Shifted(nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.linear, self.by = nn.Linear(1, 1), by

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x - self.by)
        return out


def test_targets_of_a_program_and_of_a_table(tmp_path: Path) -> None:
    x = np.arange(60, dtype=np.float32)[:, None] / 60
    for times in (TIMES, TIMES.astype(np.float64)):
        with refused(key="clients.0.y"):
            fr.train("fedavg", Shifted(0), [(x, times)], rounds=1, task="regression")
    rows = [f"{value},{time}" for value, time in zip(x[:, 0], TIMES, strict=True)]
    with refused(file="train", key="y"):
        prepared(tmp_path, "x,t", rows, label="t", task="regression")


@pytest.mark.parametrize("x", [2**24 + Y, 2**40 + Y, 1e9 + Y])
def test_features_of_a_program(x: Any) -> None:
    with refused(key="x"):
        fr.train("fedavg", lambda shape, outputs: Shifted(2**24), [(x[:, None], Y)], rounds=1)
