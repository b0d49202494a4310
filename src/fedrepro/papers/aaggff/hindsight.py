"""The loss of decisions and of the best fixed one in hindsight (Hahn et al., ICML 2024, eq. 5)."""

import numpy as np

from fedrepro.methods.adaptive_weighting.responses import Array
from fedrepro.methods.adaptive_weighting.simplex import minimise_quadratic

TOLERANCE = 1e-10  # of the best fixed decision's total loss
# Added to a Hessian that may be singular, as a share of its mean diagonal entry. It only shortens
# steps; they converge to the same point. With less, the solver gives up on some.
PROXIMITY = 1e-5


def decision_losses(decision: Array, responses: Array) -> Array:
    """-log(1 + <p, r>) for decisions [K] or [T, K] and responses [T, K], as [T]."""
    return np.asarray(-np.log1p((decision * responses).sum(-1)))


def best_fixed(responses: Array, start: Array | None = None) -> tuple[Array, float]:
    """The fixed decision with the least total loss, and that loss to 1e-10.

    Newton's method; each step solves a quadratic programme over the simplex.

    Args:
        responses: [T, K], at least 0.
        start: the first iterate, [K] in the simplex; fastest near the solution.
    """
    clients = responses.shape[1]
    p = np.full(clients, 1 / clients) if start is None else start
    for _ in range(200):
        weighted = responses / (1 + responses @ p)[:, None]
        gradient = -weighted.sum(0)
        if gradient @ p - gradient.min() <= TOLERANCE:  # bounds the gap to the optimum
            break
        hessian = weighted.T @ weighted
        hessian.flat[:: clients + 1] += PROXIMITY * max(hessian.trace() / clients, 1e-300)
        target = minimise_quadratic(hessian, gradient - hessian @ p)
        p = _towards(p, target, gradient, responses)
    return p, float(decision_losses(p, responses).sum())


def _towards(p: Array, target: Array, gradient: Array, responses: Array) -> Array:
    """Backtrack from ``target`` towards ``p`` until the loss decreases sufficiently."""
    now, promised, part = decision_losses(p, responses).sum(), gradient @ (target - p), 1.0
    while part > 1e-10:
        moved = p + part * (target - p)
        if decision_losses(moved, responses).sum() <= now + part * promised / 4:
            return np.asarray(moved)
        part /= 2
    return target
