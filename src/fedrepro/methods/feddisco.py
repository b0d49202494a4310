"""FedDisco (Ye et al., ICML 2023, eq. 4).

The paper is "FedDisco: federated learning with discrepancy-aware collaboration". The further a
client's classes are from balance, the smaller is its coefficient: p_k = relu(n_k / n - a d_k + b),
divided by their sum. d_k is the Kullback-Leibler divergence of the client's class frequencies from
the uniform distribution, divided by the sum of the cohort's; a client reports that one number.

On FedAvg, as FedGO runs it; the paper's own results are FedDyn's with it (A9). Where no coefficient
is positive, the released code fails; here they are FedAvg's.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine.context import Context
from fedrepro.engine.method import Method
from fedrepro.engine.steps import Steps, some_epochs
from fedrepro.engine.tree import Tree
from fedrepro.support.errors import UserError, at_least


def class_counts(ctx: Context, classes: int, steps: Steps | Tree) -> Tensor:
    """How many samples of each class a client has [classes], from the round's first epoch."""
    epoch = some_epochs(steps, ctx.epochs, 0, 1)
    if isinstance(epoch, Steps):
        (_, targets), real = epoch.samples.at(epoch.orders[0]), None
    else:
        targets, real = epoch["y"].flatten(), epoch["real"].flatten()
    # Not one_hot or bincount, for which clients side by side have no rule.
    hits = targets[:, None] == torch.arange(classes, device=targets.device)
    counted = hits.to(torch.get_default_dtype())
    return (counted if real is None else counted * real[:, None]).sum(0)


def imbalance(counts: Tensor) -> Tensor:
    """KL(class frequencies || uniform) of counts [..., classes], a class without samples adding 0.

    From 0 to log(classes).
    """
    frequencies = counts / counts.sum(-1, keepdim=True)
    return torch.xlogy(frequencies, frequencies).sum(-1) + math.log(counts.shape[-1])


def coefficients(sizes: Tensor, imbalances: Tensor, a: float, b: float) -> Tensor:
    """Mixing coefficients [cohort] of clients with ``sizes`` and ``imbalances`` [cohort]."""
    total = imbalances.sum()
    discrepancies = imbalances / torch.where(total > 0, total, 1)
    # n times equation (4), which has the same shares: with a = b = 0 they are FedAvg's to the bit.
    raw = torch.relu(sizes - (a * discrepancies - b) * sizes.sum())
    shares = raw if bool((raw > 0).any()) else sizes
    return shares / shares.sum()


@dataclass(frozen=True)
class FedDisco(Method):
    """FedDisco (Ye et al., ICML 2023, eq. 4)."""

    sets_weights: ClassVar[bool] = True

    a: float = 0.5
    b: float = 0.1

    def __post_init__(self) -> None:
        at_least("feddisco", "a", self.a, 0)

    def check(self, ctx: Context) -> None:
        if ctx.task.name != "classification":
            raise UserError(
                f"method feddisco: task {ctx.task.name!r}: expected 'classification', as its "
                "coefficients follow from how often each class occurs"
            )

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        update, client_state = super().client_update(ctx, message, client_state, steps)
        counts = class_counts(ctx, ctx.net.outputs(message["params"]), steps)
        return {**update, "imbalance": imbalance(counts)}, client_state

    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        imbalances = updates["imbalance"].to(ctx.sizes)
        return coefficients(ctx.sizes, imbalances, self.a, self.b), server
