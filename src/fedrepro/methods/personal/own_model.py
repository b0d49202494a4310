"""Base of methods in which every client has its own model, pulled towards the shared one.

Ditto's h_k (Li et al., ICML 2021, Algorithm 1) and pFedMe's inner problem (Dinh et al., NeurIPS
2020, eq. 3) are the same objective, F_k(theta) + mu/2 |theta - w|^2. SuPerFed's released code does
not square the norm in either (discrepancy 21).
"""

from dataclasses import dataclass

import torch

from fedrepro.engine.fidelity import NonNegative
from fedrepro.engine.method import Context, Method, Tree, deviation
from fedrepro.methods.personal.proximity import UNSQUARED, gradient_with_pull


@dataclass(frozen=True)
class PersonalModel(Method):
    """``client_state["personal"]`` is the client's model, which starts as the initial one."""

    mu: NonNegative = 1.0  # pull towards the shared model
    squared: bool = deviation(True, released=False, item="21", why=UNSQUARED)

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"personal": ctx.initial}

    def gradient_with_pull(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        """The gradient of the loss plus the pull to ``message["params"]``."""

        def loss(params: Tree) -> torch.Tensor:
            return self.loss(ctx, message, client_state, params, batch)

        return gradient_with_pull(ctx, loss, params, message["params"], self.mu, self.squared)

    def eval_model(self, ctx: Context, server: Tree, client_state: Tree) -> Tree:
        params: Tree = client_state["personal"] if "personal" in client_state else server["params"]
        return params
