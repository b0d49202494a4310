"""AFL, agnostic federated learning (Mohri et al., ICML 2019), as in Table 1 of Hahn et al. (2024).

The coefficients climb the clients' losses: p <- the point of the simplex nearest to p + lr F. It
is q-FedAvg's limit of q to infinity; the text of Hahn et al. says q to 0 once (discrepancy 10).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedrepro.methods.adaptive_weighting.responses import Array
from fedrepro.methods.adaptive_weighting.rule import Decider, Decision, Observed
from fedrepro.methods.adaptive_weighting.simplex import nearest


@dataclass(frozen=True)
class AFL(Decider):
    """AFL (Mohri et al., ICML 2019, "Agnostic federated learning", Algorithm 1)."""

    full_participation: ClassVar[bool] = True

    lr: float = 0.01  # of the coefficients

    def memory(self, clients: int) -> dict[str, Array]:
        return {"decision": np.full(clients, 1 / clients)}

    def decide(self, memory: dict[str, Array], observed: Observed) -> Decision:
        # A shift of all losses moves no projection; without it, huge ones would drown p.
        climb = self.lr * (observed.losses - observed.losses.max())
        decision = nearest(memory["decision"] + climb)
        return Decision(decision, {"decision": decision})
