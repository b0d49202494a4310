"""Methods in which clients keep models of their own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from support.by_hand import Array, Model, initial
from support.oracles.averaging import sum_of_norms
from support.oracles.federation import LAYERS, WIDTHS, Batch, Clients, Played, classified, mean
from support.oracles.numeric import (
    SGD,
    cross_entropy,
    gradient,
    linear,
    named,
    plus,
    square,
    under,
    zeros,
)

Pull = Callable[[Model, Model], Any]


def squared(mu: float) -> Pull:
    return lambda model, anchor: mu / 2 * square(plus(model, anchor, -1))


def unsquared(mu: float) -> Pull:
    return lambda model, anchor: mu * sum_of_norms(model, anchor)


def pulled(pull: Pull, anchor: Model) -> Callable[[Model, Batch], Any]:
    return lambda model, batch: classified(model, batch) + pull(model, anchor)


def ditto(clients: Clients, pull: Callable[[float], Pull] = squared) -> Played:
    """Li et al., Algorithm 1: a client goes on with its own model, pulled to the global one."""
    model, own = clients.initial(), {}
    for t in range(clients.rounds):
        cohort = clients.cohort(t)
        epochs = slice(clients.options["personal_epochs"])
        for k in cohort:
            loss = pulled(pull(clients.options["mu"]), model)
            own[k] = clients.train(own.get(k, clients.initial()), t, k, loss, epochs=epochs)
        ends = [clients.train(model, t, k) for k in cohort]
        model = mean(ends, clients.shares(cohort))
        yield {"params": model}, {k: {"personal": each} for k, each in own.items()}


def ditto_released(clients: Clients) -> Played:
    return ditto(clients, unsquared)


def apfl(clients: Clients, released: bool = False) -> Played:
    """Deng et al., Algorithm 1: v descends the loss of alpha v + (1 - alpha) w, w its own.

    Released: w as it was received is mixed, and has no weight decay.
    """
    model, own, alpha = clients.initial(), {}, clients.options["alpha"]
    for t in range(clients.rounds):
        cohort, ends = clients.cohort(t), []
        for k in cohort:
            w, v = model, own.get(k, clients.initial())
            of_w = SGD(clients.momentum, 0.0 if released else clients.weight_decay)
            of_v = clients.optimizer()
            for batch in (each for epoch in clients.batches(t, k)[0] for each in epoch):
                fixed = model if released else w

                def mixed(v: Model, fixed: Model = fixed, batch: Batch = batch) -> Any:
                    both = {n: alpha * v[n] + (1 - alpha) * fixed[n] for n in v}
                    return classified(both, batch)

                slopes = gradient(lambda w, batch=batch: classified(w, batch), w)
                v = of_v.step(v, gradient(mixed, v), clients.rate(t))
                w = of_w.step(w, slopes, clients.rate(t))
            ends.append(w)
            own[k] = v
        model = mean(ends, clients.shares(cohort))
        yield {"params": model}, {k: {"local": each} for k, each in own.items()}


def apfl_released(clients: Clients) -> Played:
    return apfl(clients, released=True)


def pfedme(clients: Clients, released: bool = False) -> Played:
    """Dinh et al., eq. 3; an epoch solves it, then w - lr mu (w - theta).

    Released: one optimizer for all epochs of a round, and a pull that is not squared.
    """
    model, own, mu = clients.initial(), {}, clients.options["mu"]
    for t in range(clients.rounds):
        cohort, ends = clients.cohort(t), []
        for k in cohort:
            w = theta = model
            optimizer = clients.optimizer()
            for epoch in range(clients.epochs):
                optimizer = optimizer if released else clients.optimizer()
                loss = pulled((unsquared if released else squared)(mu), w)
                theta = clients.train(
                    theta, t, k, loss, epochs=slice(epoch, epoch + 1), optimizer=optimizer
                )
                w = plus(w, plus(w, theta, -1), -clients.rate(t) * mu)
            ends.append(w)
            own[k] = theta
        model = mean(ends, clients.shares(cohort))
        yield {"params": model}, {k: {"personal": each} for k, each in own.items()}


def pfedme_released(clients: Clients) -> Played:
    return pfedme(clients, released=True)


def pfedme_steps(clients: Clients) -> Played:
    """Algorithm 1 as printed: K steps of theta and one of w on every mini-batch, a plain mean."""
    model, own, options = clients.initial(), {}, clients.options
    for t in range(clients.rounds):
        cohort, ends = clients.cohort(t), []
        for k in cohort:
            w = theta = model
            for batch in (each for epoch in clients.batches(t, k)[0] for each in epoch):
                for _ in range(options["inner_steps"]):
                    loss = pulled(squared(options["mu"]), w)
                    slopes = gradient(lambda at, loss=loss, batch=batch: loss(at, batch), theta)
                    theta = plus(theta, slopes, -options["personal_lr"])
                w = plus(w, plus(w, theta, -1), -clients.rate(t) * options["mu"])
            ends.append(w)
            own[k] = theta
        model = mean(ends, np.full(len(ends), 1 / len(ends)))
        yield {"params": model}, {k: {"personal": each} for k, each in own.items()}


# --- one part of the model is shared --------------------------------------------------------------
def partly(clients: Clients, shared: str, local: Callable[..., Model] | None = None) -> Played:
    """FedPer ("body") and LG-FedAvg ("head"): the other part stays at the client."""
    local, first = local or clients.train, clients.initial()
    model, own = dict(first), {}
    rest = {name: leaf for name, leaf in first.items() if not name.startswith(shared)}
    for t in range(clients.rounds):
        cohort, ends = clients.cohort(t), []
        for k in cohort:
            ends.append(local({**model, **own.get(k, rest)}, t, k))
            own[k] = {name: ends[-1][name] for name in rest}
        averaged = mean(ends, clients.shares(cohort))
        model = {name: model[name] if name in rest else averaged[name] for name in model}
        yield {"params": model}, {k: {"kept": each} for k, each in own.items()}


def fedper(clients: Clients) -> Played:
    return partly(clients, "body")


def lg_fedavg(clients: Clients) -> Played:
    return partly(clients, "head")


def fedrep(clients: Clients) -> Played:
    """Collins et al., Algorithm 1: the head on the received body, then the body under that head."""

    def local(model: Model, t: int, k: int) -> Model:
        headed = clients.train(model, t, k, only=lambda name: name.startswith("head"))
        epochs = slice(clients.options["body_epochs"])
        return clients.train(headed, t, k, epochs=epochs, only=lambda name: name.startswith("body"))

    return partly(clients, "body", local)


# --- SuPerFed: thesis, eqs. 2.3 to 2.6 ------------------------------------------------------------
def superfed(clients: Clients, by_layer: bool, released: bool = False) -> Played:
    model, own, options = clients.initial(), {}, clients.options
    pull = (unsquared if released else squared)(options["mu"])
    for t in range(clients.rounds):
        cohort, ends = clients.cohort(t), []
        if t < int(options["start"] * clients.rounds):
            ends = [clients.train(model, t, k, pulled(pull, model)) for k in cohort]
        else:
            for k in cohort:
                fresh = _own_initial(clients, k)
                random = clients.batches(t, k)[1]
                shape = (clients.steps(t, k), 2) if by_layer else (clients.steps(t, k),)
                drawn = torch.rand(shape, generator=random).numpy()

                def loss(
                    both: Model, batch: Batch, drawn: Array = drawn, sent: Model = model
                ) -> Any:
                    f, own_part = under("f", both), under("l", both)
                    at = drawn[batch.step]
                    shares = {
                        n: at[LAYERS.index(n[: n.rindex(".")])] if by_layer else at for n in f
                    }
                    mixed = {n: (1 - shares[n]) * f[n] + shares[n] * own_part[n] for n in f}
                    inner = sum((f[n] * own_part[n]).sum() for n in f)
                    if released:
                        inner = inner + 1e-6 * sum(leaf.size for leaf in f.values())
                    cosine = inner**2 / (square(f) * square(own_part))
                    return classified(mixed, batch) + pull(f, sent) + options["nu"] * cosine

                both = {**named("f", model), **named("l", own.get(k, fresh))}
                both = clients.train(both, t, k, loss)
                ends.append(under("f", both))
                own[k] = under("l", both)
        model = mean(ends, clients.shares(cohort))
        yield {"params": model}, {k: {"local": each} for k, each in own.items()}


def _own_initial(clients: Clients, k: int) -> Model:
    """A client's own initial weights."""
    return initial(LAYERS, WIDTHS, clients.seed, "own", k)


