"""FedNova (Wang et al., NeurIPS 2020, "Tackling the objective inconsistency problem", eqs. 6, 7).

A client's movement is divided by a_i, the 1-norm of the weights that its optimizer gave to its
gradients; the server moves by (sum_i p_i a_i) (sum_i p_i delta_i / a_i). With tau steps of SGD with
momentum rho, a_i = (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho); without momentum, tau.
Buffers, which no gradient moves, are averaged with p_i.
"""

from dataclasses import dataclass

from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.method import Method
from fedrepro.engine.optim import gradient_weight
from fedrepro.engine.steps import Steps, count
from fedrepro.engine.tree import Tree


@dataclass(frozen=True)
class FedNova(Method):
    """FedNova (Wang et al., NeurIPS 2020, eqs. 6 and 7)."""

    def local(self, ctx: Context, sent: Tree, own: Tree, steps: Steps | Tree) -> tuple[Tree, Tree]:
        report, own = super().local(ctx, sent, own, steps)
        weight = gradient_weight(count(steps), ctx.optimizer.momentum).to(ctx.net.device)
        steered = tree.scale(ctx.net.trainable(report["delta"]), 1 / weight)
        return {"direction": {**report["delta"], **steered}, "weight": weight}, own

    def ended(self, ctx: Context, server: Tree, reports: Tree, place: int) -> Tree:
        direction = tree.take(reports["direction"], place)
        steered = tree.scale(ctx.net.trainable(direction), reports["weight"][place])
        return tree.subtract(server["params"], {**direction, **steered})

    def step(self, ctx: Context, server: Tree, reports: Tree, weights: Tensor) -> Tree:
        direction = tree.weighted_sum(reports["direction"], weights)
        length = (weights * reports["weight"]).sum()
        steered = tree.scale(ctx.net.trainable(direction), length)
        return self.move(ctx, server, {**direction, **steered})
