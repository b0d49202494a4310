"""Optimisation over the probability simplex."""

import daqp
import numpy as np

from fedrepro.methods.adaptive_weighting.responses import Array


def nearest(point: Array) -> Array:
    """The Euclidean projection of ``point`` [K] onto the simplex (Duchi et al., ICML 2008)."""
    falling = np.sort(point)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(point) + 1)
    return np.asarray(np.maximum(point - excess[falling > excess][-1], 0))


def minimise_quadratic(
    curvature: Array, slope: Array, lower: float | Array = 0.0, upper: float | Array = 1.0
) -> Array:
    """The minimiser of p' ``curvature`` p / 2 + <``slope``, p> over the simplex and a box.

    An active-set solver: exact up to rounding, unlike first-order and interior-point ones.

    Args:
        curvature: positive definite [K, K], condition number up to 1e8.
        slope: [K].
        lower, upper: bounds of every entry, scalars or [K]; they must be feasible.
    """
    size = len(slope)
    scale = np.abs(curvature).max()
    sense = np.zeros(size + 1, dtype=np.int32)
    sense[-1] = 5  # the last constraint, that the sum is 1, is an equality
    minimiser, _, status, _ = daqp.solve(
        np.ascontiguousarray(curvature / scale),
        np.ascontiguousarray(slope / scale),
        np.ones((1, size)),
        np.append(np.broadcast_to(upper, size), 1.0),
        np.append(np.broadcast_to(lower, size), 1.0),
        sense,
        primal_tol=1e-12,
        dual_tol=1e-12,
        iter_limit=100 * (size + 10),
    )
    if status != 1:
        raise ArithmeticError(f"the quadratic programme of {size} clients has no solution")
    inside = np.clip(minimiser, lower, upper)  # rounding leaves some entries at -1e-17
    return np.asarray(inside / inside.sum())
