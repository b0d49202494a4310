"""What a partition is made from: data whose array of a kind is another make it another."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedrepro.data.dataset import Dataset
from fedrepro.data.partition.partition import Partition
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


def held(*clients: list[int], test: tuple[list[int], ...] = ()) -> Partition:
    """A partition in which clients hold these rows."""
    train, tested = ([np.array(rows, np.int64) for rows in part] for part in (clients, test))
    none = np.zeros((len(clients), 3), np.int64)
    some = (tested, none) if test else (None, None)
    return Partition(train, some[0], none, some[1], {}, "by-hand", 0)


def test_the_digest_of_a_partition_is_of_who_holds_which_sample() -> None:
    others = [
        held([0, 1, 2]),
        held([0, 1], [2]),
        held([0], [1, 2]),
        held([], [0, 1, 2]),
        held([0, 1, 2], []),
        held([2], [0, 1]),
        held([1, 0], [2]),  # mini-batches are drawn by place
        held([0, 1], [2], test=([3], [4])),
        held([0, 1], [2], test=([4], [3])),
        held([0, 1], [2], test=([3, 4], [])),
    ]
    digests = [inputs.digest_of(each) for each in others]
    assert len(set(digests)) == len(digests)
    again = held([0, 1], [2])
    again.spec["scheme"], again.train_counts[:] = "other", 9  # which say nothing of who holds what
    assert inputs.digest_of(again) == digests[1]


def test_what_identifies_a_partition_counts_its_clients() -> None:
    """And the empty cells of a table if clients hold rows out that are in its statistics."""
    whole = replace(tiny_run.dataset(), meta={"missing_sha256": "m"})
    for partition in (held([0, 1], [2]), held([0, 1], [2], [5], test=([3], [4], [6]))):
        digest = inputs.digest_of(partition)
        clients = len(partition.train)
        assert inputs.held_by(partition, whole) == {"partition_sha256": digest, "clients": clients}
    fitted = replace(whole, standardised=True)
    partition = held([0, 1], [2], test=([3], [4]))
    assert inputs.held_by(partition, fitted)["missing_sha256"] == "m"
    assert "missing_sha256" not in inputs.held_by(held([0, 1], [2]), fitted)


def test_each_fact_of_the_data_is_stated_under_its_own_key() -> None:
    facts: dict[str, Any] = {"mean": (1.0,), "std": (2.0, 3.0), "client_standardised": (0, 1)}
    data = replace(dataset(), **facts, meta={"content_sha256": "x"})
    stated = inputs.data_of(data, {"clients": 3}, "w", {"a": "y"})
    assert stated == {
        "content_sha256": "x", "task": "classification", "classes": 3, "clients": 3,
        "mean": [1.0], "std": [2.0, 3.0], "client_standardised": [0, 1], "weights_sha256": "w",
        "given": {"a": "y"},
    }  # fmt: skip
    assert inputs.data_of(dataset(), {}, None, {}).keys().isdisjoint({"given", "clients"})
    assert inputs.data_of(dataset(), {}, None, {})["mean"] is None


def spec_of(**keys: Any) -> Any:
    return tiny_run.run_spec(partition={"scheme": "iid", "clients": 6, **keys}).setting


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, None),
        ({"clients": 5}, ("clients 6 ", " 5")),
        ({"test_fraction": 0.2}, ("test_fraction 0.0 ", " 0.2")),
        ({"test_fraction": 0.25, "clients": 3}, ("clients 6 ", " 3")),
    ],
)
@pytest.mark.parametrize("recorded", [True, False])
def test_a_partition_of_another_scheme_is_another_with_a_record_or_without(
    keys: dict[str, Any], words: tuple[str, str] | None, recorded: bool
) -> None:
    stored = inputs.make_partition_of(spec_of(), 1, dataset(), NONE)
    assert stored.made_with == inputs.partition_record(spec_of(), dataset(), NONE)
    stored = stored if recorded else replace(stored, made_with={})
    found = inputs.partition_differences(stored, spec_of(**keys), 1, dataset(), NONE)
    assert len(found) == (words is not None)
    if words:
        assert all(word in found[0].recorded for word in words)
        assert found[0].recorded.count(" instead of ") == len(keys)


def test_a_partition_is_made_of_groups_and_of_what_the_data_hold_out() -> None:
    train = replace(tiny_run.dataset().train, group=np.arange(150) // 30)
    setting, marked = (
        tiny_run.run_spec(partition={"scheme": "natural", "given_test": given}).setting
        for given in (False, True)
    )
    grouped = replace(dataset(), train=train)
    made = inputs.make_partition_of(setting, 1, grouped, NONE)
    assert [sorted(rows) for rows in made.train] == np.arange(150).reshape(5, 30).tolist()
    out = replace(grouped, train=replace(train, held_out=np.arange(150) % 10 == 0))
    made = inputs.make_partition_of(marked, 1, out, NONE)
    assert made.test is not None
    assert sorted(np.concatenate(made.test)) == list(range(0, 150, 10))
    assert {*np.concatenate(made.train)} == {*range(150)} - {*range(0, 150, 10)}


def test_a_partition_without_a_record_counts_if_it_is_the_one_that_is_made_now() -> None:
    """Whatever labels are said to be; one with a record is compared by that alone."""
    old = replace(inputs.make_partition_of(spec_of(), 1, dataset(), NONE), made_with={})
    for seed, others in itertools.product((1, 2), ("", "train_y")):
        found = inputs.partition_differences(old, spec_of(), seed, dataset(others), NONE)
        assert bool(found) is (seed != 1)
    labels = np.roll(tiny_run.dataset().train.y, 1)
    train = replace(tiny_run.dataset().train, y=labels)
    moved = replace(dataset(), train=train)
    assert inputs.partition_differences(old, spec_of(), 1, moved, NONE)
    known = inputs.make_partition_of(spec_of(), 1, dataset(), NONE)
    assert not inputs.partition_differences(known, spec_of(), 2, moved, NONE)
    for key in ("code", "labels"):
        other = replace(known, made_with={**known.made_with, key: "another"})
        (found,) = inputs.partition_differences(other, spec_of(), 1, dataset(), NONE)
        assert (found.key, found.recorded) == (f"partition {key}", "another")
