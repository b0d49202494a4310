"""Your own method: one frozen dataclass, and the hooks in which it differs from FedAvg.

Its name is the name of this file. It composes with wrappers and server optimizers (`ima+my_prox`,
`my_prox+fedadam`). `fedrepro.engine.method.Method` documents all hooks.
`fedrepro check my_prox` runs the tests that every method must pass.
"""

from dataclasses import dataclass

from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.method import Method
from fedrepro.engine.tree import Tree


@dataclass(frozen=True)
class MyProx(Method):
    """Mine: a proximal term keeps clients near the global model (as in FedProx)."""

    mu: float = 0.01  # a hyperparameter; config/experiments/*.yaml may set it

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        """The loss of a mini-batch at parameters ``params``.

        ``message`` is what the server sent.
        """
        task = super().loss(ctx, message, client_state, params, batch)
        return task + self.mu / 2 * tree.square_norm(tree.subtract(params, message["params"]))
