r"""FedAvg (McMahan et al., AISTATS 2017, Algorithm 1).

$$ w \leftarrow w - \sum_k p_k \Delta_k, \quad \Delta_k = w - w_k, \quad p_k = n_k / \sum_j n_j $$

The paper is "Communication-efficient learning of deep networks from decentralized data".

The server sends its parameters, each client of the cohort runs E epochs of SGD, and the server
averages the results, weighted by numbers of samples.

``fedavg@released`` follows AAggFF's released code (discrepancies 12 and 13): with partial
participation all clients of a cohort count the same, and the server's learning rate grows while the
clients' decays.

https://arxiv.org/abs/1602.05629
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.engine.method import Context, Method, Tree, deviation
from fedrepro.methods.adaptive_weighting.server_rate import GROWING, growing


@dataclass(frozen=True)
class FedAvg(Method):
    """FedAvg (McMahan et al., AISTATS 2017, Algorithm 1)."""

    sample_weighted: bool = deviation(
        True, released=False, item="12", why="equal coefficients where clients are sampled"
    )
    constant_server_lr: bool = deviation(True, released=False, item="13", why=GROWING)

    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        if self.sample_weighted or len(ctx.cohort) == ctx.clients:
            return super().aggregation_weights(ctx, server, updates)
        return torch.full_like(ctx.sizes, 1 / len(ctx.sizes)), server

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        ctx = ctx if self.constant_server_lr else growing(ctx)
        return super().server_update(ctx, server, updates, weights)
