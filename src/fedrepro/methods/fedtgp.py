r"""FedTGP (Zhang et al., AAAI 2024), on FedAvg as in FedGO's comparison.

$$ w_k \approx \mathrm{argmin}_v \, F_k(v) + \lambda \, \mathrm{mean}_i \frac{1}{d} \|h_i(v) - \hat
P_{y_i}\|^2 $$

$$ \hat P \approx \mathrm{argmin}_P \, - \mathrm{mean}_{k, c} \log \frac{e^{-\|P_{k,c} - P_c\| -
\delta}}{e^{-\|P_{k,c} - P_c\| - \delta} + \sum_{c' \ne c} e^{-\|P_{k,c} - P_{c'}\|}} $$

Symbols: $h_i$: features of sample $i$, of which there are $d$; $P_{k,c}$: client $k$'s mean
features of class $c$; $\hat P$: the server's prototypes; $\delta$: the largest distance of a
class's mean prototype to its nearest other, at most ``margin``; $\lambda$: ``strength``.

The paper is "FedTGP: trainable global prototypes with adaptive-margin-enhanced contrastive learning
for data and model heterogeneity in federated learning". Clients send the mean features of each of
their classes. From these the server trains a small network that makes one prototype per class, and
from the second round on clients pull their features towards those prototypes.

In the paper each client has its own model and predicts by the nearest prototype. FedGO only says
that it evaluates the server's model: here models are averaged as by FedAvg and scored with their
head (A8). The server's network and its SGD are those of the released code.

https://arxiv.org/abs/2401.03230
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedrepro.engine.fidelity import NonNegative, PositiveWhole
from fedrepro.engine.initialise import fresh_linear
from fedrepro.engine.method import Context, Method, Tree, descend, require_classification
from fedrepro.engine.net import differentiate
from fedrepro.engine.optim import sgd
from fedrepro.engine.steps import Steps, samples_of, shuffle
from fedrepro.methods.distilling.prototypes import contrast, generated, margin, pull
from fedrepro.support.errors import refusal


class Reported(NamedTuple):
    """Clients' prototypes [n, features] and their classes [n]."""

    prototypes: Tensor
    labels: Tensor

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.prototypes[rows], self.labels[rows]


def fresh_net(classes: int, features: int, like: Tensor, rng: torch.Generator) -> Tree:
    """The server's network at PyTorch's default initial weights, for :func:`generated`."""
    layers = {name: fresh_linear(features, features, like, rng) for name in ("hidden", "output")}
    embedding = torch.randn(classes, features, generator=rng, dtype=like.dtype).to(like)
    return {"embedding": embedding, **layers}


def class_means(
    features: Tensor, labels: Tensor, classes: int, real: Tensor
) -> Mapping[str, Tensor]:
    """Mean features of each class [classes, features], and which classes occur [classes].

    Args:
        features: [n, features].
        labels: int64 [n].
        real: [n], 1 for samples that count, 0 for padding.
    """
    hits = (labels[:, None] == torch.arange(classes, device=labels.device)) * real[:, None]
    counts = hits.sum(0)
    means = hits.T.to(features) @ features / counts.clamp(min=1)[:, None].to(features)
    return {"prototypes": means, "there": (counts > 0).to(features)}


@dataclass(frozen=True)
class FedTGP(Method):
    """FedTGP (Zhang et al., AAAI 2024), on FedAvg."""

    strength: NonNegative = 0.001  # lambda: weight of the clients' term
    margin: NonNegative = 100.0  # upper bound of the margin between classes
    server_epochs: PositiveWhole = 1000  # of the prototypes' network, in a round
    server_rate: NonNegative = 0.005  # its learning rate
    server_batch: PositiveWhole = 10  # clients' prototypes in a mini-batch

    def check(self, ctx: Context) -> None:
        ctx.net.require_chain()
        if self.strength:  # prototypes are of the body's features
            ctx.net.require_trained_parts("fedtgp", ("body",))
        require_classification(self, ctx, "it has a prototype of each class")

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        head = ctx.net.head(params).values()
        weight = next((leaf for leaf in head if leaf.dim() == 2), None)
        if weight is None:
            why = "model: expected one whose head trains a linear layer"
            raise refusal("method fedtgp", why, "model")
        classes, features = ctx.net.outputs(params), ctx.net.width("fedtgp", params)
        net = fresh_net(classes, features, weight, ctx.stream("initial prototypes"))
        known = torch.zeros((), device=weight.device)
        return {
            **super().init_server(ctx, params),
            "net": net,
            "prototypes": generated(net),
            "known": known.to(weight),
        }

    def broadcast(self, ctx: Context, server: Tree) -> Tree:
        shared = {name: server[name] for name in ("prototypes", "known")}
        return {**super().broadcast(ctx, server), **shared}

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        features, logits = ctx.net.features_and_output(params, batch["x"])
        term = pull(
            features.flatten(1), message["prototypes"], batch["y"], self.strength, batch.get("real")
        )
        known: Tensor = message["known"]
        return ctx.task.loss(logits, batch) + known * term

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        update, client_state = super().client_update(ctx, message, client_state, steps)
        params = {name: leaf - update["delta"][name] for name, leaf in message["params"].items()}
        x, y, real = samples_of(steps, ctx.epochs)
        with torch.no_grad(), ctx.net.testing():
            features = ctx.net.features(params, x).flatten(1)
        classes = len(message["prototypes"])
        return {**update, **class_means(features, y, classes, real)}, client_state

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        after = super().server_update(ctx, server, updates, weights)
        there = updates["there"] > 0
        gap = margin(updates["prototypes"], there, self.margin)
        labels = torch.arange(there.shape[1], device=there.device).expand(there.shape)[there]
        reported = Reported(updates["prototypes"][there], labels)
        everything = torch.arange(len(labels), device=there.device)
        orders = shuffle(everything, self.server_epochs, ctx.stream("prototypes"))

        def gradient(
            ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
        ) -> Tree:
            return differentiate(lambda net: contrast(net, batch["x"], batch["y"], gap), params)

        learning = replace(ctx, optimizer=sgd(), lr=self.server_rate)
        steps = Steps(reported, orders, self.server_batch, {})
        net, _ = descend(learning, gradient, {}, {}, server["net"], steps)
        known = torch.ones_like(server["known"])
        return {**after, "net": net, "prototypes": generated(net), "known": known}
