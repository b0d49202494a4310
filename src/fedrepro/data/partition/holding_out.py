"""Choose the samples that clients hold out for testing or validation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from fedrepro.data.partition.assigning import Indices, Labels, stratified_choice
from fedrepro.data.partition.schemes import Natural, PartitionSpec
from fedrepro.support.errors import UserError, bad_value, refusal

Mask = NDArray[np.bool_]
Halves = tuple[list[Indices], list[Indices]]  # what each client keeps, and what it holds out


@dataclass(frozen=True)
class HoldingOut:
    """Divides each client's samples, in their order, into those that it keeps and the others.

    Attributes:
        labels: of all samples [n].
        names: of the clients, in errors.
    """

    spec: PartitionSpec
    labels: Labels
    names: Sequence[str]

    def a_share(self, clients: list[Indices], share: float, stream: Sequence[int]) -> Halves:
        """Hold out a share of each client's samples.

        Args:
            stream: the seed of a stream of its own, so that holding out changes neither which
                samples a client has nor what it holds out for another purpose.

        Raises:
            UserError: if a client has a single sample.
        """
        random = RandomState(stream)
        return self._divided(clients, partial(self._share_of, share=share, random=random))

    def of_groups(self, clients: list[Indices], share: float, seed: int) -> Halves:
        """Hold out of groups as scikit-learn's `train_test_split` does with `seed`.

        AAggFF's released code does this, with the same seed for each client. With a handful of
        small clients, results depend more on this split than on the method.

        Raises:
            UserError: if a class of a client has a single sample.
        """
        return self._divided(clients, partial(self._of_group, share=share, seed=seed))

    def marked(self, clients: list[Indices], marks: Mask) -> Halves:
        """Hold out the samples that the data set marks for testing.

        Raises:
            UserError: if it marks none of these clients, or all of one.
        """
        kept, test = self._divided(clients, lambda _, rows: marks[rows])
        if not sum(map(len, test)):
            raise without_test(self.spec, "of these clients, the data set")
        for name, rows in zip(self.names, kept, strict=True):
            if not len(rows):
                why = (
                    f"given_test: True: client {name} has test samples only: expected some of each "
                    "client for training, as LEAF splits them with `-t sample`: or set "
                    "`test_fraction` instead"
                )
                raise refusal(f"partition {self.spec.name}", why, "given_test", True)
        return kept, test

    def _divided(self, clients: list[Indices], choose: Callable[[str, Indices], Mask]) -> Halves:
        """Hold out the samples that ``choose`` chooses of a client, by its name and its samples."""
        masks = [choose(name, rows) for name, rows in zip(self.names, clients, strict=True)]
        pairs = [*zip(clients, masks, strict=True)]
        return [rows[~mask] for rows, mask in pairs], [rows[mask] for rows, mask in pairs]

    def _share_of(self, client: str, indices: Indices, share: float, random: RandomState) -> Mask:
        spec = self.spec
        if len(indices) < 2:
            repair = "lower `clients`"
            if isinstance(spec, Natural):  # as many as the data name, whatever their size
                repair = f"raise `minimum` ({spec.minimum}), which leaves smaller ones out"
            elif hasattr(spec, "minimum"):
                repair += " or raise `minimum`"
            why = f"has {len(indices)} sample: expected at least 2, to hold one out: {repair}"
            raise client_refused(spec, client, why)
        wanted = min(max(round(share * len(indices)), 1), len(indices) - 1)
        own = self.labels[indices] if spec.stratified else np.zeros(len(indices), dtype=np.int64)
        return stratified_choice(own, wanted, random)

    def _of_group(self, client: str, indices: Indices, share: float, seed: int) -> Mask:
        own, random = self.labels[indices], RandomState(seed)
        values, counts = np.unique(own, return_counts=True)
        if counts.min() == 1:
            why = f"has a single sample of class {values[counts.argmin()]}"
            both = "which cannot be used for both training and testing"
            repair = "set `stratified: false`, or use other data"
            raise client_refused(self.spec, client, f"{why}, {both}: {repair}")
        wanted = int(np.ceil(share * len(own)))
        kept = _drawn_mode(counts, len(own) - wanted, random)
        _drawn_mode(counts - kept, wanted, random)  # its result is known, but it advances `random`
        chosen = np.ones(len(own), dtype=np.bool_)
        for value, count in zip(values, kept, strict=True):
            chosen[random.permutation(np.flatnonzero(own == value))[:count]] = False
        return chosen


def without_test(spec: PartitionSpec, where: str) -> UserError:
    """The error for data that mark no samples for testing."""
    wanted = f"False, with a `test_fraction`, as {where} marks no test samples"
    return bad_value(f"partition {spec.name}", "given_test", True, wanted)


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
