"""The clients' learning rate by round."""

import math
from collections.abc import Callable

from fedrepro.config.settings import Setting, StepDecay


def schedule_of(setting: Setting) -> Callable[[int], float]:
    """The learning rate of a round, counted from 0, as a setting's keys say."""
    rate, factors, rounds = setting.optimizer.lr, setting.lr_schedule, setting.rounds
    if factors == "cosine":
        return lambda round: rate * (1 + math.cos(math.pi * round / rounds)) / 2
    if factors:
        return lambda round: rate * factors[min(round, len(factors) - 1)]
    return schedule(rate, setting.lr_decay, setting.decay_from)


def schedule(rate: float, decay: float | StepDecay, first: int = 0) -> Callable[[int], float]:
    """The learning rate of a round, counted from 0.

    Args:
        first: number of rounds by which the decay is advanced.
    """
    if isinstance(decay, StepDecay):
        return lambda round: rate * decay.factor ** ((round + first) // decay.every)
    return lambda round: rate * decay ** (round + first)
