"""A stand-in for the clients' discriminators: a model of every client, side by side."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.method import Artifact, Method
from fedrepro.engine.tree import Tree


@dataclass(frozen=True)
class Judges(Method):
    """Discriminators of sorts."""

    requires: ClassVar[tuple[str, ...]] = ("maker",)
    classifies: ClassVar[bool] = False
    full_participation: ClassVar[bool] = True

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        everyone = tree.apply(lambda leaf: leaf.expand(ctx.clients, *leaf.shape).clone(), params)
        return {**super().init_server(ctx, params), "judges": everyone}

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        maker = ctx.artifacts["maker"]
        assert maker.net is not None and maker.about == {"latent": 4}
        made = maker.net.predict(maker.tensors, batch["x"].flatten(1))
        return (ctx.net(params, batch["x"]) - made).square().mean()

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        ends = [self.client_model(ctx, server, updates, place) for place in range(len(ctx.cohort))]
        return {**server, "judges": tree.stack(ends)}

    def artifact(self, ctx: Context, server: Tree) -> Artifact:
        return Artifact(server["judges"], each_client=True)
