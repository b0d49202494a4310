"""Methods whose model has two parts: one is averaged, each client keeps the other to itself."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.descent import descend
from fedrepro.engine.method import Method, name_of
from fedrepro.engine.net import Net
from fedrepro.engine.steps import Steps
from fedrepro.engine.tree import Tree
from fedrepro.support.errors import UserError


@dataclass(frozen=True)
class PartlyShared(Method):
    """FedAvg of the :meth:`shared` part; ``own["kept"]`` is the other, at first the initial one."""

    def shared(self, net: Net, theta: Tree) -> Tree:
        """The part of ``theta`` that travels."""
        raise NotImplementedError

    def kept(self, net: Net, theta: Tree) -> Tree:
        """The part that does not."""
        shared = self.shared(net, theta)
        return {name: leaf for name, leaf in theta.items() if name not in shared}

    def check(self, ctx: Context) -> None:
        names = [name for name, _ in ctx.net.module.named_parameters()]
        for part in ("body", "head"):
            if not any(name.startswith(f"{part}.") for name in names):
                raise UserError(
                    f"method {name_of(self)}: expected a model with a body and a head that "
                    f"both learn; the {part} of this one has no parameters"
                )

    def init(self, ctx: Context, params: Tree) -> Tree:
        trainable = ctx.net.trainable(self.shared(ctx.net, params))
        return {"params": params, "optimizer": ctx.server_optimizer.init(trainable)}

    def own(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"kept": self.kept(ctx.net, ctx.initial)}

    def send(self, ctx: Context, server: Tree) -> Tree:
        return {"params": self.shared(ctx.net, server["params"])}

    def local(self, ctx: Context, sent: Tree, own: Tree, steps: Steps | Tree) -> tuple[Tree, Tree]:
        whole = ctx.net.ordered({**sent["params"], **own["kept"]})
        theta, _ = descend(ctx, self.gradient, sent, own, whole, steps)
        shared = self.shared(ctx.net, theta)
        delta = tree.subtract(sent["params"], shared)
        return {"delta": delta}, {"kept": self.kept(ctx.net, theta)}

    def step(self, ctx: Context, server: Tree, reports: Tree, weights: Tensor) -> Tree:
        shared = {**server, "params": self.shared(ctx.net, server["params"])}
        moved = super().step(ctx, shared, reports, weights)
        return {**moved, "params": {**server["params"], **moved["params"]}}

    def ended(self, ctx: Context, server: Tree, reports: Tree, place: int) -> Tree:
        """The part that travels; what the client keeps is the shared model's here."""
        return {**server["params"], **super().ended(ctx, server, reports, place)}

    def model(self, ctx: Context, server: Tree, own: Tree) -> Tree:
        return {**server["params"], **own.get("kept", {})}
