"""A method of your own: one frozen dataclass, and the hooks in which it differs from FedAvg.

It is called as this file. It composes with wrappers and server optimizers (`ima+my_prox`,
`my_prox+fedadam`); `fedrepro.engine.method.Method` has all hooks, each with what it may do.
`fedrepro check my_prox` says whether it keeps what every method must.
"""

from dataclasses import dataclass

from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.method import Method
from fedrepro.engine.tree import Tree


@dataclass(frozen=True)
class MyProx(Method):
    """Mine: a proximal term keeps clients near the sent model (as FedProx)."""

    mu: float = 0.01  # a hyperparameter, which config/experiments/*.yaml may set

    def loss(self, ctx: Context, sent: Tree, own: Tree, theta: Tree, batch: Tree) -> Tensor:
        """The loss of a mini-batch at parameters ``theta``; ``sent`` is what the server sent."""
        task = super().loss(ctx, sent, own, theta, batch)
        return task + self.mu / 2 * tree.square_norm(tree.subtract(theta, sent["params"]))
