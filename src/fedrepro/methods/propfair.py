r"""PropFair (Zhang et al., TMLR 2022, "Proportional fairness in federated learning").

$$ w_k \approx \mathrm{argmin}_v \, {-} \log \left( 1 - \frac{F_k(v)}{M} \right) $$

Clients minimise -log(1 - l / M) on every mini-batch, where l is its mean loss. If M - l is below
0.2 the objective is l / M instead, as in the released code of Hahn et al. (ICML 2024). Zhang et al.
continue along the tangent there; Table 1 of Hahn et al. has no threshold, and so no value for l
above M, and has the server weight clients by n_k / (M - l) instead (discrepancy 50). The server's
weights are FedAvg's.

https://arxiv.org/abs/2202.01666
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.engine.fidelity import Positive
from fedrepro.engine.method import Context, Tree
from fedrepro.methods.fedavg import FedAvg

LEAST = 0.2


@dataclass(frozen=True)
class PropFair(FedAvg):
    """PropFair (Zhang et al., TMLR 2022)."""

    baseline: Positive = 3.0  # M: losses count by log(M - loss)

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        loss = super().loss(ctx, message, client_state, params, batch)
        below = self.baseline - loss >= LEAST
        # The branch that is not taken must have a finite gradient as well.
        logarithm = -torch.log1p(-torch.where(below, loss, 0.0) / self.baseline)
        return torch.where(below, logarithm, loss / self.baseline)
