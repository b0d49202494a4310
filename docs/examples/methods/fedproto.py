r"""FedProto (Tan et al., AAAI 2022, "Federated prototype learning across heterogeneous clients").

$$ w_k \approx \mathrm{argmin}_v \, F_k(v) + \lambda \, \mathrm{mean}_i \frac{1}{d} \|h_i(v) -
P_{y_i}\|^2, \quad P_c = \frac{\sum_k n_{k,c} P_{k,c}}{\sum_k n_{k,c}} $$

Symbols: $h_i$: features of sample $i$, of which there are $d$; $P_{k,c}$: the mean features of the
$n_{k,c}$ samples of class $c$ that client $k$ has; $P$: the server's prototypes; $\lambda$:
``strength``.

Clients share no parameter: each keeps its own model, and sends the mean features of its classes
(eq. 3). From the second round on it pulls its features towards the server's prototypes (eq. 7). The
distance is a mean of squares, as in the authors' code. Clients are scored with their own heads; the
paper also predicts the class of the nearest prototype.

https://arxiv.org/abs/2105.00243
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedrepro.engine.descent import descend
from fedrepro.engine.fidelity import NonNegative
from fedrepro.engine.method import Method, require_classification
from fedrepro.engine.steps import samples_of
from fedrepro.support.errors import UserError


@dataclass(frozen=True)
class FedProto(Method):
    """FedProto (Tan et al., AAAI 2022)."""

    uses_server_optimizer: ClassVar[bool] = False  # no parameter is sent
    own_classifier: ClassVar[bool] = True  # and none is shared

    strength: NonNegative = 1.0  # lambda

    def check(self, ctx):
        require_classification(self, ctx, "it has a prototype of each class")

    def init_server(self, ctx, params):
        weight = next(leaf for leaf in ctx.net.head(params).values() if leaf.dim() == 2)
        prototypes = weight.new_zeros(ctx.net.outputs(params), weight.shape[1])
        return {"params": params, "prototypes": prototypes, "known": prototypes[:, 0].clone()}

    def init_client(self, ctx, rng):
        return {"own": ctx.initial}

    def broadcast(self, ctx, server):
        return {name: server[name] for name in ("prototypes", "known")}

    def loss(self, ctx, message, client_state, params, batch):
        features, outputs = ctx.net.features_and_output(params, batch["x"])
        apart = (features.flatten(1) - message["prototypes"][batch["y"]]).square().mean(-1)
        apart = apart * message["known"][batch["y"]]  # a class without a prototype pulls nothing
        real = batch["real"] if "real" in batch else torch.ones_like(apart)
        term = (apart * real).sum() / real.sum().clamp(min=1)
        return ctx.task.loss(outputs, batch) + self.strength * term

    def client_update(self, ctx, message, client_state, steps):
        own = client_state["own"]
        params, _ = descend(ctx, self.gradient, message, client_state, own, steps)
        x, y, real = samples_of(steps, ctx.epochs)
        with torch.no_grad(), ctx.net.testing():
            features = ctx.net.features(params, x).flatten(1)
        classes = torch.arange(len(message["known"]), device=y.device)
        hits = ((y[:, None] == classes) * real[:, None]).to(features)
        return {"sums": hits.T @ features, "counts": hits.sum(0)}, {"own": params}

    def server_update(self, ctx, server, updates, weights):
        counts = updates["counts"].sum(0)
        means = updates["sums"].sum(0) / counts.clamp(min=1)[:, None]
        there = (counts > 0).to(means)
        kept = torch.where(there[:, None] > 0, means, server["prototypes"])
        return {**server, "prototypes": kept, "known": torch.maximum(server["known"], there)}

    def client_model(self, ctx, server, updates, place):
        raise UserError(
            "save_models_at: method fedproto: expected another method: clients send no models"
        )

    def eval_model(self, ctx, server, client_state):
        return client_state["own"] if client_state else server["params"]
