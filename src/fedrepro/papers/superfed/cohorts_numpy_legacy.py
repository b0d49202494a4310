"""Cohorts as sampled by SuPerFed's released code (discrepancy 46), for any seed of the run.

numpy.random.seed(seed) before the first round, then in every round numpy.random.choice(clients,
size, replace=False), with no other draw in between. A round's cohort therefore needs all earlier
draws.
"""

from collections.abc import Callable
from functools import cache

import numpy as np


def sampler(seed: int, clients: int, size: int, rounds: int) -> Callable[[int], list[int]]:
    """Round (from 0) -> the ids of its clients, in their order.

    Args:
        size: clients per cohort.
        rounds: rounds of the run.
    """

    @cache
    def cohorts() -> list[list[int]]:
        generator = np.random.RandomState(seed)
        return [
            sorted(generator.choice(clients, size, replace=False).tolist()) for _ in range(rounds)
        ]

    return lambda round: cohorts()[round]
