"""Methods that learn aggregation weights from the clients' losses before training."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from support.by_hand import Array, Model
from support.oracles.averaging import best_on_simplex, fedavg
from support.oracles.federation import Batch, Clients, Played, classified, mean
from support.oracles.numeric import plus, square


def propfair(clients: Clients) -> Played:
    """Zhang et al.: -log(1 - l / M) of a mini-batch's mean loss; l / M where M - l < 0.2."""
    most = clients.options["baseline"]

    def loss(model: Model, batch: Batch) -> Any:
        found = classified(model, batch)
        return -np.log(1 - found / most) if most - found.real >= 0.2 else found / most

    return fedavg(clients, lambda sent, t, k: clients.train(sent, t, k, loss))


# (round from 0, cohort, losses) -> (weights, the rule's state)
Rule = Callable[[int, list[int], Array], tuple[Array, dict[str, Array]]]


def weighted(clients: Clients, rule: Rule) -> Played:
    model = clients.initial()
    for t in range(clients.rounds):
        cohort = clients.cohort(t)
        losses = np.array([clients.loss_of(model, k) for k in cohort])
        shares, state = rule(t, cohort, losses)
        model = mean([clients.train(model, t, k) for k in cohort], shares)
        yield {"params": model, "decision": state}, {}


def qfedavg(clients: Clients) -> Played:
    """Li et al., Algorithm 2, with n_k: sum n F^q d / sum n (q F^(q-1) |d|^2 + L F^q), L = 1/lr."""
    model, q = clients.initial(), clients.options["q"]
    for t in range(clients.rounds):
        above, below = [], 0.0
        for k in clients.cohort(t):
            loss, lipschitz = clients.loss_of(model, k), 1 / clients.rate(t)
            away = plus(model, clients.train(model, t, k), -1)
            d = {name: lipschitz * leaf for name, leaf in away.items()}
            n = len(clients.y[k])
            above.append({name: n * loss**q * leaf for name, leaf in d.items()})
            below += n * (q * loss ** (q - 1) * square(d) + lipschitz * loss**q)
        model = plus(model, mean(above, np.ones(len(above))), -1 / below)
        yield {"params": model}, {}


def term(clients: Clients) -> Played:
    """Li et al.: p_k proportional to n_k exp(tilt F_k)."""

    def rule(t: int, cohort: list[int], losses: Array) -> tuple[Array, dict[str, Array]]:
        p = clients.sizes(cohort) * np.exp(clients.options["tilt"] * losses)
        return p / p.sum(), {}

    return weighted(clients, rule)


def afl(clients: Clients) -> Played:
    """Mohri et al.: p <- the point of the simplex nearest to p + lr F."""
    p = np.full(len(clients), 1 / len(clients))

    def rule(t: int, cohort: list[int], losses: Array) -> tuple[Array, dict[str, Array]]:
        nonlocal p
        p = best_on_simplex(np.eye(len(p)), -(p + clients.options["lr"] * losses))
        return p, {"decision": p}

    return weighted(clients, rule)


def responses(losses: Array, low: float, high: float) -> Array:
    """Hahn et al., eq. 8, with Weibull's distribution function of shape 2."""
    return low + (high - low) * (1 - np.exp(-((losses / losses.mean()) ** 2)))


def aaggff_s(clients: Clients) -> Played:
    """Hahn et al., Algorithm 2: the online Newton step, eq. 7, on -log(1 + <p, r>)."""
    size = len(clients)
    decisions, slopes = [np.full(size, 1 / size)], []
    lipschitz = 1 / size  # C2 / (1 + C1), C1 = 0 and C2 = 1/K
    alpha, beta = 4 * size * lipschitz, 1 / (4 * lipschitz)

    def rule(t: int, cohort: list[int], losses: Array) -> tuple[Array, dict[str, Array]]:
        r = responses(losses, 0, 1 / size)
        slopes.append(-r / (1 + decisions[-1] @ r))
        outer = sum(np.outer(g, g) for g in slopes)
        centre = sum(g * (g @ p) for g, p in zip(slopes, decisions, strict=True))
        total = sum(slopes)
        p = best_on_simplex(alpha * np.eye(size) + beta * outer, total - beta * centre)
        decisions.append(p)
        return p, {"decision": p, "slope": total, "centre": centre, "curvature": outer}

    return weighted(clients, rule)


def aaggff_d(clients: Clients) -> Played:
    """Hahn et al., Algorithm 3, eqs. 9 to 12 and 95."""
    size = len(clients)
    p, total = np.full(size, 1 / size), np.zeros(size)

    def rule(t: int, cohort: list[int], losses: Array) -> tuple[Array, dict[str, Array]]:
        nonlocal p, total
        share = len(cohort) / size
        r = responses(losses, 0, share)
        estimate = np.full(size, r.mean())
        estimate[cohort] += (r - r.mean()) / share
        below = 1 + r.mean()  # <p, mean r> = mean r
        surprise = p @ (estimate - r.mean())
        total = total + -estimate / below + r.mean() * surprise / below**2
        # Rounds count from 1; L = C + 2.
        p = np.exp(-total * math.sqrt(math.log(size)) / ((share + 2) * math.sqrt(t + 2)))
        p = p / p.sum()
        return p[cohort] / p[cohort].sum(), {"decision": p, "slope": total}

    return weighted(clients, rule)