def superfed_mm(clients: Clients) -> Played:
    return superfed(clients, by_layer=False)


def superfed_lm(clients: Clients) -> Played:
    return superfed(clients, by_layer=True)


def superfed_mm_released(clients: Clients) -> Played:
    return superfed(clients, by_layer=False, released=True)


# --- nothing is shared, or all but BatchNorm ------------------------------------------------------
def local(clients: Clients) -> Played:
    """Every client trains alone, in the rounds in which it takes part."""
    own: dict[int, Model] = {}
    for t in range(clients.rounds):
        for k in clients.cohort(t):
            own[k] = clients.train(own.get(k, clients.initial()), t, k)
        yield {"params": clients.initial()}, {k: {"local": each} for k, each in own.items()}


NORMED = "body.1."  # the BatchNorm layer


def fedbn(clients: Clients) -> Played:
    """Li et al., Algorithm 1, for a linear layer, BatchNorm, tanh and a linear layer."""
    scale, shift, of_mean, of_var = (
        f"{NORMED}{name}" for name in ("weight", "bias", "running_mean", "running_var")
    )
    ones, none = np.ones(WIDTHS[1]), np.zeros(WIDTHS[1])
    first = {scale: ones, shift: none, of_mean: none, of_var: ones}
    model, own = clients.initial(), {}

    def loss(at: Model, batch: Batch) -> Any:
        z = linear(at, "body.0", batch.x)
        z = (z - z.mean(0)) / np.sqrt(((z - z.mean(0)) ** 2).mean(0) + 1e-5)
        return cross_entropy(linear(at, "head", np.tanh(at[scale] * z + at[shift])), batch.y)

    for t in range(clients.rounds):
        cohort, ends = clients.cohort(t), []
        for k in cohort:
            end, sgd = {**model, **own.get(k, first)}, clients.optimizer()
            for batch in (each for epoch in clients.batches(t, k)[0] for each in epoch):
                z = linear(end, "body.0", batch.x)
                moving = {name: leaf for name, leaf in end.items() if "running" not in name}
                end = sgd.step(
                    end, gradient(lambda at, b=batch: loss(at, b), moving), clients.rate(t)
                )
                end[of_mean] = 0.9 * end[of_mean] + 0.1 * z.mean(0)
                end[of_var] = 0.9 * end[of_var] + 0.1 * z.var(0, ddof=1)
            own[k] = {name: end[name] for name in first}
            ends.append({name: end[name] for name in model})
        model = mean(ends, clients.shares(cohort))
        yield {"params": {**model, **first}}, {k: {"kept": each} for k, each in own.items()}


