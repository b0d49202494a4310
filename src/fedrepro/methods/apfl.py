r"""APFL (Deng et al., 2020, "Adaptive personalized federated learning", Algorithm 1).

$$ v_k \leftarrow v_k - \eta \nabla_{v_k} F_k(\alpha v_k + (1 - \alpha) w_k), \quad w_k \leftarrow
w_k - \eta \nabla F_k(w_k) $$

A client uses the interpolation alpha v + (1 - alpha) w of its own model v and the shared model w.
On every mini-batch w descends its own loss, and v the loss of the interpolation, with w held fixed.
alpha is constant, as in SuPerFed's experiments (0.25), which do not use the paper's rule for
adapting it (eq. 10). The printed pFedMe rows for CIFAR-10 are results of this method (26).

The code that SuPerFed's authors released interpolates with w as received, and applies no weight
decay to w (26).

https://arxiv.org/abs/2003.13461
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine.fidelity import Share
from fedrepro.engine.method import Context, Method, Steps, Tree, descend, deviation, tree


@dataclass(frozen=True)
class APFL(Method):
    """APFL (Deng et al., 2020, Algorithm 1)."""

    interpolates: ClassVar[bool] = True

    alpha: Share = 0.25  # the own model's share of the interpolation
    as_received: bool = deviation(
        False, released=True, item="26", why="a local model is mixed with the model as it was sent"
    )
    decays_shared: bool = deviation(
        True, released=False, item="26", why="the shared model has no weight decay"
    )

    def check(self, ctx: Context) -> None:
        ctx.net.refuse_running_statistics("apfl")

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"local": ctx.initial}

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        fixed = tree.apply(
            Tensor.detach, message["params"] if self.as_received else params["shared"]
        )
        mixed = tree.mix(fixed, params["local"], self.alpha)
        shared_loss = super().loss(ctx, message, client_state, params["shared"], batch)
        if not self.decays_shared:
            # Cancels the weight decay that the optimizer will add to the gradient.
            added = ctx.optimizer.weight_decay / 2 * tree.square_norm(params["shared"])
            shared_loss = shared_loss - added
        return shared_loss + super().loss(ctx, message, client_state, mixed, batch)

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        both = {"shared": message["params"], "local": client_state["local"]}
        params, _ = descend(ctx, self.gradient, message, client_state, both, steps)
        return {"delta": tree.subtract(message["params"], params["shared"])}, {
            "local": params["local"]
        }

    def eval_model(self, ctx: Context, server: Tree, client_state: Tree) -> Tree:
        return self.interpolate(ctx, server, client_state, self.alpha)
