r"""FedALA (Zhang et al., AAAI 2023, "Adaptive local aggregation", eq. 4 to 6).

$$ \hat\phi_k = \phi_k + (\phi - \phi_k) \odot W_k, \quad W_k \leftarrow \mathrm{clip}_{[0, 1]}
\big(W_k - \eta \, \nabla_{W_k} F_k(\theta, \hat\phi_k)\big) $$

Symbols: $\theta$: the received body; $\phi$: the received head; $\phi_k$: client $k$'s own head
from its last round; $W_k$: a weight for each of its parameters, 1 at first.

A client starts each round from the received body and a mixture of both heads, whose weights it has
learned on its own samples. It then trains all of it, and sends it. Two things differ from the
paper: the weights are learned for one epoch of the round's mini-batches, also in the first round in
which there is something to mix, where the paper goes on until the loss settles; and on all samples,
where the paper draws 80 % of them.

https://arxiv.org/abs/2212.01197
"""

from dataclasses import dataclass

import torch

from fedrepro.engine import tree
from fedrepro.engine.descent import descend, scan
from fedrepro.engine.fidelity import NonNegative
from fedrepro.engine.method import Method
from fedrepro.engine.net import differentiate
from fedrepro.engine.steps import some_epochs


@dataclass(frozen=True)
class FedALA(Method):
    """FedALA (Zhang et al., AAAI 2023)."""

    rate: NonNegative = 1.0  # eta: of the weights

    def check(self, ctx):
        ctx.net.require_trained_parts("fedala")

    def init_client(self, ctx, rng):
        ones = tree.apply(torch.ones_like, ctx.net.head(ctx.initial))
        return {"own": ctx.initial, "weights": ones, "trained": torch.zeros(())}

    def client_update(self, ctx, message, client_state, steps):
        received = message["params"]
        own, weights = ctx.net.head(client_state["own"]), client_state["weights"]

        def mixed(weights):
            head = {
                name: leaf + (received[name] - leaf) * weights[name] for name, leaf in own.items()
            }
            return ctx.net.ordered({**received, **head})

        def loss_at(weights, batch):
            with ctx.net.testing():  # a pass that moves no running statistics
                return self.loss(ctx, message, client_state, mixed(weights), batch)

        def step(weights, batch):
            slope = differentiate(lambda at: loss_at(at, batch), weights)
            return tree.apply(lambda w, g: (w - self.rate * g).clamp(0, 1), weights, slope)

        # `descend` cannot keep weights between 0 and 1 after each step: `scan` applies any step.
        learned = scan(step, weights, some_epochs(steps, ctx.epochs, 0, 1))
        # A client that is new takes the received model: it has none of its own to keep.
        weights = tree.where(client_state["trained"] > 0, learned, weights)
        params, _ = descend(ctx, self.gradient, message, client_state, mixed(weights), steps)
        state = {
            "own": params,
            "weights": weights,
            "trained": torch.ones_like(client_state["trained"]),
        }
        return {"delta": tree.subtract(received, params)}, state

    def eval_model(self, ctx, server, client_state):
        return client_state["own"] if client_state else server["params"]
