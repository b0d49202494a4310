"""A process with one framework in it, which trains what it is told to and says what that took.

`measure.py` starts one per framework, each with an environment of its own, and has them take turns.
What the frameworks are given is the same: tensors in memory, the same model, the same steps.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workloads import WORKLOADS, Workload

Client = tuple[Tensor, Tensor]

# The whole task: Fashion-MNIST, two shards for each of 100 clients, IMA's network.
TASK = Workload(
    name="task",
    title="Fashion-MNIST, two classes a client, 100 clients, 10 a round, 1 epoch, batch 50",
    model="ima_fmnist_cnn",
    shape=(1, 28, 28),
    classes=10,
    clients=100,
    samples=600,
    cohort=10,
    epochs=1,
    batch_size=50,
    rounds=20,
    measurements=1,
)


@dataclass(frozen=True)
class Job:
    """A workload and its data: clients' samples, and those that are tested on, if any are."""

    workload: Workload
    clients: list[Client]
    test: Client | None = None

    def loss(self) -> nn.Module:
        return BinaryLoss() if self.workload.binary else nn.CrossEntropyLoss()


class BinaryLoss(nn.Module):
    """Of one output, which the frameworks' own losses don't know."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        logits = logits.squeeze(-1)
        return functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype))


class Loop(Protocol):
    """A framework that has been given a job."""

    def run(self, rounds: int) -> None:
        """Go on from where the last call ended; test after each round, where that is possible."""

    def accuracy(self) -> float:
        """Of the last round, as the framework found it itself."""


def random_job(workload: Workload) -> Job:
    x, y = workload.data()
    x = x / 255 if x.dtype == torch.uint8 else x
    samples = workload.samples
    return Job(workload, list(zip(x.split(samples), y.split(samples), strict=True)))


def task_from(file: Path) -> Job:
    """The whole task, whose arrays `measure.py` has laid there."""
    with np.load(file) as held:
        arrays = {name: torch.from_numpy(held[name]) for name in held.files}
    x, y = arrays["x"] / 255, arrays["y"]
    clients = [(x[rows], y[rows]) for rows in arrays["rows"]]
    return Job(TASK, clients, (arrays["x_test"] / 255, arrays["y_test"]))


def main(make: Callable[[Job], Loop], elsewhere: Callable[[], float] = float) -> None:
    """Carry out what the command line asks for: the task of a file, or what stands on stdin.

    There, a line is a workload's name and a number of rounds; the answer is the CPU seconds of
    those rounds. That of the task is its accuracy and its CPU seconds. What a framework prints goes
    to stderr.

    Args:
        elsewhere: the CPU seconds so far of other processes that train for this one.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        loop = make(task_from(Path(sys.argv[1])))
        loop.run(TASK.rounds)
        taken = time.process_time() + elsewhere()
        answer = {"accuracy": loop.accuracy(), "cpu_seconds": taken}
        print(json.dumps(answer), file=answers, flush=True)
        return
    by_name = {workload.name: workload for workload in WORKLOADS}
    current = ""
    for line in sys.stdin:
        name, rounds = line.split()
        if name != current:
            loop, current = make(random_job(by_name[name])), name
        began = time.process_time() + elsewhere()
        loop.run(int(rounds))
        print(json.dumps(time.process_time() + elsewhere() - began), file=answers, flush=True)
