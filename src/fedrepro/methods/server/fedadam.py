r"""FedAdam: the second moment is a moving average.

$$ u \leftarrow \beta_1 u + (1 - \beta_1) g, \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
w \leftarrow w - \text{lr} \frac{u}{\sqrt{v} + \tau}, \quad g = \sum_k p_k \Delta_k $$

Symbols: $u$, $v$: first and second moment; $\text{lr}$: the server's learning rate.
"""

from dataclasses import dataclass

from torch import Tensor

from fedrepro.engine.fidelity import BelowOne
from fedrepro.methods.server.adaptive import Adaptive


@dataclass(frozen=True)
class FedAdam(Adaptive):
    """FedAdam (Reddi et al., ICLR 2021): v <- beta2 v + (1 - beta2) g^2."""

    beta2: BelowOne = 0.99  # decay of the second moment

    def second_moment(self, v: Tensor, gradient: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * gradient**2
