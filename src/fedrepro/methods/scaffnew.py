r"""Scaffnew (Mishchenko et al., ICML 2022), which is ProxSkip for federated learning, Algorithm 2.

$$ w_k \leftarrow w_k - \eta \left( \nabla F_k(w_k) - h_k \right) \quad \text{for } T \text{ steps},
\quad T \sim \mathrm{Geometric}(p) $$

$$ w = \sum_k p_k w_k, \quad h_k \leftarrow h_k + \frac{p}{\eta} (w - w_k) $$

Symbols: $h_k$: client $k$'s correction; $T$: the round's number of steps.

The paper is "ProxSkip: yes! Local gradient steps provably lead to communication acceleration!
Finally!". A local step descends the gradient minus h_k. After a communication, a client corrects
h_k by how far the mean x is from its own model: h_k <- h_k + p / gamma (x - x_k), with gamma the
learning rate of its steps. It gets x in its next round and keeps x_k (``sent``) until then.

Algorithm 2 tosses a coin after each step, one for all clients, and communicates with probability p.
Here a round is what lies between two communications: the server draws its number of steps, which
has the mean 1/p. A client stops where the setting's local epochs end, and leaves the mini-batches
unused that it does not reach. ``p: null`` is one over the mean number of steps of the clients.
Clients are weighted by samples (Algorithm 2: equally). All take part, SGD is plain and the mean
exact, or the h_k would not add up to 0.

https://arxiv.org/abs/2202.09357
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine.fidelity import PositiveShare
from fedrepro.engine.method import Context, Method, Tree, require_rates, tree
from fedrepro.engine.steps import Steps, steps_per_epoch
from fedrepro.support.errors import refusal


@dataclass(frozen=True)
class Scaffnew(Method):
    """Scaffnew, or ProxSkip (Mishchenko et al., ICML 2022, Algorithm 2)."""

    full_participation: ClassVar[bool] = True
    why_all: ClassVar[str] = "its corrections add up to 0 over all clients only"
    sets_weights: ClassVar[bool] = True
    needs_mean: ClassVar[bool] = True
    uses_server_optimizer: ClassVar[bool] = False

    p: PositiveShare | None = None  # of communicating after a step; None: 1 / mean steps

    def check(self, ctx: Context) -> None:
        ctx.net.refuse_running_statistics("scaffnew")
        require_rates(self, ctx)
        if ctx.optimizer.init({"any": torch.zeros(1)}):
            why = "optimizer: expected SGD without momentum"
            raise refusal("method scaffnew", why, "optimizer")

    def probability(self, ctx: Context) -> float:
        """Of a communication after a step."""
        steps = [steps_per_epoch(int(size), ctx.batch_size) for size in ctx.sizes.tolist()]
        return self.p or len(steps) / (sum(steps) * ctx.epochs)

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        return {**super().init_server(ctx, params), "scale": torch.zeros(())}

    def init_client(self, ctx: Context, rng: torch.Generator) -> Tree:
        return {"h": tree.zeros(ctx.initial), "sent": ctx.initial}

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        coin = torch.rand((), dtype=torch.float64, generator=ctx.stream("coin"))
        tails = torch.log1p(-coin) / torch.tensor(-self.probability(ctx)).double().log1p()
        steps = (1 + tails.floor()).to(server["scale"])
        return {"params": server["params"], "scale": server["scale"], "steps": steps}

    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        return {"number": torch.arange(steps)}

    def gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        gradients = super().gradient(ctx, message, client_state, params, batch)
        takes, decay = batch["number"] < message["steps"], ctx.optimizer.weight_decay

        def corrected(gradient: Tensor, h: Tensor, leaf: Tensor) -> Tensor:
            # A step that is not taken cancels the weight decay that the optimizer will add.
            return torch.where(takes, gradient - h, -decay * leaf.detach())

        return tree.apply(corrected, gradients, client_state["h"], params)

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        away = tree.subtract(message["params"], client_state["sent"])
        h = tree.add(client_state["h"], tree.scale(away, message["scale"]))
        update, _ = super().client_update(ctx, message, {"h": h}, steps)
        return update, {"h": h, "sent": tree.subtract(message["params"], update["delta"])}

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        moved = tree.subtract(server["params"], tree.weighted_sum(updates["delta"], weights))
        scale = torch.full_like(server["scale"], self.probability(ctx) / float(ctx.lr))
        return {**server, "params": moved, "scale": scale}