def per_fedavg(clients: Clients) -> Played:
    """Fallah et al., Algorithm 1: (I - alpha H) of the gradient after a step; FO without H.

    H times v is the derivative of the gradient along v.
    """
    options, model, own = clients.options, clients.initial(), {}
    shares = 3 if options["hessian_free"] else 2

    def gradient_of(batch: Batch, which: int, at: Model) -> Model:
        x, y = batch.x[which::shares], batch.y[which::shares]
        part = Batch(x, y, batch.step)
        return gradient(lambda at: classified(at, part), at) if len(y) else zeros(at)

    def slope(at: Model, batch: Batch) -> Model:
        inner = gradient_of(batch, 0, at)
        outer = gradient_of(batch, 1, plus(at, inner, -options["alpha"]))
        if shares == 2:
            return outer
        ends = [gradient_of(batch, 2, plus(at, outer, d * options["delta"])) for d in (1, -1)]
        return plus(outer, plus(*ends, -1), -options["alpha"] / (2 * options["delta"]))

    for t in range(clients.rounds):
        cohort = clients.cohort(t)
        for k in cohort:
            everything = Batch(clients.x[k], clients.y[k], 0)
            own[k] = gradient(lambda at, b=everything: classified(at, b), model)
        ends = [clients.train(model, t, k, slope=slope) for k in cohort]
        model = mean(ends, clients.shares(cohort))
        yield {"params": model}, {k: {"gradient": each} for k, each in own.items()}
