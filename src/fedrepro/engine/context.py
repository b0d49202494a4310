"""What a hook may read."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fedrepro.engine.net import Net
from fedrepro.engine.optim import Optimizer, Rate, sgd
from fedrepro.engine.task import CLASSIFICATION, Task
from fedrepro.engine.tree import Tree


@dataclass(frozen=True)
class Context:
    """All that a hook may read: the federation, and the facts of this round.

    ``loss``, ``gradient`` and ``local`` are compiled when clients run side by side. What they read
    of the round (other than ``lr``) should come through ``draw`` or ``sent``, or each round would
    be compiled anew.

    Attributes:
        net: the model as a function of its parameters.
        task: loss and correctness.
        clients: how many clients the federation has, K.
        rounds: how many rounds the run has.
        epochs: local epochs per round, E.
        optimizer: the clients' optimizer.
        server_optimizer: what turns the mean movement into the next parameters.
        schedule: round -> the clients' learning rate, before any method changes it.
        server_lr: the server optimizer's learning rate.
        round: this round, from 0.
        lr: the clients' learning rate in this round; a scalar tensor inside a compiled step.
        cohort: ids of this round's clients, int64 [cohort].
        sizes: their numbers of training samples, float [cohort].
        total: training samples of all clients, those that do not take part included.
        initial: the parameters before the first round, where personal models begin.
        mode: for the engine: how clients side by side are compiled
            (:mod:`fedrepro.engine.executors`).
    """

    net: Net
    task: Task = CLASSIFICATION
    clients: int = 1
    rounds: int = 1
    epochs: int = 1
    optimizer: Optimizer = field(default_factory=sgd)
    server_optimizer: Optimizer = field(default_factory=sgd)
    schedule: Callable[[int], float] = lambda round: 0.01
    server_lr: float = 1.0
    round: int = 0
    lr: Rate = 0.01
    cohort: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    sizes: Tensor = field(default_factory=lambda: torch.zeros(0))
    total: float = 0.0
    initial: Tree = field(default_factory=dict)
    mode: Literal["eager", "compiled", "unrolled"] = "eager"
