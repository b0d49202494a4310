"""Wrappers around FedAvg: robust rules, and compressed updates."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from support.by_hand import Array, Model
from support.oracles.federation import Clients, Played, flat, mean
from support.oracles.numeric import norm, plus

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
