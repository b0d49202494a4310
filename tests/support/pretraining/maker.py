"""A stand-in for a generator: its product is the head of its model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.method import Artifact, Method
from fedrepro.engine.tree import Tree


@dataclass(frozen=True)
class Maker(Method):
    """A generator of sorts."""

    classifies: ClassVar[bool] = False

    critic_steps: int = 2

    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        return {"noise": torch.randn(steps, generator=rng)}

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        away = ctx.net(params, batch["x"]) - batch["noise"]
        return self.critic_steps * away.square().mean()

    def artifact(self, ctx: Context, server: Tree) -> Artifact:
        head = {
            name.removeprefix("head."): leaf
            for name, leaf in ctx.net.head(server["params"]).items()
        }
        return Artifact(head, part="head", about={"latent": 4})

    def metrics(self, ctx: Context, server: Tree) -> Mapping[str, float]:
        return {"size": float(tree.square_norm(server["params"]))}

    def images(self, ctx: Context, server: Tree) -> Tensor:
        weight = server["params"]["head.weight"]
        side = math.isqrt(weight.shape[1])
        return weight.reshape(-1, 1, side, side)
