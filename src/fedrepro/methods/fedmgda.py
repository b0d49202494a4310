r"""FedMGDA+ (Hu et al., IEEE TNSE 2022, "Federated learning meets multi-objective optimization").

$$ w \leftarrow w - \sum_k p_k \frac{\Delta_k}{\|\Delta_k\|}, \quad p = \mathrm{argmin}_p \, \left\|
\sum_k p_k \frac{\Delta_k}{\|\Delta_k\|} \right\|^2 $$

$$ \text{over } \sum_k p_k = 1, \quad p_k \ge 0, \quad \left| p_k - \frac{1}{m} \right| \le
\text{radius} $$

The server moves along sum p_i d_i / |d_i|, d_i = w - w_i. p is the point of the simplex for which
that vector is shortest, among those that differ from 1 / m by at most ``radius`` in every entry.
Buffers have no direction and are averaged with the same p. Hahn et al. describe the deviation as
one from n_i / n (discrepancy 51).

https://arxiv.org/abs/2006.11489
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedrepro.engine.fidelity import NonNegative
from fedrepro.engine.method import Context, Method, Tree, deviation, tree
from fedrepro.methods.adaptive_weighting.server_rate import GROWING, growing
from fedrepro.methods.adaptive_weighting.simplex import minimise_quadratic

RIDGE = 1e-8  # makes p unique if clients move alike


def lengths(ctx: Context, updates: Tree) -> Tensor:
    """How far every client moved [m]; 1 for a client that did not move."""
    deltas = tree.leaves(ctx.net.trainable(updates["delta"]))
    norms = torch.stack([tree.rows(leaf).square().sum(1) for leaf in deltas]).sum(0).sqrt()
    return torch.where(norms > 0, norms, 1.0)


@dataclass(frozen=True)
class FedMGDA(Method):
    """FedMGDA+ (Hu et al., IEEE TNSE 2022, Algorithm 1)."""

    sets_weights: ClassVar[bool] = True

    radius: NonNegative = 0.5  # how far a coefficient may be from 1 / (clients in the round)
    constant_server_lr: bool = deviation(True, released=False, item="13", why=GROWING)

    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        deltas = tree.leaves(ctx.net.trainable(updates["delta"]))
        unit = [tree.rows(leaf).double() for leaf in deltas]
        gram = torch.stack([leaf @ leaf.T for leaf in unit]).sum(0)
        norms = lengths(ctx, updates).double()
        products = (gram / norms / norms[:, None]).cpu().numpy()
        size = len(products)
        if not np.isfinite(products).all():  # the run has diverged, so weights no longer matter
            return ctx.sizes / ctx.sizes.sum(), server
        radius = self.radius if self.radius > RIDGE else 0.0  # less is none to the solver
        least, most = max(0.0, 1 / size - radius), min(1.0, 1 / size + radius)
        weights = minimise_quadratic(products + RIDGE * np.eye(size), np.zeros(size), least, most)
        return torch.from_numpy(weights).to(ctx.sizes), server

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        ctx = ctx if self.constant_server_lr else growing(ctx)
        norms = lengths(ctx, updates)
        moving = ctx.net.trainable(updates["delta"])
        delta = tree.weighted_sum(updates["delta"], weights)
        return self.apply_server_optimizer(
            ctx, server, {**delta, **tree.weighted_sum(moving, weights / norms)}
        )
