"""Centralised training: the upper bound that federated methods are measured against.

One client holds all training data and trains it in mini-batches; a round is ``epochs`` passes. The
optimizer's state is carried from round to round, as in ordinary training.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.descent import descend
from fedrepro.engine.method import Method
from fedrepro.engine.steps import Steps
from fedrepro.engine.tree import Tree


@dataclass(frozen=True)
class Central(Method):
    """Centralised mini-batch training on the union of all clients' data."""

    pooled: ClassVar[bool] = True

    def own(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"optimizer": ctx.optimizer.init(ctx.net.trainable(ctx.net.init(rng)))}

    def local(self, ctx: Context, sent: Tree, own: Tree, steps: Steps | Tree) -> tuple[Tree, Tree]:
        theta, state = descend(
            ctx, self.gradient, sent, own, sent["params"], steps, own["optimizer"]
        )
        return {"delta": tree.subtract(sent["params"], theta)}, {"optimizer": state}
