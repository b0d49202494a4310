r"""FedYogi: the second moment moves by a bounded step.

$$ u \leftarrow \beta_1 u + (1 - \beta_1) g, \quad v \leftarrow v - (1 - \beta_2) g^2 \,
\mathrm{sign}(v - g^2), \quad w \leftarrow w - \text{lr} \frac{u}{\sqrt{v} + \tau}, \quad g = \sum_k
p_k \Delta_k $$

Symbols: $u$, $v$: first and second moment; $\text{lr}$: the server's learning rate.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.engine.fidelity import BelowOne
from fedrepro.methods.server.adaptive import Adaptive


@dataclass(frozen=True)
class FedYogi(Adaptive):
    """FedYogi (Reddi et al., ICLR 2021): v <- v - (1 - beta2) g^2 sign(v - g^2)."""

    beta2: BelowOne = 0.99  # decay of the second moment

    def second_moment(self, v: Tensor, gradient: Tensor) -> Tensor:
        square = gradient**2
        return v - (1 - self.beta2) * square * torch.sign(v - square)

    def first_of_two(self, v: Tensor, gradient: Tensor) -> Tensor:
        return v - (1 - self.beta2) * gradient**2 * torch.sign(v + gradient)  # Delta = -gradient
