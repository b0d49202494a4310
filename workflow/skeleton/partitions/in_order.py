"""A partition scheme of your own: a class whose ``scheme`` is this file's name."""

from typing import Any, Literal

import numpy as np

from fedrepro.data.partition.schemes import Count, Scheme


class InOrder(Scheme):
    """Samples in the order of their classes, cut into as many parts as there are clients."""

    scheme: Literal["in_order"]
    clients: Count  # its keys in config/experiments/*.yaml, beside those that all schemes have

    def deal(self, labels: Any, groups: Any, random: np.random.RandomState) -> list[Any]:
        """Each client's samples, as numbers from 0 to n - 1.

        Args:
            labels: int64 [n], the class of each sample.
            groups: int64 [n], each sample's natural client, or None.
            random: the only source of chance.
        """
        return list(np.array_split(np.argsort(labels, kind="stable"), self.clients))

    def _parts(self) -> list[str]:
        """What its files are called by: all that tells two such partitions apart."""
        return ["in_order", f"clients{self.clients}"]
