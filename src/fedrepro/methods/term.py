r"""TERM, tilted empirical risk minimisation (Li et al., ICLR 2021), as in Table 1 of Hahn et al.

$$ p_k \propto n_k e^{\text{tilt} \cdot F_k(w)}, \quad w \leftarrow w - \sum_k p_k \Delta_k $$

p_i is proportional to n_i exp(tilt F_i). The released code of Hahn et al. (ICML 2024) omits n_i
(discrepancy 11).

https://arxiv.org/abs/2007.01162
"""

from dataclasses import dataclass

import numpy as np

from fedrepro.engine.method import deviation
from fedrepro.methods.adaptive_weighting.responses import Array
from fedrepro.methods.adaptive_weighting.rule import Decider, Decision, Observed, proportional


@dataclass(frozen=True)
class TERM(Decider):
    """TERM (Li et al., ICLR 2021, "Tilted empirical risk minimization")."""

    tilt: float = 1.0  # 0: FedAvg; the larger, the more high losses count
    sample_weighted: bool = deviation(
        True, released=False, item="11", why="coefficients without the clients' sizes"
    )

    def decide(self, memory: dict[str, Array], observed: Observed) -> Decision:
        tilted = self.tilt * observed.losses
        tilted = np.exp(tilted - tilted.max())
        return Decision(proportional(tilted, observed.sizes if self.sample_weighted else None), {})
