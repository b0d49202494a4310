r"""FedAdagrad: the second moment is a sum.

$$ u \leftarrow \beta_1 u + (1 - \beta_1) g, \quad v \leftarrow v + g^2, \quad w \leftarrow w -
\text{lr} \frac{u}{\sqrt{v} + \tau}, \quad g = \sum_k p_k \Delta_k $$

Symbols: $u$, $v$: first and second moment; $\text{lr}$: the server's learning rate.
"""

from dataclasses import dataclass

from torch import Tensor

from fedrepro.engine.fidelity import BelowOne
from fedrepro.methods.server.adaptive import Adaptive


@dataclass(frozen=True)
class FedAdagrad(Adaptive):
    """FedAdagrad (Reddi et al., ICLR 2021): v <- v + g^2."""

    beta1: BelowOne = 0.0  # decay of the first moment

    def second_moment(self, v: Tensor, gradient: Tensor) -> Tensor:
        return v + gradient**2
