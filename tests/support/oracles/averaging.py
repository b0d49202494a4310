"""Methods that average one model: FedAvg, server optimizers, IMA and its baselines."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from support.by_hand import Array, Model
from support.oracles.federation import Batch, Clients, Played, State, classified, flat, mean
from support.oracles.numeric import (
    Adam,
    cross_entropy,
    features,
    gradient,
    linear,
    logits,
    norm,
    plus,
    relu,
    softmax,
    square,
    zeros,
)

Local = Callable[[Model, int, int], Model]  # (received, round, client) -> the client's model


def fedavg(clients: Clients, local: Local | None = None) -> Played:
    """McMahan et al., Algorithm 1: w <- sum n_k / n w_k."""
    model, local = clients.initial(), local or clients.train
    for t in range(clients.rounds):
        cohort = clients.cohort(t)
        model = mean([local(model, t, k) for k in cohort], clients.shares(cohort))
        yield {"params": model}, {}


def fedavg_released(clients: Clients) -> Played:
    """Equal weights of a sample of clients; the server's rate grows as the clients' decays."""
    model = clients.initial()
    for t in range(clients.rounds):
        ends = [clients.train(model, t, k) for k in clients.cohort(t)]
        average = mean(ends, np.full(len(ends), 1 / len(ends)))
        model = plus(model, plus(average, model, -1), clients.rate(0) / clients.rate(t))
        yield {"params": model}, {}


def central(clients: Clients) -> Played:
    """Ordinary training on everyone's samples: one optimizer for all rounds."""
    model, optimizer = clients.initial(), clients.optimizer()
    for t in range(clients.rounds):
        rate = clients.rate(t)
        if clients.options.get("cosine"):
            rate = clients.rate(0) * (1 + math.cos(math.pi * t / clients.rounds)) / 2
        epochs = slice(clients.options.get("epochs"))
        model = clients.train(model, t, 0, optimizer=optimizer, epochs=epochs, rate=rate)
        yield {"params": model}, {0: {"optimizer": optimizer.state}}


def fedprox(clients: Clients) -> Played:
    """Li et al., eq. 2: F_k(w) + mu/2 |w - w_t|^2."""

    def local(sent: Model, t: int, k: int) -> Model:
        def loss(model: Model, batch: Batch) -> Any:
            pull = clients.options["mu"] / 2 * square(plus(model, sent, -1))
            return classified(model, batch) + pull

        return clients.train(sent, t, k, loss)

    return fedavg(clients, local)


def sum_of_norms(one: Model, other: Model) -> Any:
    """In place of the squared norm in released code."""
    return sum(norm(leaf) for leaf in plus(one, other, -1).values())


def fedprox_released(clients: Clients) -> Played:
    def local(sent: Model, t: int, k: int) -> Model:
        def loss(model: Model, batch: Batch) -> Any:
            return classified(model, batch) + clients.options["mu"] * sum_of_norms(model, sent)

        return clients.train(sent, t, k, loss)

    return fedavg(clients, local)


# --- server optimizers: Reddi et al., Algorithm 2; Hsu et al. ------------------------------------
def served(clients: Clients, rule: Callable[[State, Model], tuple[Model, State]]) -> Played:
    """``rule``: (state, pseudo-gradient w - mean of w_k) -> (step of the server, state)."""
    model, state = clients.initial(), {}
    for t in range(clients.rounds):
        cohort = clients.cohort(t)
        average = mean([clients.train(model, t, k) for k in cohort], clients.shares(cohort))
        step, state = rule(state, plus(model, average, -1))
        model = plus(model, step)
        yield {"params": model, "optimizer": state}, {}


def fedavgm(clients: Clients) -> Played:
    def rule(state: State, slopes: Model) -> tuple[Model, State]:
        velocity = plus(slopes, state.get("momentum", zeros(slopes)), 0.9)
        return {name: -leaf for name, leaf in velocity.items()}, {"momentum": velocity}

    return served(clients, rule)


