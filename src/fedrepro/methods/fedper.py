r"""FedPer (Arivazhagan et al., 2019, "Federated learning with personalization layers").

$$ \min_{\theta, \phi_1, \phi_2, \dots} \sum_k p_k F_k(\theta, \phi_k), \quad \theta\text{: body},
\quad \phi_k\text{: head} $$

The body is averaged as in FedAvg; every client keeps its own head and trains both together. The
model defines the split into ``body`` and ``head``. In SuPerFed's models the head is the last two
linear layers (the released code's ``classifier``); the thesis has the last one (discrepancy 52).

https://arxiv.org/abs/1912.00818
"""

from dataclasses import dataclass

from fedrepro.engine.method import Net, Tree
from fedrepro.methods.personal.partly_shared import PartlyShared


@dataclass(frozen=True)
class FedPer(PartlyShared):
    """FedPer (Arivazhagan et al., 2019)."""

    def shared(self, net: Net, params: Tree) -> Tree:
        return net.body(params)
