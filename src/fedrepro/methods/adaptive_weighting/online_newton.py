"""The online Newton step on the simplex (AAggFF-S; Hahn et al., ICML 2024, eq. 7).

p(t+1) minimises sum_s <g_s, p> + alpha/2 |p|^2 + beta/2 sum_s <g_s, p - p(s)>^2. The memory is
sum g, sum g <g, p> and sum g g'.
"""

import numpy as np

from fedrepro.methods.adaptive_weighting.responses import Array
from fedrepro.methods.adaptive_weighting.simplex import minimise_quadratic

Memory = dict[str, Array]


def begin(clients: int, first: float) -> Memory:
    """The memory before the first round; every weight is ``first``."""
    return {
        "decision": np.full(clients, first),
        "slope": np.zeros(clients),
        "centre": np.zeros(clients),
        "curvature": np.zeros((clients, clients)),
    }


def learn(
    memory: Memory, gradient: Array, alpha: float, beta: float, centred: bool = True
) -> Memory:
    """The memory after a round in which the decision's loss had ``gradient`` [K].

    Args:
        centred: False for the released objective, sum <g, p> + alpha/2 |p|^2 +
            beta/2 p' (alpha I + sum g g') p, which counts alpha twice (discrepancy 1).
    """
    slope = memory["slope"] + gradient
    centre = memory["centre"] + gradient * (gradient @ memory["decision"])
    curvature = memory["curvature"] + np.outer(gradient, gradient)
    ridge, linear = (alpha, slope - beta * centre) if centred else (alpha * (1 + beta), slope)
    return {
        "decision": minimise_quadratic(ridge * np.eye(len(slope)) + beta * curvature, linear),
        "slope": slope,
        "centre": centre,
        "curvature": curvature,
    }
