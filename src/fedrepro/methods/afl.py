r"""AFL, agnostic federated learning (Mohri et al., ICML 2019), as in Table 1 of Hahn et al. (2024).

$$ p \leftarrow \Pi_{\text{simplex}} \left( p + \text{lr} \cdot (F_1(w), \dots, F_K(w)) \right),
\quad w \leftarrow w - \sum_k p_k \Delta_k $$

Symbols: $K$: number of clients.

The weights follow the clients' losses: p <- the projection of p + lr F onto the simplex. AFL is the
limit of q-FedAvg for q to infinity; the text of Hahn et al. once says q to 0 (discrepancy 10).

https://arxiv.org/abs/1902.00146
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedrepro.engine.fidelity import NonNegative
from fedrepro.methods.adaptive_weighting.responses import Array
from fedrepro.methods.adaptive_weighting.rule import NEEDS_LOSSES, Decider, Decision, Observed
from fedrepro.methods.adaptive_weighting.simplex import nearest


@dataclass(frozen=True)
class AFL(Decider):
    """AFL (Mohri et al., ICML 2019, "Agnostic federated learning", Algorithm 1)."""

    full_participation: ClassVar[bool] = True
    why_all: ClassVar[str] = NEEDS_LOSSES

    lr: NonNegative = 0.01  # of the weights

    def memory(self, clients: int) -> dict[str, Array]:
        return {"decision": np.full(clients, 1 / clients)}

    def decide(self, memory: dict[str, Array], observed: Observed) -> Decision:
        # Shifting all losses does not change the projection; without it, huge losses would swamp p.
        climb = self.lr * (observed.losses - observed.losses.max())
        decision = nearest(memory["decision"] + climb)
        return Decision(decision, {"decision": decision})
