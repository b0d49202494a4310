r"""Centralised training: the upper bound for federated methods.

$$ \min_w \sum_k \frac{n_k}{n} F_k(w) $$

One client holds all training data and trains in mini-batches. A round is the setting's epochs, or
the first ``epochs`` of them. The optimizer's state is kept between rounds, as in ordinary training.
FedGO does not say how long it trains: we use 100 epochs with a cosine schedule (A22).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedrepro.engine.fidelity import NonNegativeWhole
from fedrepro.engine.method import Context, Method, Tree, descend, tree
from fedrepro.engine.steps import Steps, enough_epochs, some_epochs
from fedrepro.methods.distilling.losses import cosine


@dataclass(frozen=True)
class Central(Method):
    """Centralised mini-batch training on the union of all clients' data."""

    centralized: ClassVar[bool] = True

    epochs: NonNegativeWhole = 0  # of a round; 0: the setting's
    cosine: bool = False  # decay the learning rate to 0 over the rounds, whatever the setting's

    def check(self, ctx: Context) -> None:
        enough_epochs("central", "epochs", self.epochs, ctx.epochs)

    def learning_rate(self, ctx: Context, round: int) -> float:
        if not self.cosine:
            return super().learning_rate(ctx, round)
        return cosine(ctx.schedule(0), round, ctx.rounds)

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"optimizer": ctx.optimizer.init(ctx.net.trainable(ctx.net.init(rng)))}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        if self.epochs:
            steps = some_epochs(steps, ctx.epochs, 0, self.epochs)
        start, state = message["params"], client_state["optimizer"]
        params, state = descend(ctx, self.gradient, message, client_state, start, steps, state)
        return {"delta": tree.subtract(start, params)}, {"optimizer": state}
