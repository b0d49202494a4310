"""LG-FedAvg (Liang et al., 2020, "Think locally, act globally").

The opposite of FedPer: every client keeps its own body, a local representation of its data, and
only the head on top of it is averaged.
"""

from dataclasses import dataclass

from fedrepro.net import Net
from fedrepro.partly_shared import PartlyShared
from fedrepro.tree import Tree


@dataclass(frozen=True)
class LGFedAvg(PartlyShared):
    """LG-FedAvg (Liang et al., 2020)."""

    def shared(self, net: Net, theta: Tree) -> Tree:
        return net.head(theta)
