"""PropFair (Zhang et al., TMLR 2022, "Proportional fairness in federated learning").

Clients minimise -log(1 - l / M) on every mini-batch, l being its mean loss; where M - l falls below
0.2 the logarithm gives way to l / M, as in the released code of Hahn et al. (ICML 2024). Zhang et
al. go on along the tangent there; Table 1 of Hahn et al. has no threshold at all, and so no value
for l above M. The server's coefficients are FedAvg's.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.engine.context import Context
from fedrepro.engine.tree import Tree
from fedrepro.methods.fedavg import FedAvg

LEAST = 0.2


@dataclass(frozen=True)
class PropFair(FedAvg):
    """PropFair (Zhang et al., TMLR 2022)."""

    baseline: float = 3.0  # M

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        loss = super().loss(ctx, message, client_state, params, batch)
        below = self.baseline - loss >= LEAST
        # The branch that is not taken must have a finite gradient, too.
        logarithm = -torch.log1p(-torch.where(below, loss, 0.0) / self.baseline)
        return torch.where(below, logarithm, loss / self.baseline)
