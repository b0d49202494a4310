"""A stand-in for the clients' discriminators: a model of every client, side by side."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.method import Method, Product
from fedrepro.engine.tree import Tree


@dataclass(frozen=True)
class Judges(Method):
    """Discriminators of sorts."""

    needs: ClassVar[tuple[str, ...]] = ("maker",)
    classifies: ClassVar[bool] = False
    full_participation: ClassVar[bool] = True

    def init(self, ctx: Context, params: Tree) -> Tree:
        everyone = tree.apply(lambda leaf: leaf.expand(ctx.clients, *leaf.shape).clone(), params)
        return {**super().init(ctx, params), "judges": everyone}

    def loss(self, ctx: Context, sent: Tree, own: Tree, theta: Tree, batch: Tree) -> Tensor:
        maker = ctx.given["maker"]
        assert maker.net is not None and maker.about == {"latent": 4}
        made = maker.net.predict(maker.tensors, batch["x"].flatten(1))
        return (ctx.net(theta, batch["x"]) - made).square().mean()

    def step(self, ctx: Context, server: Tree, reports: Tree, weights: Tensor) -> Tree:
        ends = [self.ended(ctx, server, reports, place) for place in range(len(ctx.cohort))]
        return {**server, "judges": tree.stack(ends)}

    def product(self, ctx: Context, server: Tree) -> Product:
        return Product(server["judges"], each_client=True)
