r"""FedPAC (Xu et al., ICLR 2023, "Feature alignment and classifier collaboration", Algorithm 1).

$$ \theta_k \approx \mathrm{argmin}_\theta \, F_k(\theta, \phi_k) + \lambda \, \mathrm{mean}_i
\frac{1}{d} \|h_i(\theta) - c_{y_i}\|^2, \quad \phi_k^{\text{next}} = \sum_j \alpha_{k,j} \phi_j $$

$$ \alpha_k = \mathrm{argmin}_{\alpha \in \text{simplex}} \sum_j \alpha_j^2 V_j + \sum_c \Big\|
q_{k,c} - \sum_j \alpha_j q_{j,c} \Big\|^2 $$

Symbols: $\theta$: the body, which is averaged; $\phi_k$: client $k$'s head; $h_i$: features of
sample $i$, of which there are $d$; $c$: the mean features of each class over clients; $q_{k,c}$:
the share of class $c$ among client $k$'s samples times its mean features; $V_j$: the variance of
client $j$'s features, divided by its number of samples; $\lambda$: ``strength``.

A client trains its head on the received body for one epoch, then the body under that head, with
features pulled to the centroids. Which clients' heads it takes is the quadratic programme above, by
bias and variance of the combined head. In the paper the server solves it and sends each client one
head; here it sends all heads and each client solves it, with the same result.

https://arxiv.org/abs/2306.11867
"""

from dataclasses import dataclass

import torch

from fedrepro.engine import tree
from fedrepro.engine.descent import descend
from fedrepro.engine.fidelity import NonNegative
from fedrepro.engine.method import require_classification
from fedrepro.engine.net import differentiate
from fedrepro.engine.steps import samples_of, some_epochs
from fedrepro.methods.personal.partly_shared import PartlyShared

ITERATIONS = 200  # of projected gradient, for the quadratic programme


def onto_simplex(point, allowed):
    """The nearest point of the simplex [n], with zeros where ``allowed`` [n] is 0."""
    shut = point - 1e6 * (1 - allowed)
    ordered = shut.sort(descending=True).values
    excess = ordered.cumsum(0) - 1
    places = torch.arange(1, len(point) + 1, device=point.device)
    count = (ordered - excess / places > 0).sum()
    level = (excess * (places == count)).sum() / count
    return (shut - level).clamp(min=0)


def collaboration(own, theirs, variances, known):
    """The weights [clients] of others' heads for a client.

    Args:
        own: q of the client [classes, features].
        theirs: q of all clients [clients, classes, features].
        variances: V [clients].
        known: [clients], 1 for clients that have sent a head.
    """
    biases = (theirs - own).flatten(1)
    matrix = biases @ biases.T + torch.diag(variances)
    rate = 1 / (matrix.diagonal() * known).sum().clamp(min=1e-12)  # the trace bounds its curvature
    weights = known / known.sum().clamp(min=1)
    for _ in range(ITERATIONS):
        weights = onto_simplex(weights - rate * matrix @ weights, known)
    return weights


@dataclass(frozen=True)
class FedPAC(PartlyShared):
    """FedPAC (Xu et al., ICLR 2023, Algorithm 1)."""

    strength: NonNegative = 1.0  # lambda

    def check(self, ctx):
        super().check(ctx)
        ctx.net.refuse_running_statistics("fedpac")
        require_classification(self, ctx, "it has a centroid of each class")

    def shared(self, net, params):
        return net.body(params)

    def init_server(self, ctx, params):
        head = ctx.net.head(params)
        weight = next(leaf for leaf in head.values() if leaf.dim() == 2)
        classes, clients = ctx.net.outputs(params), ctx.clients
        none = weight.new_zeros(clients, classes, weight.shape[1])
        return {
            **super().init_server(ctx, params),
            "centroids": none[0].clone(),
            "seen": weight.new_zeros(classes),
            "heads": tree.apply(lambda leaf: leaf.expand(clients, *leaf.shape).clone(), head),
            "q": none,
            "variances": weight.new_zeros(clients),
            "known": weight.new_zeros(clients),
        }

    def broadcast(self, ctx, server):
        more = ("centroids", "seen", "heads", "q", "variances", "known")
        return {**super().broadcast(ctx, server), **{name: server[name] for name in more}}

    def statistics(self, ctx, params, steps, classes):
        """Sums of features by class [classes, features], counts [classes], and V."""
        x, y, real = samples_of(steps, ctx.epochs)
        with torch.no_grad(), ctx.net.testing():
            features = ctx.net.features(params, x).flatten(1)
        hits = ((y[:, None] == torch.arange(classes, device=y.device)) * real[:, None]).to(features)
        sums, counts = hits.T @ features, hits.sum(0)
        total = counts.sum()
        squares = (features.square().sum(1) * hits.sum(1)).sum() / total
        variance = (squares - (sums / total).square().sum()) / total
        return sums, counts, variance.clamp(min=1e-12)

    def of_head(self, ctx, message, client_state, params, batch):
        """The gradient of the head, with the body held fixed."""
        whole = client_state["rest"]
        return differentiate(
            lambda head: ctx.task.loss(ctx.net({**whole, **head}, batch["x"]), batch), params
        )

    def of_body(self, ctx, message, client_state, params, batch):
        """The gradient of the body, with the head held fixed and features pulled to centroids."""

        def loss(body):
            whole = {**body, **client_state["rest"]}
            features, outputs = ctx.net.features_and_output(whole, batch["x"])
            apart = (features.flatten(1) - message["centroids"][batch["y"]]).square().mean(-1)
            apart = apart * message["seen"][batch["y"]]
            real = batch["real"] if "real" in batch else torch.ones_like(apart)
            term = (apart * real).sum() / real.sum().clamp(min=1)
            return ctx.task.loss(outputs, batch) + self.strength * term

        return differentiate(loss, params)

    def client_update(self, ctx, message, client_state, steps):
        body = message["params"]
        whole = ctx.net.ordered({**body, **client_state["kept"]})
        sums, counts, variance = self.statistics(ctx, whole, steps, len(message["seen"]))
        q = sums / counts.sum()
        weights = collaboration(q, message["q"], message["variances"], message["known"])
        combined = tree.weighted_sum(message["heads"], weights)
        combined = tree.where(message["known"].sum() > 0, combined, client_state["kept"])
        once = some_epochs(steps, ctx.epochs, 0, 1)
        head, _ = descend(ctx, self.of_head, message, {"rest": body}, combined, once)
        moved, _ = descend(ctx, self.of_body, message, {"rest": head}, body, steps)
        update = {"delta": tree.subtract(body, moved), "head": head, "sums": sums}
        return {**update, "counts": counts, "variance": variance}, {"kept": head}

    def server_update(self, ctx, server, updates, weights):
        after = super().server_update(ctx, server, updates, weights)
        places = torch.as_tensor(ctx.cohort, device=server["known"].device)
        sums, counts = updates["sums"].sum(0), updates["counts"].sum(0)
        means = sums / counts.clamp(min=1)[:, None]
        there = (counts > 0).to(means)

        def put(table, rows):
            return table.index_copy(0, places, rows)

        return {
            **after,
            "centroids": torch.where(there[:, None] > 0, means, server["centroids"]),
            "seen": torch.maximum(server["seen"], there),
            "heads": tree.apply(put, server["heads"], updates["head"]),
            "q": put(server["q"], updates["sums"] / updates["counts"].sum(1)[:, None, None]),
            "variances": put(server["variances"], updates["variance"]),
            "known": put(server["known"], torch.ones_like(updates["variance"])),
        }
