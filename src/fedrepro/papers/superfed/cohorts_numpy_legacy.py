"""Cohorts as SuPerFed's released code draws them (discrepancy 46), whatever the run's seed.

numpy.random.seed(seed) before the first round, then in every round numpy.random.choice(clients,
size, replace=False), with no other draw between. So a round's cohort needs all draws before it.
"""

from collections.abc import Callable
from functools import cache

import numpy as np


def sampler(seed: int, clients: int, size: int, rounds: int) -> Callable[[int], list[int]]:
    """Round (from 0) -> the ids of its clients, in their order.

    Args:
        size: of a cohort.
        rounds: of the run.
    """

    @cache
    def cohorts() -> list[list[int]]:
        generator = np.random.RandomState(seed)
        return [
            sorted(generator.choice(clients, size, replace=False).tolist()) for _ in range(rounds)
        ]

    return lambda round: cohorts()[round]
