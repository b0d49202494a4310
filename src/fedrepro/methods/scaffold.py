"""SCAFFOLD (Karimireddy et al., ICML 2020, "Stochastic controlled averaging", Algorithm 1).

Control variates correct the drift of clients: every local step adds c - c_i to the gradient.
Option II for the client's new variate: c_i+ = c_i - c + (x - y_i) / (k * lr) after k steps, which
makes it the mean gradient of the client's path. Every client's c_i is kept. The paper has SGD
without momentum; with it the path is longer than k gradients, and k becomes FedNova's a_i. (With k
variates are ten times too long at momentum 0.9, and training diverges.) Clients are weighted by
their samples, where Algorithm 1 has equal weights.

The SCAFFOLD that SuPerFed's authors released is FedAvg: its correction is assigned to a loop
variable and lost (discrepancies 14, 26). Variates cover trainable parameters only (A8).
"""

from dataclasses import dataclass

import torch

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.descent import descend
from fedrepro.engine.method import Method, divergence
from fedrepro.engine.optim import gradient_weight
from fedrepro.engine.steps import Steps, count
from fedrepro.engine.tree import Tree


@dataclass(frozen=True)
class Scaffold(Method):
    """SCAFFOLD (Karimireddy et al., ICML 2020, Algorithm 1, option II)."""

    corrects: bool = divergence(
        True, released=False, item="26", why="the released correction has no effect (FedAvg)"
    )

    def init(self, ctx: Context, params: Tree) -> Tree:
        return {**super().init(ctx, params), "c": tree.zeros(ctx.net.trainable(params))}

    def own(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"c": tree.zeros(ctx.net.trainable(ctx.initial))}

    def send(self, ctx: Context, server: Tree) -> Tree:
        return {"params": server["params"], "c": server["c"]}

    def gradient(self, ctx: Context, sent: Tree, own: Tree, theta: Tree, batch: Tree) -> Tree:
        gradient = super().gradient(ctx, sent, own, theta, batch)
        if not self.corrects:
            return gradient
        return tree.apply(lambda g, c, c_i: g + c - c_i, gradient, sent["c"], own["c"])

    def local(self, ctx: Context, sent: Tree, own: Tree, steps: Steps | Tree) -> tuple[Tree, Tree]:
        theta, _ = descend(ctx, self.gradient, sent, own, sent["params"], steps)
        delta = tree.subtract(sent["params"], theta)
        length = gradient_weight(count(steps), ctx.optimizer.momentum) * ctx.lr
        mean_move = tree.scale(ctx.net.trainable(delta), 1 / length)
        change = tree.subtract(mean_move, sent["c"])
        return {"delta": delta, "change": change}, {"c": tree.add(own["c"], change)}

    def step(self, ctx: Context, server: Tree, reports: Tree, weights: torch.Tensor) -> Tree:
        # c stays the mean of all clients' c_i, those that did not take part included.
        change = tree.apply(lambda leaf: leaf.sum(0) / ctx.clients, reports["change"])
        moved = super().step(ctx, server, reports, weights)
        return {**moved, "c": tree.add(server["c"], change)}
