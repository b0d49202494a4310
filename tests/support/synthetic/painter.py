"""A stand-in for what makes synthetic sets: noisy copies of the mean image of a class."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.method import SAMPLES, Artifact, Method
from fedrepro.engine.steps import Steps
from fedrepro.engine.tree import Tree


@dataclass(frozen=True)
class Painter(Method):
    """A generator of sorts."""

    classifies: ClassVar[bool] = False

    per_class: int = 5
    noise: float = 0.1

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        shape = (ctx.net.outputs(params) * self.per_class, *ctx.inputs.shape)
        return {**super().init_server(ctx, params), "images": torch.zeros(shape)}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        assert isinstance(steps, Steps)
        batches = list(steps)
        x, y = (torch.cat([each[name] for each in batches]) for name in ("x", "y"))
        chosen = torch.nn.functional.one_hot(y, ctx.net.outputs(message["params"])).to(x.dtype)
        sums = torch.einsum("nk,n...->k...", chosen, x)
        still = tree.apply(torch.zeros_like, message["params"])
        return {"delta": still, "sums": sums, "counts": chosen.sum(0)}, client_state

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        counts = updates["counts"].sum(0).clamp(min=1).view(-1, 1, 1, 1)
        means = (updates["sums"].sum(0) / counts).repeat_interleave(self.per_class, 0)
        noise = torch.randn(means.shape, generator=ctx.stream("paint"))
        return {**server, "images": (means + self.noise * noise).clamp(0, 1)}

    def artifact(self, ctx: Context, server: Tree) -> Artifact:
        labels = torch.arange(len(server["images"])) // self.per_class
        return Artifact({"x": server["images"], "y": labels}, part=SAMPLES)

    def images(self, ctx: Context, server: Tree) -> Tensor:
        images: Tensor = server["images"]
        return images
