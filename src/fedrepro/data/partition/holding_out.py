"""Choose the samples that a client holds out for testing or validation."""

from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from fedrepro.data.partition.assigning import Indices, stratified_choice
from fedrepro.data.partition.schemes import Natural, PartitionSpec
from fedrepro.support.errors import UserError, refusal


def hold_out(
    client: str,
    indices: Indices,
    labels: NDArray[Any],
    spec: PartitionSpec,
    share: float,
    random: RandomState,
) -> tuple[Indices, Indices]:
    """The samples that a client keeps, and the `share` it holds out, in the order of `indices`.

    Raises:
        UserError: if it has a single sample.
    """
    if len(indices) < 2:
        repair = "lower `clients`"
        if isinstance(spec, Natural):  # as many as the data name, whatever their size
            repair = f"raise `minimum` ({spec.minimum}), which leaves smaller ones out"
        elif hasattr(spec, "minimum"):
            repair += " or raise `minimum`"
        why = f"has {len(indices)} sample: expected at least 2, to hold one out: {repair}"
        raise client_refused(spec, client, why)
    wanted = min(max(round(share * len(indices)), 1), len(indices) - 1)
    own = labels[indices] if spec.stratified else np.zeros(len(indices), dtype=np.int64)
    chosen = stratified_choice(own, wanted, random)
    return indices[~chosen], indices[chosen]


def hold_out_of_group(
    client: str, indices: Indices, labels: NDArray[Any], spec: Natural, seed: int
) -> tuple[Indices, Indices]:
    """A group's training and test samples, as by scikit-learn's `train_test_split` with `seed`.

    AAggFF's released code does this, with the same seed for each client. With a handful of small
    clients, results depend more on this split than on the method.

    Raises:
        UserError: if a class has a single sample.
    """
    own = labels[indices]
    values, counts = np.unique(own, return_counts=True)
    if counts.min() == 1:
        why = f"has a single sample of class {values[counts.argmin()]}"
        both = "which cannot be used for both training and testing"
        repair = "set `stratified: false`, or use other data"
        raise client_refused(spec, client, f"{why}, {both}: {repair}")
    random = RandomState(seed)
    wanted = int(np.ceil(spec.test_fraction * len(own)))
    kept = _drawn_mode(counts, len(own) - wanted, random)
    _drawn_mode(counts - kept, wanted, random)  # its result is known, but it advances `random`
    chosen = np.ones(len(own), dtype=np.bool_)
    for value, count in zip(values, kept, strict=True):
        chosen[random.permutation(np.flatnonzero(own == value))[:count]] = False
    return indices[~chosen], indices[chosen]


def client_refused(spec: PartitionSpec, client: str, why: str) -> UserError:
    """The error for a client whose samples are too few for its partition."""
    return refusal(f"partition {spec.name}", f"client {client} {why}", f"client {client}")


def _drawn_mode(counts: Indices, wanted: int, random: RandomState) -> Indices:
    """Split `wanted` like `counts`, by largest remainders with random ties, as scikit-learn."""
    exact = counts / counts.sum() * wanted
    quota = np.floor(exact)
    remainder, lacking = exact - quota, int(wanted - quota.sum())
    for value in np.unique(remainder)[::-1]:
        if lacking == 0:
            break
        (ties,) = np.where(remainder == value)
        lucky = random.choice(ties, size=min(len(ties), lacking), replace=False)
        quota[lucky] += 1
        lacking -= len(lucky)
    return np.asarray(quota, dtype=np.int64)
