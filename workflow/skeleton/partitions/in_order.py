"""Your own partition scheme: a class whose ``scheme`` is the name of this file."""

from typing import Any, Literal

import numpy as np

from fedrepro.data.partition.schemes import Count, Scheme


class InOrder(Scheme):
    """Sorts samples by class and cuts them into one part per client."""

    scheme: Literal["in_order"]
    clients: Count  # its key in config/experiments/*.yaml, besides those that all schemes have

    def assign(self, labels: Any, groups: Any, random: np.random.RandomState) -> list[Any]:
        """Each client's samples, as indices from 0 to n - 1.

        Args:
            labels: int64 [n], the class of each sample.
            groups: int64 [n], each sample's natural client, or None.
            random: the only source of randomness to use.
        """
        return list(np.array_split(np.argsort(labels, kind="stable"), self.clients))

    def _parts(self) -> list[str]:
        """The parts of its file names: everything that distinguishes two such partitions."""
        return ["in_order", f"clients{self.clients}"]
