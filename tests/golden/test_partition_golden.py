"""Partitions against those that the authors' code makes (tests/golden/README.md)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import RandomState

from fedrepro.data.partition.assigning import dirichlet, grouped_dirichlet, shards
from fedrepro.data.partition.assigning import labels as by_labels

FOLDER = Path(__file__).parent
FEDLAB: dict[str, Any] = json.loads((FOLDER / "partition_fedlab.json").read_text())
FEDDF: dict[str, Any] = json.loads((FOLDER / "partition_feddf.json").read_text())
LABELS = np.array(FEDLAB["targets"])


def lists(clients: list[np.ndarray]) -> list[list[int]]:
    return [indices.tolist() for indices in clients]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_shards_are_fedlabs_with_a_stable_sort(seed: int) -> None:
    golden = FEDLAB[f"shards_12_seed{seed}_stable_sort"]
    assert lists(shards(LABELS, 6, 2, RandomState(seed))) == list(golden.values())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_unstable_shards_hold_the_same_classes(seed: int) -> None:
    golden = FEDLAB[f"shards_12_seed{seed}"].values()
    ours = shards(LABELS, 6, 2, RandomState(seed))
    for mine, theirs in zip(ours, golden, strict=True):
        assert sorted(LABELS[mine]) == sorted(LABELS[theirs])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_dirichlet_is_fedlabs(seed: int) -> None:
    golden = FEDLAB[f"dirichlet0.5_min5_seed{seed}"]
    assert lists(dirichlet(LABELS, 6, 0.5, 5, RandomState(seed))) == list(golden.values())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_labels_are_fedlabs(seed: int) -> None:
    golden = FEDLAB[f"noniid_2labels_seed{seed}"]
    assert lists(by_labels(LABELS, 6, 2, RandomState(seed))) == list(golden.values())


@pytest.mark.parametrize("alpha", [1.0, 10.0])
@pytest.mark.parametrize("seed", [1, 7])
def test_grouped_dirichlet_is_feddfs(alpha: float, seed: int) -> None:
    golden = FEDDF[f"alpha{alpha}_seed{seed}"]
    labels = np.array(FEDDF["targets"])
    ours = grouped_dirichlet(labels, FEDDF["n_workers"], alpha, RandomState(seed))
    assert lists(ours) == golden
