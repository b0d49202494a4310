r"""Local training only: every client trains its own model, and nothing is communicated.

$$ \min_{w_k} F_k(w_k) $$

The least that a personalised method must beat. All models start as the initial one. A client trains
in the rounds in which it takes part, on the mini-batches that FedAvg's client would have, so both
take as many steps; its optimizer is new in every round.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine.method import Context, Method, Steps, Tree, descend, sends_no_models


@dataclass(frozen=True)
class Local(Method):
    """Local training only, without communication."""

    uses_server_optimizer: ClassVar[bool] = False
    own_classifier: ClassVar[bool] = True

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"local": ctx.initial}

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        return {}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        params, _ = descend(ctx, self.gradient, message, client_state, client_state["local"], steps)
        return {}, {"local": params}

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        return server

    def client_model(self, ctx: Context, server: Tree, updates: Tree, place: int) -> Tree:
        raise sends_no_models(self)

    def eval_model(self, ctx: Context, server: Tree, client_state: Tree) -> Tree:
        params: Tree = client_state["local"] if client_state else server["params"]
        return params
