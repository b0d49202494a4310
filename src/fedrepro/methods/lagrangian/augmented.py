"""Base of FedDyn and FedSpeed, whose clients minimise an augmented Lagrangian.

The clients' models must agree. F_k(theta) + penalty/2 |theta - w|^2 - <g_k, theta> has a multiplier
g_k for that, which follows what a client's model is still off: g_k <- g_k - penalty (theta - w). At
the exact minimum this is the gradient of F_k. Both papers begin with g_k = 0. Here a client keeps
``h`` = -g_k / penalty, its movements added up, so that no step divides by the penalty. The server's
``h`` is the mean of all clients', those included that do not take part: the next model is the mean
of the cohort's models plus that.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.engine.method import Context, Method, Steps, Tree, tree


@dataclass(frozen=True)
class AugmentedLagrangian(Method):
    """``client_state["h"]`` is the client's multiplier, over trainable parameters."""

    @property
    def penalty(self) -> float:
        """A client's penalty for leaving the received model."""
        raise NotImplementedError

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"h": tree.zeros(ctx.net.trainable(ctx.initial))}

    def loss_gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        """The gradient of F_k on a mini-batch, over the trainable leaves of ``params``."""
        return super().gradient(ctx, message, client_state, params, batch)

    def gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        gradients = self.loss_gradient(ctx, message, client_state, params, batch)

        def added(gradient: Tensor, leaf: Tensor, received: Tensor, h: Tensor) -> Tensor:
            return gradient + self.penalty * (leaf.detach() - received + h)

        return {
            name: added(leaf, params[name], message["params"][name], client_state["h"][name])
            for name, leaf in gradients.items()
        }

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        return {**super().init_server(ctx, params), "h": tree.zeros(ctx.net.trainable(params))}

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        moved = tree.weighted_sum(ctx.net.trainable(updates["delta"]), ctx.sizes / ctx.total)
        h = tree.subtract(server["h"], moved)
        delta = tree.weighted_sum(updates["delta"], weights)
        delta = {**delta, **tree.subtract(ctx.net.trainable(delta), h)}
        return {**self.apply_server_optimizer(ctx, server, delta), "h": h}

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        update, client_state = super().client_update(ctx, message, client_state, steps)
        moved = ctx.net.trainable(update["delta"])
        return update, {"h": tree.subtract(client_state["h"], moved)}
