"""What a partition is made from: data whose array of a kind is another make it another."""

from dataclasses import replace

import pytest

from fedrepro.data.dataset import Dataset
from fedrepro.provenance import inputs
from fedrepro.support.plugins import NONE
from support import tiny_run

ARRAYS = ("train_x", "train_y", "train_group", "train_held_out", "train_missing", "test_y")
DECIDE = {"train_y", "train_group", "train_held_out"}  # who holds which sample


def dataset(other: str = "") -> Dataset:
    """Prepared data whose arrays all have a digest, of which one may be another."""
    splits: dict[str, dict[str, dict[str, dict[str, str]]]] = {}
    for name in ARRAYS:
        arrays = splits.setdefault(name.partition("_")[0], {"arrays": {}})["arrays"]
        arrays[name] = {"sha256": f"{'another' if name == other else 'a'} {name}"}
    return replace(tiny_run.dataset(), meta={"splits": splits})


@pytest.mark.parametrize("array", ARRAYS)
def test_a_partition_is_of_the_arrays_that_decide_who_holds_a_sample(array: str) -> None:
    setting = tiny_run.run_spec().setting
    made = replace(
        tiny_run.partition(), made_with=inputs.partition_record(setting, dataset(), NONE)
    )
    assert not inputs.partition_differences(made, setting, 1, dataset(), NONE)
    listed = inputs.partition_differences(made, setting, 1, dataset(array), NONE)
    assert bool(listed) == (array in DECIDE)
