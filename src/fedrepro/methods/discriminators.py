"""FedGO's client discriminators (Jang et al., ICML 2025, Algorithm 3), made before it runs.

Each client trains one on its own samples against those of the given generator, fresh in every
mini-batch, by binary cross-entropy (with the sign that Algorithm 3 misprints, A4). A round is some
epochs of every client, whose network and optimizer are carried on, so that the training can resume.
All start from the same weights; of this the paper says nothing.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.descent import descend
from fedrepro.engine.method import Method, Product
from fedrepro.engine.steps import Steps
from fedrepro.engine.tree import Tree
from fedrepro.methods.generating.adversarial import discriminator_loss
from fedrepro.support.errors import at_least


@dataclass(frozen=True)
class Discriminators(Method):
    """FedGO's client discriminators (Jang et al., ICML 2025, Algorithm 3)."""

    needs: ClassVar[tuple[str, ...]] = ("generator",)
    classifies: ClassVar[bool] = False
    moves: ClassVar[bool] = False
    full_participation: ClassVar[bool] = True
    weighs: ClassVar[bool] = True
    outputs: ClassVar[int | None] = 1

    fakes: int = 64  # per mini-batch

    def __post_init__(self) -> None:
        at_least("discriminators", "fakes", self.fakes, 1)

    def init(self, ctx: Context, params: Tree) -> Tree:
        everyone = tree.apply(lambda leaf: leaf.expand(ctx.clients, *leaf.shape).clone(), params)
        return {"params": params, "critics": everyone}

    def own(self, ctx: Context, rng: torch.Generator) -> Tree:
        state = ctx.optimizer.init(ctx.net.trainable(ctx.initial))
        return {"params": tree.copy(ctx.initial), "optimizer": state}

    def send(self, ctx: Context, server: Tree) -> Tree:
        return {}

    def draw(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        latent = ctx.given["generator"].about["latent"]
        return {"noise": torch.randn(steps, self.fakes, latent, generator=rng)}

    def loss(self, ctx: Context, sent: Tree, own: Tree, theta: Tree, batch: Tree) -> Tensor:
        generator = ctx.given["generator"]
        assert generator.net is not None
        made = generator.net.predict(generator.tensors, batch["noise"].to(batch["x"]))
        real, fake = ctx.net(theta, batch["x"]), ctx.net(theta, made)
        return discriminator_loss(real, fake, batch.get("real"))

    def local(self, ctx: Context, sent: Tree, own: Tree, steps: Steps | Tree) -> tuple[Tree, Tree]:
        theta, state = descend(
            ctx, self.gradient, sent, own, own["params"], steps, own["optimizer"]
        )
        return {"critic": theta}, {"params": theta, "optimizer": state}

    def step(self, ctx: Context, server: Tree, reports: Tree, weights: Tensor) -> Tree:
        return {**server, "critics": tree.copy(reports["critic"])}

    def product(self, ctx: Context, server: Tree) -> Product:
        return Product(server["critics"], each_client=True)