def adaptive(second: Callable[[Array, Array], Array], beta1: float) -> Callable[[Clients], Played]:
    rate, tau = 0.01, 1e-3

    def play(clients: Clients) -> Played:
        def rule(state: State, slopes: Model) -> tuple[Model, State]:
            m, v = state.get("m", zeros(slopes)), state.get("v")
            v = v or {name: np.full(leaf.shape, tau**2) for name, leaf in slopes.items()}
            m = {name: beta1 * m[name] + (1 - beta1) * leaf for name, leaf in slopes.items()}
            v = {name: second(v[name], leaf**2) for name, leaf in slopes.items()}
            step = {name: -rate * m[name] / (np.sqrt(v[name]) + tau) for name in slopes}
            return step, {"m": m, "v": v}

        return served(clients, rule)

    return play


fedadagrad = adaptive(lambda v, squared: v + squared, 0.0)
fedadam = adaptive(lambda v, squared: 0.99 * v + 0.01 * squared, 0.9)
fedyogi = adaptive(lambda v, squared: v - 0.01 * squared * np.sign(v - squared), 0.9)


# --- IMA: Zhou et al., Algorithm 1 ----------------------------------------------------------------
def first_of_ima(clients: Clients) -> int:
    return int(clients.options["start"] * clients.rounds)


def ima(clients: Clients) -> Played:
    """From round t_s on: the mean of the last P averages is sent; lr(t_s) .97^(t - t_s)."""
    first, length = first_of_ima(clients), clients.options["window"]
    model = clients.initial()
    window = [model] * length
    for t in range(clients.rounds):
        rate = clients.rate(t) if t < first else clients.rate(first) * 0.97 ** (t - first)
        cohort = clients.cohort(t)
        ends = [clients.train(model, t, k, rate=rate) for k in cohort]
        model = mean(ends, clients.shares(cohort))
        window = [*window[1:], model]
        if t >= first:
            held = window[-min(length, t + 1) :]
            model = mean(held, np.full(len(held), 1 / len(held)))
        stacked = {name: np.stack([each[name] for each in window]) for name in model}
        yield {"params": model, "ima": stacked}, {}


# --- baselines of IMA -----------------------------------------------------------------------------
def path(steps: int, momentum: float) -> float:
    """How many times SGD with momentum adds its gradients, by playing it with gradients of 1."""
    velocity = length = 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1
        length += velocity
    return length


def scaffold(clients: Clients) -> Played:
    """Karimireddy et al., Algorithm 1, option II; with momentum the path's length replaces K.

    With ``from_gradients``, clients use Adam, and the mean of what is descended replaces the path.
    """
    from_gradients = clients.options.get("from_gradients")
    model = clients.initial()
    c = zeros(model)
    own = {k: zeros(model) for k in range(len(clients))}
    met: set[int] = set()
    for t in range(clients.rounds):
        cohort, ends = clients.cohort(t), []
        change = zeros(model)
        for k in cohort:
            slopes: list[Model] = []

            def slope(
                at: Model, batch: Batch, k: int = k, c: Model = c, slopes: list[Model] = slopes
            ) -> Model:
                found = gradient(lambda at: classified(at, batch), at)
                slopes.append(plus(plus(found, c), own[k], -1))
                return slopes[-1]

            optimizer = Adam() if from_gradients else None
            ends.append(clients.train(model, t, k, slope=slope, optimizer=optimizer))
            if from_gradients:
                moved = mean(slopes, np.full(len(slopes), 1 / len(slopes)))
            else:
                length = path(clients.steps(t, k), clients.momentum) * clients.rate(t)
                moved = {n: leaf / length for n, leaf in plus(model, ends[-1], -1).items()}
            after = plus(plus(own[k], c, -1), moved)
            # The mean over all clients, by samples.
            share = len(clients.y[k]) / clients.sizes().sum()
            change = plus(change, plus(after, own[k], -1), share)
            own[k] = after
        met |= {*cohort}
        model, c = mean(ends, clients.shares(cohort)), plus(c, change)
        yield {"params": model, "c": c}, {k: {"c": own[k]} for k in met}


