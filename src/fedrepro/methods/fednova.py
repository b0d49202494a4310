r"""FedNova (Wang et al., NeurIPS 2020, "Tackling the objective inconsistency problem", eqs. 6, 7).

$$ w \leftarrow w - \left( \sum_k p_k a_k \right) \sum_k p_k \frac{\Delta_k}{a_k} $$

Symbols: $a_k$: the 1-norm of the weights that client $k$'s optimizer gave to its gradients.

A client's update is divided by a_i, the 1-norm of the weights that its optimizer gave to its
gradients; the server moves by (sum_i p_i a_i) (sum_i p_i delta_i / a_i). With tau steps of SGD with
momentum rho, a_i = (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho); without momentum, tau.
Buffers, which have no gradient, are averaged with p_i.

https://arxiv.org/abs/2007.07481
"""

from dataclasses import dataclass

from torch import Tensor

from fedrepro.engine.method import Context, Method, Tree, tree
from fedrepro.engine.optim import gradient_weight
from fedrepro.engine.steps import Steps, count


@dataclass(frozen=True)
class FedNova(Method):
    """FedNova (Wang et al., NeurIPS 2020, eqs. 6 and 7)."""

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        update, client_state = super().client_update(ctx, message, client_state, steps)
        weight = gradient_weight(count(steps), ctx.optimizer.momentum).to(ctx.net.device)
        steered = tree.scale(ctx.net.trainable(update["delta"]), 1 / weight)
        return {"direction": {**update["delta"], **steered}, "weight": weight}, client_state

    def client_model(self, ctx: Context, server: Tree, updates: Tree, place: int) -> Tree:
        direction = tree.take(updates["direction"], place)
        steered = tree.scale(ctx.net.trainable(direction), updates["weight"][place])
        return tree.subtract(server["params"], {**direction, **steered})

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        direction = tree.weighted_sum(updates["direction"], weights)
        length = (weights * updates["weight"]).sum()
        steered = tree.scale(ctx.net.trainable(direction), length)
        return self.apply_server_optimizer(ctx, server, {**direction, **steered})
