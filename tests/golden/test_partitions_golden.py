"""Which samples clients had in landed runs, for every scheme and every way of holding samples out.

Whether that is the authors' partition, and what holds for any, have tests of their own.
"""

import hashlib
from typing import Any

import numpy as np
import pytest
from numpy.random import RandomState
from pydantic import TypeAdapter

from fedrepro.data.partition.partition import PartitionSpec, make_partition
from support import pinned

ADAPTER: TypeAdapter[PartitionSpec] = TypeAdapter(PartitionSpec)
COUNTS = (131, 17, 58, 83, 40, 71, 23, 96, 9, 66)  # of classes: no two alike, one nearly empty
GROUPS = (200, 150, 120, 70, 34, 20)  # natural clients: of `minimum`, one has just enough
HELD_OUT = {"test_fraction": 0.15, "validation": 0.17}
STRATIFIED = {**HELD_OUT, "stratified": True}
BASES: tuple[dict[str, Any], ...] = (
    {"scheme": "iid", "clients": 7},
    {"scheme": "shards", "clients": 9, "classes_per_client": 3},
    {"scheme": "paired_shards", "clients": 11},
    {"scheme": "dirichlet", "clients": 6, "alpha": 0.4},
    {"scheme": "dirichlet", "clients": 6, "alpha": 0.7, "minimum": 40},
    {"scheme": "grouped_dirichlet", "clients": 13, "alpha": 0.6},
    {"scheme": "grouped_dirichlet", "clients": 13, "alpha": 0.05},
    {"scheme": "labels", "clients": 8, "classes_per_client": 3},
    {"scheme": "client_dirichlet", "clients": 8, "alpha": 0.5},
    {"scheme": "reusing_dirichlet", "clients": 8, "alpha": 0.8},
    {"scheme": "natural"},
    {"scheme": "natural", "clients": 3, "minimum": 70},
    {"scheme": "at_server", "share": 0.37},
    {"scheme": "pachinko", "clients": 5},
    {"scheme": "pachinko", "clients": 5, "coarse": 1.5, "fine": 0.2},
    {"scheme": "domains", "within": {"scheme": "client_dirichlet", "clients": 2, "alpha": 1.0}},
)
SPECS = [
    {**base, **more}
    for base in BASES
    for more in ({}, HELD_OUT, STRATIFIED, {"server": 0.31}, {"seed": 4})
    if base["scheme"] != "at_server" or "server" not in more
] + [{"scheme": "natural", "given_test": True}]


def digest(parts: Any) -> str:
    lists = [None if rows is None else [each.tolist() for each in rows] for rows in parts]
    return hashlib.sha256(repr(lists).encode()).hexdigest()[:16]


@pytest.mark.parametrize("base", BASES, ids=lambda base: "-".join(map(str, base.values())))
def test_a_partition_is_as_it_was(base: dict[str, Any]) -> None:
    labels = RandomState(1).permutation(np.repeat(np.arange(len(COUNTS)), COUNTS))
    groups = RandomState(2).permutation(np.repeat(np.arange(len(GROUPS)), GROUPS))
    if base["scheme"] == "pachinko":  # superclasses
        groups = labels // 4
    marked = RandomState(3).random_sample(len(labels)) < 0.2
    found = {}
    for keys in SPECS:
        if keys.items() >= base.items() and keys["scheme"] == base["scheme"]:
            spec = ADAPTER.validate_python(keys)
            held_out = marked if keys.get("given_test") else None
            try:
                made = make_partition(labels, groups, spec, 3, held_out)
            except Exception as error:  # one line has a test of its own
                found[spec.name] = type(error).__name__
                continue
            server = None if made.server is None else [made.server]
            found[spec.name] = digest((made.train, made.test, made.validation, server))
    pinned.check("partitions.json", "-".join(map(str, base.values())), found)