def fednova(clients: Clients) -> Played:
    """Wang et al., eqs. 6 and 7: w - (sum p_i a_i) sum p_i (w - w_i) / a_i."""
    model = clients.initial()
    for t in range(clients.rounds):
        cohort = clients.cohort(t)
        shares = clients.shares(cohort)
        lengths = np.array([path(clients.steps(t, k), clients.momentum) for k in cohort])
        away = [plus(model, clients.train(model, t, k), -1) for k in cohort]
        model = plus(model, mean(away, shares / lengths), -float(shares @ lengths))
        yield {"params": model}, {}


def fedgma(clients: Clients) -> Played:
    """Tenison et al.: the mean update times A = |mean of signs|, or 1 where A >= threshold."""
    model = clients.initial()
    for t in range(clients.rounds):
        cohort = clients.cohort(t)
        away = [plus(model, clients.train(model, t, k), -1) for k in cohort]
        step = mean(away, clients.shares(cohort))
        for name in step:
            agreement = abs(np.mean([np.sign(each[name]) for each in away], axis=0))
            step[name] = step[name] * np.where(
                agreement >= clients.options["threshold"], 1, agreement
            )
        model = plus(model, step, -1)
        yield {"params": model}, {}


def best_on_simplex(curvature: Array, slope: Array, low: float = 0.0, high: float = 1.0) -> Array:
    """The minimiser of p'Cp/2 + <s, p> over sum p = 1, low <= p <= high: by trying every face."""
    size, best = len(slope), (np.inf, slope)
    for face in itertools.product((low, high, None), repeat=size):
        free = [i for i, value in enumerate(face) if value is None]
        p = np.array([value or 0.0 for value in face])
        if free:
            system = np.zeros((len(free) + 1, len(free) + 1))
            system[:-1, :-1] = curvature[np.ix_(free, free)]
            system[-1, :-1] = system[:-1, -1] = 1
            right = np.append(-slope[free] - curvature[free] @ p, 1 - p.sum())
            p[free] = np.linalg.solve(system, right)[:-1]
        inside = (p >= low - 1e-12).all() and (p <= high + 1e-12).all()
        value = p @ curvature @ p / 2 + slope @ p
        if inside and abs(p.sum() - 1) < 1e-9 and value < best[0]:
            best = value, p
    return best[1]


def fedmgda(clients: Clients) -> Played:
    """Hu et al., Algorithm 1: the shortest sum of p_i d_i / |d_i|, |p_i - 1/m| <= radius."""
    model, radius = clients.initial(), clients.options["radius"]
    for t in range(clients.rounds):
        away = [plus(model, clients.train(model, t, k), -1) for k in clients.cohort(t)]
        unit = [{n: leaf / norm(flat(d)) for n, leaf in d.items()} for d in away]
        gram = np.array([[flat(a) @ flat(b) for b in unit] for a in unit])
        m = len(unit)
        p = best_on_simplex(
            gram + 1e-8 * np.eye(m), np.zeros(m), max(0, 1 / m - radius), min(1, 1 / m + radius)
        )
        model = plus(model, mean(unit, p), -1)
        yield {"params": model}, {}


def fedasam(clients: Clients) -> Played:
    """Kwon et al., eqs. 9 to 11: the gradient at w + rho T^2 g / |T g|."""
    rho, eta = clients.options["rho"], clients.options["eta"]

    def slope(at: Model, batch: Batch) -> Model:
        g = gradient(lambda at: classified(at, batch), at)
        t = {n: abs(leaf) + eta if "weight" in n else np.ones(leaf.shape) for n, leaf in at.items()}
        length = norm(np.concatenate([(t[n] * g[n]).ravel() for n in g]))
        worst = plus(at, {n: t[n] ** 2 * g[n] / length for n in g}, rho)
        return gradient(lambda at: classified(at, batch), worst)

    return fedavg(clients, lambda sent, t, k: clients.train(sent, t, k, slope=slope))


