"""FedMGDA+ (Hu et al., IEEE TNSE 2022, "Federated learning meets multi-objective optimization").

The server moves along sum p_i d_i / |d_i|, d_i = w - w_i, with the p of the simplex for which that
vector is shortest, among those that differ from 1 / m by at most ``radius`` in every coefficient.
Buffers, which have no direction, are averaged with the same p.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.method import Method, divergence
from fedrepro.engine.tree import Tree
from fedrepro.methods.deciding.server_rate import GROWING, growing
from fedrepro.methods.deciding.simplex import minimise_quadratic

RIDGE = 1e-8  # clients that move alike leave p undetermined


def lengths(ctx: Context, reports: Tree) -> Tensor:
    """How far every client moved [m]; 1 for one that did not move at all."""
    deltas = tree.leaves(ctx.net.trainable(reports["delta"]))
    norms = torch.stack([leaf.flatten(1).square().sum(1) for leaf in deltas]).sum(0).sqrt()
    return torch.where(norms > 0, norms, 1.0)


@dataclass(frozen=True)
class FedMGDA(Method):
    """FedMGDA+ (Hu et al., IEEE TNSE 2022, Algorithm 1)."""

    weighs: ClassVar[bool] = True

    radius: float = 0.5
    constant_server_lr: bool = divergence(True, released=False, item="13", why=GROWING)

    def weigh(self, ctx: Context, server: Tree, reports: Tree) -> tuple[Tensor, Tree]:
        deltas = tree.leaves(ctx.net.trainable(reports["delta"]))
        unit = [leaf.flatten(1).double() for leaf in deltas]
        gram = torch.stack([leaf @ leaf.T for leaf in unit]).sum(0)
        norms = lengths(ctx, reports).double()
        products = (gram / norms / norms[:, None]).cpu().numpy()
        size = len(products)
        if not np.isfinite(products).all():  # the run has diverged, whatever the coefficients
            return ctx.sizes / ctx.sizes.sum(), server
        least, most = max(0.0, 1 / size - self.radius), min(1.0, 1 / size + self.radius)
        found = minimise_quadratic(products + RIDGE * np.eye(size), np.zeros(size), least, most)
        return torch.from_numpy(found).to(ctx.sizes), server

    def step(self, ctx: Context, server: Tree, reports: Tree, weights: Tensor) -> Tree:
        ctx = ctx if self.constant_server_lr else growing(ctx)
        norms = lengths(ctx, reports)
        moving = ctx.net.trainable(reports["delta"])
        delta = tree.weighted_sum(reports["delta"], weights)
        return self.move(ctx, server, {**delta, **tree.weighted_sum(moving, weights / norms)})
