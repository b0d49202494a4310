r"""FedDisco (Ye et al., ICML 2023, eq. 4).

$$ p_k \propto \max \left( 0, \frac{n_k}{\sum_j n_j} - a d_k + b \right), \quad d_k \propto
\mathrm{KL}(\text{classes of } k \, \| \, \text{uniform}) $$

Symbols: $d_k$: client $k$'s divergence; $a$, $b$: hyperparameters.

The paper is "FedDisco: federated learning with discrepancy-aware collaboration". The more a
client's classes are out of balance, the smaller its weight: p_k = relu(n_k / n - a d_k + b),
divided by the sum over the cohort. d_k is the Kullback-Leibler divergence of the client's class
frequencies from the uniform distribution, divided by the sum over the cohort. A client's update
contains its divergence.

Here it is added to FedAvg, as in FedGO; the paper's own results add it to FedDyn (A9). If no weight
is positive, the released code fails; here the weights are then FedAvg's.

https://arxiv.org/abs/2305.19229
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine.fidelity import NonNegative
from fedrepro.engine.method import Context, Method, Tree, require_classification
from fedrepro.engine.steps import Steps, samples_of
from fedrepro.methods.generating.synthetic import one_hot


def class_counts(ctx: Context, classes: int, steps: Steps | Tree) -> Tensor:
    """The number of a client's samples per class, [classes], from the round's first epoch."""
    _, targets, real = samples_of(steps, ctx.epochs)
    return (one_hot(targets, classes) * real[:, None]).sum(0)


def imbalance(counts: Tensor) -> Tensor:
    """KL(class frequencies || uniform) of counts [..., classes]; a class without samples adds 0.

    From 0 to log(classes).
    """
    frequencies = counts / counts.sum(-1, keepdim=True)
    return torch.xlogy(frequencies, frequencies).sum(-1) + math.log(counts.shape[-1])


def coefficients(sizes: Tensor, imbalances: Tensor, a: float, b: float) -> Tensor:
    """Aggregation weights [cohort] of clients with ``sizes`` and ``imbalances`` [cohort]."""
    total = imbalances.sum()
    discrepancies = imbalances / torch.where(total > 0, total, 1)
    # n times equation (4), with the same shares: for a = b = 0 they equal FedAvg's to the bit.
    raw = torch.relu(sizes - (a * discrepancies - b) * sizes.sum())
    shares = raw if bool((raw > 0).any()) else sizes
    return shares / shares.sum()


@dataclass(frozen=True)
class FedDisco(Method):
    """FedDisco (Ye et al., ICML 2023, eq. 4)."""

    sets_weights: ClassVar[bool] = True

    a: NonNegative = 0.5  # how much imbalance lowers a weight
    b: float = 0.1  # added to every client's share, before shares are normalised

    def check(self, ctx: Context) -> None:
        require_classification(self, ctx, "its weights depend on how often each class occurs")

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        update, client_state = super().client_update(ctx, message, client_state, steps)
        counts = class_counts(ctx, ctx.inputs.classes, steps)
        return {**update, "imbalance": imbalance(counts)}, client_state

    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        imbalances = updates["imbalance"].to(ctx.sizes)
        return coefficients(ctx.sizes, imbalances, self.a, self.b), server
