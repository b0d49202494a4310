"""Section 7.1: a share of each client's samples is drawn at random, the rest is sorted by class."""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fedrepro.data.partition.schemes import Count, Scheme
from fedrepro.support.typed_yaml import Real, expected

Similarity = Annotated[Real, Field(ge=0, le=1), expected("a number from 0 to 1")]


class BySimilarity(Scheme):
    """Deals a random share of all samples evenly, and the rest in order of their class."""

    scheme: Literal["similarity"]
    clients: Count
    similarity: Similarity  # 0: sorted by class; 1: i.i.d.

    def assign(self, labels: Any, groups: Any, random: np.random.RandomState) -> list[Any]:
        """Each client's samples, as indices from 0 to n - 1.

        Args:
            labels: int64 [n], the class of each sample.
            groups: int64 [n], each sample's natural client, or None.
            random: the only source of randomness to use.
        """
        order = random.permutation(len(labels))
        mixed, rest = np.split(order, [round(self.similarity * len(labels))])
        by_class = rest[np.argsort(labels[rest], kind="stable")]
        parts = (np.array_split(each, self.clients) for each in (mixed, by_class))
        return [np.concatenate(pair) for pair in zip(*parts, strict=True)]

    def _parts(self) -> list[str]:
        """The parts of its file names: everything that distinguishes two such partitions."""
        return ["similarity", f"clients{self.clients}", f"similarity{self.similarity:g}"]