def fedfa(clients: Clients) -> Played:
    """Zhou et al.: anchors of features, and from round 1 on a pull; later a calibrated head."""
    model, classes = clients.initial(), 3
    anchors, options = np.eye(classes, 8), clients.options
    head = ("head.weight", "head.bias")
    for t in range(clients.rounds):
        cohort, ends, theirs = clients.cohort(t), [], []
        for k in cohort:
            at, sgd, adam, mine = model, clients.optimizer(), Adam(), anchors
            for epoch in clients.batches(t, k)[0]:
                sums, seen = np.zeros((classes, 8)), set()
                for batch in epoch:

                    def loss(at: Model, batch: Batch = batch, sent: Array = anchors) -> Any:
                        found = classified(at, batch)
                        if t == 0:
                            return found
                        away = ((features(at, batch.x) - sent[batch.y]) ** 2).sum(1)
                        every = sum(away[batch.y == c].mean() for c in np.unique(batch.y))
                        return found + options["pull"] / classes * every

                    for c in np.unique(batch.y):
                        sums[c] += features(at, batch.x)[batch.y == c].mean(0)
                        seen.add(c)
                    at = sgd.step(at, gradient(loss, at), clients.rate(t))
                    if t > options["calibration"] * clients.rounds:

                        def apart(part: Model, sent: Array = anchors) -> Any:
                            return cross_entropy(linear(part, "head", sent), np.arange(classes))

                        part = {name: at[name] for name in head}
                        at = adam.step(at, gradient(apart, part), 1e-3)
                for c in seen:
                    fresh, mu = sums[c] / len(epoch), options["momentum"]
                    mine = np.where(
                        np.arange(classes)[:, None] == c, mu * mine + (1 - mu) * fresh, mine
                    )
            ends.append(at)
            theirs.append(mine)
        shares = clients.shares(cohort)
        model = mean(ends, shares)
        anchors = sum(p * each for p, each in zip(shares, theirs, strict=True))
        yield {"params": model, "anchors": anchors}, {}


def feddisco(clients: Clients) -> Played:
    """Ye et al., eq. 4: p_k = relu(n_k / n - a d_k + b), d_k from uniform classes."""
    model, options = clients.initial(), clients.options
    for t in range(clients.rounds):
        cohort, d = clients.cohort(t), []
        for k in cohort:
            there = np.bincount(clients.y[k], minlength=3) / len(clients.y[k])
            d.append(sum(p * math.log(p * 3) for p in there if p))
        raw = clients.shares(cohort) - options["a"] * np.array(d) / sum(d) + options["b"]
        p = np.maximum(raw, 0)
        model = mean([clients.train(model, t, k) for k in cohort], p / p.sum())
        yield {"params": model}, {}


def feduv(clients: Clients) -> Played:
    """Son et al.: a hinge on the standard deviation of probabilities, and a kernel of features."""
    options = clients.options

    def loss(model: Model, batch: Batch) -> Any:
        found, n = classified(model, batch), len(batch.y)
        if n == 1:
            return found
        p = softmax(logits(model, batch.x))
        spread = np.sqrt(((p - p.mean(0)) ** 2).sum(0) / (n - 1))
        hinge = relu(1 / math.sqrt(3) - spread).mean()
        h = features(model, batch.x)
        i, j = np.tril_indices(n, -1)
        squares = ((h[i] - h[j]) ** 2).sum(1)
        middle = squares[np.argsort(squares.real)[(len(i) - 1) // 2]]
        kernel = np.exp(-squares / middle).mean()
        return found + options["variance"] * hinge + options["uniformity"] * kernel

    return fedavg(clients, lambda sent, t, k: clients.train(sent, t, k, loss))
