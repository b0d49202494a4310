"""Wrappers around FedAvg: robust rules, and compressed updates."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from support.by_hand import Array, Model
from support.oracles.federation import Clients, Played, flat, mean
from support.oracles.numeric import norm, plus, zeros

# (updates w - w_k of a cohort, their shares of samples) -> the server's movement
Rule = Callable[[list[Model], Array], Model]


def played(clients: Clients, rule: Rule) -> Played:
    """FedAvg whose server follows ``rule``."""
    model = clients.initial()
    for t in range(clients.rounds):
        cohort = clients.cohort(t)
        away = [plus(model, clients.train(model, t, k), -1) for k in cohort]
        model = plus(model, rule(away, clients.shares(cohort)), -1)
        yield {"params": model}, {}


def of_each_entry(rule: Callable[[Array], Any]) -> Rule:
    """``rule``: an entry's values [cohort] -> one."""
    return lambda away, shares: {
        name: np.apply_along_axis(rule, 0, np.stack([each[name] for each in away]))
        for name in away[0]
    }


def median(clients: Clients) -> Played:
    """Yin et al., Definition 1."""
    return played(clients, of_each_entry(np.median))


def trimmed_mean(clients: Clients) -> Played:
    """Yin et al., Definition 2: without the beta share at each end."""

    def trimmed(values: Array) -> Any:
        ordered, cut = sorted(values), math.floor(clients.options["share"] * len(values))
        return np.mean(ordered[cut : len(ordered) - cut])

    return played(clients, of_each_entry(trimmed))


def krum_scores(away: list[Model], attackers: int) -> list[float]:
    """Blanchard et al., section 4: squared distances to the n - f - 2 closest others, summed."""
    vectors, found = [flat(each) for each in away], []
    for i, mine in enumerate(vectors):
        others = sorted(sum((mine - each) ** 2) for j, each in enumerate(vectors) if j != i)
        found.append(sum(others[: max(1, len(vectors) - attackers - 2)]))
    return found


def krum(clients: Clients) -> Played:
    def rule(away: list[Model], shares: Array) -> Model:
        scores = krum_scores(away, math.floor(clients.options["share"] * len(away)))
        return away[scores.index(min(scores))]

    return played(clients, rule)


def multi_krum(clients: Clients) -> Played:
    def rule(away: list[Model], shares: Array) -> Model:
        attackers = math.floor(clients.options["share"] * len(away))
        scores, number = krum_scores(away, attackers), clients.options["number"]
        best = sorted(range(len(away)), key=scores.__getitem__)[:number]
        return mean([away[place] for place in best], np.full(number, 1 / number))

    return played(clients, rule)


def norm_clip(clients: Clients) -> Played:
    """Sun et al.: delta / max(1, |delta| / M)."""

    def rule(away: list[Model], shares: Array) -> Model:
        factors = [1 / max(1, norm(flat(each)) / clients.options["bound"]) for each in away]
        return mean(away, shares * np.array(factors))

    return played(clients, rule)


def dp(clients: Clients) -> Played:
    """McMahan et al., Algorithm 1, without its noise: of random numbers no two programs agree."""

    def rule(away: list[Model], shares: Array) -> Model:
        factors = [min(1, clients.options["clip"] / norm(flat(each))) for each in away]
        return mean(away, np.array(factors) / len(away))

    return played(clients, rule)


def compressed(
    clients: Clients, compressor: Callable[[Array, int, int], Array], feedback: bool = True
) -> Played:
    """Stich et al., Algorithm 1: send C(delta + e), keep the rest. (vector, t, k) -> C(vector)."""
    model = clients.initial()
    shapes = {name: leaf.shape for name, leaf in model.items()}
    error = {k: zeros(model) for k in range(len(clients))}
    met: set[int] = set()
    for t in range(clients.rounds):
        cohort, sent = clients.cohort(t), []
        for k in cohort:
            owed = plus(plus(model, clients.train(model, t, k), -1), error[k])
            vector, first = compressor(flat(owed), t, k), 0
            parts: Model = {}
            for name, shape in shapes.items():
                size = math.prod(shape)
                parts[name] = vector[first : first + size].reshape(shape)
                first += size
            sent.append(parts)
            if feedback:
                error[k] = plus(owed, parts, -1)
        met |= {*cohort}
        model = plus(model, mean(sent, clients.shares(cohort)), -1)
        yield {"params": model}, {k: {"error": error[k]} for k in met}


def top_k(clients: Clients) -> Played:
    def largest(vector: Array, t: int, k: int) -> Array:
        number = math.ceil(clients.options["share"] * len(vector))
        best = sorted(range(len(vector)), key=lambda place: -abs(vector[place]))[:number]
        return np.array([value if place in best else 0 for place, value in enumerate(vector)])

    return compressed(clients, largest)


def quantised(clients: Clients) -> Played:
    """Alistarh et al., eq. 4, in buckets of 512; with error feedback over 1 + Lemma 3.1's bound."""
    s, feedback = 2 ** (clients.options["bits"] - 1) - 1, clients.options["error_feedback"]
    d = min(512, sum(leaf.size for leaf in clients.initial().values()))
    bound = min(d / s**2, math.sqrt(d) / s) if feedback else 0

    def rounded(vector: Array, t: int, k: int) -> Array:
        drawn = torch.rand(len(vector), generator=clients.stream("fresh", t, k)).numpy()
        found = []
        for first in range(0, len(vector), 512):
            bucket = vector[first : first + 512]
            for value, chance in zip(bucket, drawn[first:], strict=False):
                exact = abs(value) / norm(bucket) * s
                level = math.floor(exact) + (chance < exact - math.floor(exact))
                found.append(math.copysign(level * norm(bucket) / s, value))
        return np.array(found) / (1 + bound)

    return compressed(clients, rounded, feedback)
