r"""LG-FedAvg (Liang et al., 2020, "Think locally, act globally").

$$ \min_{\theta_1, \theta_2, \dots, \phi} \sum_k p_k F_k(\theta_k, \phi), \quad \theta_k\text{:
body}, \quad \phi\text{: head} $$

The opposite of FedPer: every client keeps its own body, a local representation of its data, and
only the head is averaged (discrepancy 52: where it begins).

https://arxiv.org/abs/2001.01523
"""

from dataclasses import dataclass

from fedrepro.engine.method import Net, Tree
from fedrepro.methods.personal.partly_shared import PartlyShared


@dataclass(frozen=True)
class LGFedAvg(PartlyShared):
    """LG-FedAvg (Liang et al., 2020)."""

    def shared(self, net: Net, params: Tree) -> Tree:
        return net.head(params)
