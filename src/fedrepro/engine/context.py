"""What a hook may read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.net import Net
from fedrepro.engine.optim import Optimizer, Rate, sgd
from fedrepro.engine.task import CLASSIFICATION, Task
from fedrepro.engine.tree import Tree
from fedrepro.support.rng import stream


@dataclass(frozen=True)
class LoadedArtifact:
    """What another run, a file or the server's own data give a method that needs it.

    Attributes:
        tensors: what the other run left (:meth:`fedrepro.engine.method.Method.artifact`); of
            samples the inputs as they are stored, ``{"x": [n, ...]}``.
        net: what the tensors parametrise; None where they are samples.
        about: what else the other run says of them, such as a generator's ``latent``.
        scaling: stored inputs -> inputs of a model.
    """

    tensors: Tree
    net: Net | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    scaling: Callable[[Tensor], Tensor] = lambda x: x

    def __len__(self) -> int:
        """How many samples are given."""
        return len(self.tensors["x"])

    def inputs(self, rows: Tensor) -> Tensor:
        """Those of some samples, [*rows.shape, ...]."""
        return self.scaling(self.tensors["x"][rows])

    def outputs(self, client: int, x: Tensor) -> Tensor:
        """What one client's network gives of inputs ``x`` [n, ...], [n, outputs], in testing mode.

        For tensors with leaves [clients, ...].
        """
        assert self.net is not None
        return self.net.predict(tree.take(self.tensors, client), x)


@dataclass(frozen=True)
class Inputs:
    """What the samples of a federation look like.

    Attributes:
        shape: of one.
        classes: how many there are; 0 where samples have none.
        range: the least and the largest value that the setting's scaling gives a pixel; None for
            what is no image, or where that differs from channel to channel.
        unheld: classes of which no client has a training sample.
    """

    shape: tuple[int, ...] = ()
    classes: int = 0
    range: tuple[float, float] | None = None
    unheld: tuple[int, ...] = ()


@dataclass(frozen=True)
class Context:
    """All that a hook may read: the federation, and the facts of this round.

    ``loss``, ``gradient`` and ``client_update`` are compiled when clients run side by side. What
    they read of the round (other than ``lr``) should come through ``sample_steps`` or ``message``,
    or each round would be compiled anew.

    Attributes:
        net: the model as a function of its parameters.
        task: loss and correctness.
        clients: how many clients the federation has, K.
        rounds: how many rounds the run has.
        epochs: local epochs per round, E.
        batch_size: of local training; an epoch's last mini-batch may have fewer.
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
        given: what the method's ``requires`` name, each as it was given.
        nets: the further networks of :meth:`fedrepro.engine.method.Method.nets`.
        inputs: what samples look like.
        seed: of all randomness; ask for it through :meth:`stream`.
        flips: whether training sees each image mirrored half of the times.
        mode: for the engine: how clients side by side are compiled
            (:mod:`fedrepro.engine.executors`).
    """

    net: Net
    task: Task = CLASSIFICATION
    clients: int = 1
    rounds: int = 1
    epochs: int = 1
    batch_size: int = 0
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
    artifacts: Mapping[str, LoadedArtifact] = field(default_factory=dict)
    nets: Mapping[str, Net] = field(default_factory=dict)
    inputs: Inputs = Inputs()
    seed: int = 0
    flips: bool = False
    mode: Literal["eager", "compiled", "unrolled"] = "eager"

    def stream(self, purpose: str) -> torch.Generator:
        """The server's randomness of this round for one purpose; a new generator at each call.

        ``init_server`` has the streams of the first round: its purposes need names of their own.
        """
        return stream(self.seed, "server", self.round, purpose)
