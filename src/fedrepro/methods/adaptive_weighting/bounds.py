"""Proven bounds on the regret of AAggFF (Hahn et al., ICML 2024)."""

import math


def lipschitz(lower: float, upper: float) -> float:
    """Lemma 4.1: no entry of the decision loss's gradient exceeds C2 / (1 + C1)."""
    return upper / (1 + lower)


def linearised_lipschitz(lower: float, upper: float, share: float) -> float:
    """Lemma A.2, for the linearised gradient when a ``share`` C of clients is sampled.

    C2 / (1 + C1) + 2 (C2 - C1) / (C (1 + C1)), which is C + 2 for C1 = 0 and C2 = C.
    """
    return lipschitz(lower, upper) + 2 * (upper - lower) / (share * (1 + lower))


def newton_bound(rounds: int, clients: int, constant: float) -> float:
    """Theorem 5.1: the regret of AAggFF-S is at most 2 L K (1 + log(1 + T / 16 K))."""
    return 2 * constant * clients * (1 + math.log1p(rounds / (16 * clients)))


def linear_bound(rounds: int, clients: int, constant: float) -> float:
    """Theorem 5.2: the expected regret of AAggFF-D is at most 2 L sqrt(T log K)."""
    return 2 * constant * math.sqrt(rounds * math.log(clients))
