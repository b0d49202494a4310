"""pFedMe (Dinh et al., NeurIPS 2020, "Personalized federated learning with Moreau envelopes").

A client's model theta minimises f(theta) + lambda/2 |theta - w|^2 (eq. 3; their lambda is ``mu``
here), its copy of the shared model then follows the envelope's gradient, w - eta lambda (w - theta)
(Algorithm 1, line 8). The inner problem is solved by one epoch of the client's optimizer, which
starts anew; so a round has as many steps as FedAvg's, where the authors' code takes K steps on
every mini-batch. The server averages w (their beta is the server's learning rate).
In SuPerFed's code one optimizer serves all epochs of a round.

The code that SuPerFed's authors released evaluates the shared model, as the personal ones are
overwritten by it (26); its rows for CIFAR-10 are APFL's.
"""

from dataclasses import dataclass

import torch

from fedrepro import tree
from fedrepro.descent import descend
from fedrepro.errors import at_least
from fedrepro.method import Context, Method, divergence
from fedrepro.proximity import UNSQUARED, proximal_gradient
from fedrepro.steps import Steps, some_epochs
from fedrepro.tree import Tree


@dataclass(frozen=True)
class PFedMe(Method):
    """pFedMe (Dinh et al., NeurIPS 2020, eq. 3, Algorithm 1)."""

    mu: float = 15.0
    squared: bool = divergence(True, released=False, item="21", why=UNSQUARED)
    personal: bool = divergence(
        True, released=False, item="26", why="clients are evaluated with the shared model"
    )

    def __post_init__(self) -> None:
        at_least("pfedme", "mu", self.mu, 0)

    def own(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"personal": ctx.initial}

    def of_personal(self, ctx: Context, sent: Tree, own: Tree, theta: Tree, batch: Tree) -> Tree:
        """The gradient of the inner problem around ``sent["params"]``."""
        return proximal_gradient(
            ctx,
            lambda theta: self.loss(ctx, sent, own, theta, batch),
            theta,
            sent["params"],
            self.mu,
            self.squared,
        )

    def local(self, ctx: Context, sent: Tree, own: Tree, steps: Steps | Tree) -> tuple[Tree, Tree]:
        shared = personal = sent["params"]
        for epoch in range(ctx.epochs):
            batches = some_epochs(steps, ctx.epochs, epoch, epoch + 1)
            around = {"params": shared}
            personal, _ = descend(ctx, self.of_personal, around, own, personal, batches)
            shared = tree.mix(shared, personal, ctx.lr * self.mu)
        return {"delta": tree.subtract(sent["params"], shared)}, {"personal": personal}

    def model(self, ctx: Context, server: Tree, own: Tree) -> Tree:
        return own.get("personal", server["params"]) if self.personal else server["params"]
