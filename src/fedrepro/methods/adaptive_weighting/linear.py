"""Linearised follow-the-regularised-leader for sampled clients (AAggFF-D; eqs. 9 to 12).

Time and memory are linear in the number of clients K: all entries of the gradient are equal except
those of the m sampled clients.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrepro.methods.adaptive_weighting.responses import Array

Memory = dict[str, Array]


class Gradient(NamedTuple):
    """A vector [K]: ``sampled`` [m] at the sampled clients, ``elsewhere`` at all others."""

    sampled: Array
    elsewhere: float

    def whole(self, cohort: NDArray[np.int64], clients: int) -> Array:
        full = np.full(clients, self.elsewhere)
        full[cohort] = self.sampled
        return full


def begin(clients: int, first: float) -> Memory:
    """The memory before the first round; every weight is ``first``."""
    return {"decision": np.full(clients, first), "slope": np.zeros(clients)}


def estimate(response: Array, share: float, imputed: float, doubly_robust: bool = True) -> Gradient:
    """The doubly robust estimate of all responses (eq. 10).

    imputed + [i sampled] (r_i - imputed) / share: unbiased for an ``imputed`` that does not depend
    on the sample. The paper imputes the sample's own mean, and so has a bias (discrepancy 5).

    Args:
        response: of the sampled clients [m].
        share: of clients that is sampled, C.
        doubly_robust: False drops ``imputed`` for sampled clients, as released (discrepancy 4).
    """
    base = imputed if doubly_robust else 0.0
    return Gradient(base + (response - imputed) / share, imputed)


def linearise(
    estimated: Gradient, mean: float, decision: Array, cohort: NDArray[np.int64], total: float
) -> Gradient:
    """The gradient of -log(1 + <p, r>), linearised in r about ``mean`` for all clients (eq. 11).

    Args:
        decision: p [K].
        total: the sum of p; 1 but for the released first decision (discrepancy 2).
    """
    growth = 1 + total * mean
    # <p, estimate - mean>; unsampled clients add nothing.
    surprise = float(decision[cohort] @ (estimated.sampled - mean))
    shift = mean * surprise / growth**2
    return Gradient(-estimated.sampled / growth + shift, -estimated.elsewhere / growth + shift)


def learn(
    memory: Memory, gradient: Gradient, cohort: NDArray[np.int64], round: int, lipschitz: float
) -> Memory:
    """The memory after round ``round`` (from 1): p proportional to exp(-sum of g / eta) (eq. 12).

    eta = ``lipschitz`` sqrt(round + 1) / sqrt(log K), the weight of the entropy.
    """
    slope = memory["slope"] + gradient.elsewhere
    slope[cohort] = memory["slope"][cohort] + gradient.sampled
    clients = len(slope)
    decision = slope - slope.min()
    decision *= -np.sqrt(np.log(clients) / (round + 1)) / lipschitz
    np.exp(decision, out=decision)
    decision /= decision.sum()
    return {"decision": decision, "slope": slope}
