"""Base of methods that average one part of the model; each client keeps the other part."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedrepro.engine.method import Context, Method, Net, Steps, Tree, descend, name_of, tree
from fedrepro.engine.modules import float_buffers


def keeps_a_part(method: Method, module: nn.Module) -> bool:
    """Return True if each client keeps a part of ``module``, so that no whole model is shared."""
    net, params = Net(module), {**dict(module.named_parameters()), **float_buffers(module)}
    partly = (layer for layer in method.layers() if isinstance(layer, PartlyShared))
    return any(layer.kept(net, params) for layer in partly)


@dataclass(frozen=True)
class PartlyShared(Method):
    """FedAvg of the :meth:`shared` part; ``client_state["kept"]`` is the client's own part."""

    def shared(self, net: Net, params: Tree) -> Tree:
        """The part of ``params`` that is averaged."""
        raise NotImplementedError

    def kept(self, net: Net, params: Tree) -> Tree:
        """The part that clients keep."""
        shared = self.shared(net, params)
        return {name: leaf for name, leaf in params.items() if name not in shared}

    def check(self, ctx: Context) -> None:
        ctx.net.require_trained_parts(name_of(self))

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        trainable = ctx.net.trainable(self.shared(ctx.net, params))
        return {"params": params, "optimizer": ctx.server_optimizer.init(trainable)}

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"kept": self.kept(ctx.net, ctx.initial)}

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        return {"params": self.shared(ctx.net, server["params"])}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        whole = ctx.net.ordered({**message["params"], **client_state["kept"]})
        params, _ = descend(ctx, self.gradient, message, client_state, whole, steps)
        shared = self.shared(ctx.net, params)
        delta = tree.subtract(message["params"], shared)
        return {"delta": delta}, {"kept": self.kept(ctx.net, params)}

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        shared = {**server, "params": self.shared(ctx.net, server["params"])}
        moved = super().server_update(ctx, shared, updates, weights)
        return {**moved, "params": {**server["params"], **moved["params"]}}

    def client_model(self, ctx: Context, server: Tree, updates: Tree, place: int) -> Tree:
        """The averaged part; the part that clients keep is the shared model's here."""
        return {**server["params"], **super().client_model(ctx, server, updates, place)}

    def eval_model(self, ctx: Context, server: Tree, client_state: Tree) -> Tree:
        return {**server["params"], **client_state.get("kept", {})}
