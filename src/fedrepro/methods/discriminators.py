r"""FedGO's client discriminators (Jang et al., ICML 2025, Algorithm 3), trained before FedGO runs.

$$ \min_{D_k} \; {-} \mathbb{E}_x \log D_k(x) - \mathbb{E}_z \log(1 - D_k(G(z))) $$

Each client trains one on its own samples against new samples of the given generator in every
mini-batch, by binary cross-entropy (Algorithm 3 prints the wrong sign, A4). A round is a few epochs
of every client. Networks and optimizers are kept between rounds, so that training can resume. All
discriminators start from the same weights, on which the paper says nothing.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine.fidelity import PositiveWhole
from fedrepro.engine.method import Artifact, Context, Method, Steps, Tree, descend, tree
from fedrepro.methods.generating.adversarial import discriminator_loss


@dataclass(frozen=True)
class Discriminators(Method):
    """FedGO's client discriminators (Jang et al., ICML 2025, Algorithm 3)."""

    requires: ClassVar[tuple[str, ...]] = ("generator",)
    classifies: ClassVar[bool] = False
    uses_server_optimizer: ClassVar[bool] = False
    full_participation: ClassVar[bool] = True
    why_all: ClassVar[str] = "it makes a discriminator of each client"
    sets_weights: ClassVar[bool] = True
    outputs: ClassVar[int | None] = 1

    fakes: PositiveWhole = 64  # per mini-batch

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        everyone = tree.apply(lambda leaf: leaf.expand(ctx.clients, *leaf.shape).clone(), params)
        return {"params": params, "critics": everyone}

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        state = ctx.optimizer.init(ctx.net.trainable(ctx.initial))
        return {"params": tree.copy(ctx.initial), "optimizer": state}

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        return {}

    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        latent = ctx.artifacts["generator"].about["latent"]
        return {"noise": torch.randn(steps, self.fakes, latent, generator=rng)}

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        generator = ctx.artifacts["generator"]
        assert generator.net is not None
        made = generator.net.predict(generator.tensors, batch["noise"].to(batch["x"]))
        real, fake = ctx.net(params, batch["x"]), ctx.net(params, made)
        return discriminator_loss(real, fake, batch.get("real"))

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        start, state = client_state["params"], client_state["optimizer"]
        params, state = descend(ctx, self.gradient, message, client_state, start, steps, state)
        return {"critic": params}, {"params": params, "optimizer": state}

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        return {**server, "critics": tree.copy(updates["critic"])}

    def artifact(self, ctx: Context, server: Tree) -> Artifact:
        return Artifact(server["critics"], each_client=True)
