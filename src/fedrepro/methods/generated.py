r"""FedGO's distillation set D2 (ICML 2025): images drawn once from a generator.

$$ x_i = G(z_i), \quad z_i \sim \mathcal{N}(0, I) $$

The paper draws 25,000 images; that it does so once, before the first round, follows from the cost
that it prints (Section G.2). Nothing is trained and no client's samples are used: the setting
defines shape and range of the images. The generator works in testing mode.
"""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor

from fedrepro.engine.fidelity import PositiveWhole
from fedrepro.engine.method import SAMPLES, Artifact, Context, Method, Steps, Tree
from fedrepro.support.errors import bad_value

BATCH = 250  # images drawn at a time
SHOWN = 64  # images on a sample sheet


@dataclass(frozen=True)
class Generated(Method):
    """FedGO's D2 (Jang et al., ICML 2025): images of a generator, drawn once."""

    requires: ClassVar[tuple[str, ...]] = ("generator",)
    classifies: ClassVar[bool] = False
    uses_server_optimizer: ClassVar[bool] = False
    centralized: ClassVar[bool] = True
    outputs: ClassVar[int | None] = 1

    number: PositiveWhole = 25_000  # of images

    def check(self, ctx: Context) -> None:
        if ctx.rounds != 1:
            expected = "1, because it draws images once"
            raise bad_value("method generated", "rounds", ctx.rounds, expected)

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        return {"x": torch.zeros(0, device=ctx.net.device)}

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        return {}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        return {"nothing": torch.zeros(())}, client_state

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        generator, rng = ctx.artifacts["generator"], ctx.stream("images")
        assert generator.net is not None
        latent = cast(int, generator.about["latent"])
        made = [
            generator.net.predict(
                generator.tensors,
                torch.randn(min(BATCH, self.number - first), latent, generator=rng).to(weights),
            )
            for first in range(0, self.number, BATCH)
        ]
        return {"x": torch.cat(made)}

    def artifact(self, ctx: Context, server: Tree) -> Artifact:
        return Artifact({"x": server["x"]}, part=SAMPLES)

    def images(self, ctx: Context, server: Tree) -> Tensor:
        return cast(Tensor, server["x"][:SHOWN])
