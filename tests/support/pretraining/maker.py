"""A stand-in for a generator: its product is the head of its model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.method import Method, Product
from fedrepro.engine.tree import Tree


@dataclass(frozen=True)
class Maker(Method):
    """A generator of sorts."""

    classifies: ClassVar[bool] = False

    critic_steps: int = 2

    def draw(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        return {"noise": torch.randn(steps, generator=rng)}

    def loss(self, ctx: Context, sent: Tree, own: Tree, theta: Tree, batch: Tree) -> Tensor:
        away = ctx.net(theta, batch["x"]) - batch["noise"]
        return self.critic_steps * away.square().mean()

    def product(self, ctx: Context, server: Tree) -> Product:
        head = {
            name.removeprefix("head."): leaf
            for name, leaf in ctx.net.head(server["params"]).items()
        }
        return Product(head, part="head", about={"latent": 4})

    def numbers(self, ctx: Context, server: Tree) -> Mapping[str, float]:
        return {"size": float(tree.square_norm(server["params"]))}

    def images(self, ctx: Context, server: Tree) -> Tensor:
        weight = server["params"]["head.weight"]
        side = math.isqrt(weight.shape[1])
        return weight.reshape(-1, 1, side, side)
