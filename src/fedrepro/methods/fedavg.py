"""FedAvg (McMahan et al., AISTATS 2017, Algorithm 1).

The paper is "Communication-efficient learning of deep networks from decentralized data".

The server sends its parameters, each client of the cohort runs E epochs of SGD, the server
averages, weighted by numbers of samples.

``fedavg@released`` is how AAggFF's released code runs it (discrepancies 12 and 13): every client of
a sample counts the same, and the server's learning rate grows while the clients' one decays.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.engine.context import Context
from fedrepro.engine.method import Method, divergence
from fedrepro.engine.tree import Tree
from fedrepro.methods.deciding.server_rate import GROWING, growing


@dataclass(frozen=True)
class FedAvg(Method):
    """FedAvg (McMahan et al., AISTATS 2017, Algorithm 1)."""

    sample_weighted: bool = divergence(
        True, released=False, item="12", why="equal coefficients where clients are sampled"
    )
    constant_server_lr: bool = divergence(True, released=False, item="13", why=GROWING)

    def weigh(self, ctx: Context, server: Tree, reports: Tree) -> tuple[Tensor, Tree]:
        if self.sample_weighted or len(ctx.cohort) == ctx.clients:
            return super().weigh(ctx, server, reports)
        return torch.full_like(ctx.sizes, 1 / len(ctx.sizes)), server

    def step(self, ctx: Context, server: Tree, reports: Tree, weights: Tensor) -> Tree:
        ctx = ctx if self.constant_server_lr else growing(ctx)
        return super().step(ctx, server, reports, weights)
