"""What decisions cost, beside the best fixed one in hindsight (Hahn et al., ICML 2024, eq. 5)."""

import math

import numpy as np

from fedrepro.aggregation.responses import Array
from fedrepro.aggregation.simplex import minimise_quadratic

TOLERANCE = 1e-10  # of the best fixed decision's total loss
# What is added to a Hessian that may be singular, as a share of its mean diagonal entry. It only
# shortens steps: the point where they end is the same.
PROXIMITY = 1e-6


def decision_losses(decision: Array, responses: Array) -> Array:
    """-log(1 + <p, r>) for decisions [K] or [T, K] and responses [T, K], as [T]."""
    return np.asarray(-np.log1p((decision * responses).sum(-1)))


def best_fixed(responses: Array, start: Array | None = None) -> tuple[Array, float]:
    """The fixed decision with the least total loss, and that loss up to 1e-10.

    Newton's method, every step a quadratic programme over the simplex.

    Args:
        responses: [T, K], at least 0.
        start: where to begin, [K] in the simplex; best when it is near.
    """
    clients = responses.shape[1]
    p = np.full(clients, 1 / clients) if start is None else start
    for _ in range(200):
        weighted = responses / (1 + responses @ p)[:, None]
        gradient = -weighted.sum(0)
        if gradient @ p - gradient.min() <= TOLERANCE:  # bounds how far p is from the best
            break
        hessian = weighted.T @ weighted
        hessian.flat[:: clients + 1] += PROXIMITY * max(hessian.trace() / clients, 1e-300)
        target = minimise_quadratic(hessian, gradient - hessian @ p)
        p = _towards(p, target, gradient, responses)
    return p, float(decision_losses(p, responses).sum())


def _towards(p: Array, target: Array, gradient: Array, responses: Array) -> Array:
    """As far from ``p`` to ``target`` as lowers the loss by a fair part of what is promised."""
    now, promised, part = decision_losses(p, responses).sum(), gradient @ (target - p), 1.0
    while part > 1e-10:
        moved = p + part * (target - p)
        if decision_losses(moved, responses).sum() <= now + part * promised / 4:
            return np.asarray(moved)
        part /= 2
    return target


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
