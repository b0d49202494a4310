r"""q-FedAvg (Li et al., ICLR 2020, "Fair resource allocation", Algorithm 2; solves q-FFL).

$$ w \leftarrow w - \frac{\sum_k n_k F_k^q d_k}{\sum_k n_k \left( q F_k^{q-1} \|d_k\|^2 + L F_k^q
\right)}, \quad d_k = L \Delta_k, \quad L = 1 / \eta, \quad F_k = F_k(w) $$

With n_i the clients' sizes, L = 1 / lr and d_i = L (w - w_i), the server moves by
sum n_i F_i^q d_i / sum n_i (q F_i^(q-1) |d_i|^2 + L F_i^q). Its weights (Table 1 of Hahn et al.,
ICML 2024) are proportional to n_i F_i^q. The released code of Hahn et al. omits n_i (discrepancy
11), fixes L = server_lr / lr_0 with the first round's rate lr_0, and multiplies its steps by a
growing server learning rate (13). Buffers, which have no gradient, are averaged with the weights
divided by their sum.

https://arxiv.org/abs/1905.10497
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedrepro.engine.fidelity import NonNegative
from fedrepro.engine.method import LOSS, Context, Tree, deviation, require_rates, tree
from fedrepro.methods.adaptive_weighting.responses import Array, with_ratios
from fedrepro.methods.adaptive_weighting.rule import Decider, Decision, Observed, proportional

LEAST_LOSS = 1e-10  # zero has no power q - 1


@dataclass(frozen=True)
class QFedAvg(Decider):
    """q-FedAvg (Li et al., ICLR 2020, "Fair resource allocation in federated learning")."""

    q: NonNegative = 1.0  # 0: FedAvg; the larger, the more high losses count
    sample_weighted: bool = deviation(
        True, released=False, item="11", why="coefficients without the clients' sizes"
    )

    def check(self, ctx: Context) -> None:
        require_rates(self, ctx)

    def decide(self, memory: dict[str, Array], observed: Observed) -> Decision:
        losses = np.maximum(with_ratios(observed.losses), LEAST_LOSS)
        powers = (losses / losses.max()) ** self.q
        return Decision(proportional(powers, observed.sizes if self.sample_weighted else None), {})

    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        """Weights whose sum is the length of the step, at most 1."""
        coefficients, server = super().aggregation_weights(ctx, server, updates)
        paper, released = 1 / float(ctx.lr), ctx.server_lr / ctx.schedule(0)
        lipschitz = paper if self.constant_server_lr else released
        losses = updates[LOSS].nan_to_num(nan=torch.inf, posinf=torch.inf).to(coefficients)
        losses = losses.clamp(min=LEAST_LOSS)
        deltas = ctx.net.trainable(updates["delta"])
        squares = [tree.rows(leaf).square().sum(1) for leaf in tree.leaves(deltas)]
        curvature = lipschitz * torch.stack(squares).sum(0).to(coefficients)
        return coefficients / (coefficients * (1 + self.q * curvature / losses)).sum(), server

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        trainable = ctx.net.trainable(updates["delta"])
        averaged = {
            name: leaf if name in trainable else leaf / weights.sum()
            for name, leaf in updates["delta"].items()
        }
        return super().server_update(ctx, server, {**updates, "delta": averaged}, weights)
