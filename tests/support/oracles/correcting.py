"""Methods that change a client's local steps: FedDyn, FedSAM, FedSpeed, MOON, Scaffnew."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from support.by_hand import Array, Model
from support.oracles.averaging import fedavg
from support.oracles.federation import Batch, Clients, Played, classified, flat, mean
from support.oracles.numeric import features, gradient, norm, plus, square, zeros

Slope = Callable[[Model, Batch], Model]


def times(model: Model, factor: float) -> Model:
    return {name: factor * leaf for name, leaf in model.items()}


def feddyn(clients: Clients) -> Played:
    """Acar et al., Algorithm 1, in its own terms: gradients g_k, h <- h - alpha sum n_k / n d_k."""
    alpha, model = clients.options["alpha"], clients.initial()
    h, own = zeros(model), {}
    for t in range(clients.rounds):
        cohort, ends = clients.cohort(t), []
        for k in cohort:
            g = own.get(k, zeros(model))

            def loss(at: Model, batch: Batch, g: Model = g, sent: Model = model) -> Any:
                linear = sum((g[name] * leaf).sum() for name, leaf in at.items())
                return classified(at, batch) - linear + alpha / 2 * square(plus(at, sent, -1))

            ends.append(clients.train(model, t, k, loss))
            away = plus(ends[-1], model, -1)
            own[k] = plus(g, away, -alpha)
            h = plus(h, away, -alpha * len(clients.y[k]) / clients.sizes().sum())
        model = plus(mean(ends, clients.shares(cohort)), h, -1 / alpha)
        yield (
            {"params": model, "h": times(h, -1 / alpha)},
            {k: {"h": times(g, -1 / alpha)} for k, g in own.items()},
        )


def worst(at: Model, batch: Batch, rho: float) -> Model:
    """Foret et al., eq. 2: w + rho g / |g|."""
    g = gradient(lambda at: classified(at, batch), at)
    return plus(at, g, rho / norm(flat(g)))


def fedsam(clients: Clients) -> Played:
    """Qu et al., Algorithm 1: the gradient at the worst point."""

    def slope(at: Model, batch: Batch) -> Model:
        there = worst(at, batch, clients.options["rho"])
        return gradient(lambda at: classified(at, batch), there)

    return fedavg(clients, lambda sent, t, k: clients.train(sent, t, k, slope=slope))


def fedspeed_released(clients: Clients) -> Played:
    """The authors' code: the server adds the mean of all clients' corrections (B25)."""
    return fedspeed(clients, True)


def fedspeed(clients: Clients, of_all: bool = False) -> Played:
    """Sun et al., Algorithm 1, in its own terms, with 1 / lambda = mu."""
    options, model, own = clients.options, clients.initial(), {}
    penalty = 1 / options["mu"]  # lambda
    for t in range(clients.rounds):
        cohort, ends = clients.cohort(t), []
        for k in cohort:
            g = own.get(k, zeros(model))

            def slope(at: Model, batch: Batch, g: Model = g, sent: Model = model) -> Model:
                here = gradient(lambda at: classified(at, batch), at)
                there = worst(at, batch, options["rho"])
                merged = plus(
                    times(here, 1 - options["alpha"]),
                    gradient(lambda at: classified(at, batch), there),
                    options["alpha"],
                )
                return plus(plus(merged, g, -1), plus(at, sent, -1), 1 / penalty)

            end = clients.train(model, t, k, slope=slope)
            own[k] = plus(g, plus(end, model, -1), -1 / penalty)
            ends.append(end if of_all else plus(end, own[k], -penalty))
        model, kept = mean(ends, clients.shares(cohort)), {k: times(own[k], -penalty) for k in own}
        server = {"params": model}
        if of_all:
            weights = clients.shares(range(len(clients.y)))
            every = [kept.get(k, zeros(model)) for k in range(len(clients.y))]
            server = {"params": plus(model, mean(every, weights), 1), "h": mean(every, weights)}
            model = server["params"]
        yield server, {k: {"h": h} for k, h in kept.items()}


def moon(clients: Clients) -> Played:
    """Li et al., eq. 3: towards the received model's features, away from the previous model's."""
    options, model, own = clients.options, clients.initial(), {}

    def similar(z: Array, other: Array) -> Array:
        lengths = np.sqrt((z**2).sum(1)) * np.sqrt((other**2).sum(1))
        return np.exp((z * other).sum(1) / lengths / options["tau"])

    for t in range(clients.rounds):
        cohort, ends = clients.cohort(t), []
        for k in cohort:
            before = own.get(k, clients.initial())

            def loss(at: Model, batch: Batch, before: Model = before, sent: Model = model) -> Any:
                z = features(at, batch.x)
                near = similar(z, features(sent, batch.x))
                far = similar(z, features(before, batch.x))
                return classified(at, batch) - options["mu"] * np.log(near / (near + far)).mean()

            ends.append(clients.train(model, t, k, loss))
            own[k] = ends[-1]
        model = mean(ends, clients.shares(cohort))
        yield {"params": model}, {k: {"previous": each} for k, each in own.items()}


def scaffnew(clients: Clients) -> Played:
    """Mishchenko et al., Algorithm 2, with the coins of its rounds; h_k as after its last round."""
    p, model = clients.options["p"], clients.initial()
    everyone = range(len(clients))
    h = {k: zeros(model) for k in everyone}
    for t in range(clients.rounds):
        coin = torch.rand((), dtype=torch.float64, generator=clients.server_stream(t, "coin"))
        length = 1 + math.floor(math.log(1 - float(coin)) / math.log(1 - p))
        ends = []
        for k in everyone:
            at = model
            batches = [each for epoch in clients.batches(t, k)[0] for each in epoch]
            for batch in batches[:length]:
                g = gradient(lambda at, batch=batch: classified(at, batch), at)
                g = plus(plus(g, at, clients.weight_decay), h[k], -1)
                at = plus(at, g, -clients.rate(t))
            ends.append(at)
        model = mean(ends, clients.shares(everyone))
        scale = p / clients.rate(t)
        yield (
            {"params": model, "scale": np.array(scale)},
            {k: {"h": h[k], "sent": ends[k]} for k in everyone},
        )
        h = {k: plus(h[k], plus(model, ends[k], -1), scale) for k in everyone}
