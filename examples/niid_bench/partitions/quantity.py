"""NIID-Bench's quantity skew, `iid-diff-quantity`: unequal numbers of samples."""

from typing import Any, Literal

import numpy as np

from fedrepro.data.partition.schemes import Count, Scheme


class Quantity(Scheme):
    """A permutation cut in Dirichlet(alpha) proportions, drawn until all have `minimum` samples.

    Attributes:
        clients: how many clients there are.
        alpha: the concentration: the smaller, the more unequal they are.
        minimum: of samples that every client must have.
    """

    scheme: Literal["quantity"]
    clients: Count
    alpha: float
    minimum: Count = 10

    def assign(self, labels: Any, groups: Any, random: np.random.RandomState) -> list[Any]:
        """Each client's samples, as indices from 0 to n - 1."""
        order = random.permutation(len(labels))
        while True:
            shares = random.dirichlet(np.repeat(self.alpha, self.clients))
            if shares.min() * len(labels) >= self.minimum:
                break
        cuts = (np.cumsum(shares) * len(labels)).astype(int)[:-1]
        return list(np.split(order, cuts))

    def _parts(self) -> list[str]:
        return [
            "quantity",
            f"clients{self.clients}",
            f"alpha{self.alpha:g}",
            f"minimum{self.minimum}",
        ]
