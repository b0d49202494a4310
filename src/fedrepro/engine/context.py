"""The context that hooks may read."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
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
    """An artifact that a method gets: from another run, a file or the server's own data.

    Attributes:
        tensors: the other run's :meth:`fedrepro.engine.method.Method.artifact`; for samples the
            stored inputs, ``{"x": [n, ...]}``.
        net: the network that the tensors parametrise; None for samples.
        about: what the other run says about them, such as a generator's ``latent``.
        scaling: stored inputs -> inputs of a model.
    """

    tensors: Tree
    net: Net | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    scaling: Callable[[Tensor], Tensor] = lambda x: x

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.tensors["x"])

    def inputs(self, rows: Tensor) -> Tensor:
        """The model inputs of some samples, [*rows.shape, ...]."""
        return self.scaling(self.tensors["x"][rows])

    def outputs(self, client: int, x: Tensor) -> Tensor:
        """The outputs of one client's network for inputs ``x`` [n, ...], [n, outputs].

        For tensors with leaves [clients, ...]. Dropout and BatchNorm are in testing mode.
        """
        assert self.net is not None
        return self.net.predict(tree.take(self.tensors, client), x)


@dataclass(frozen=True)
class Inputs:
    """The form of a federation's samples.

    Attributes:
        shape: of one sample.
        classes: number of classes; 0 if samples have none.
        range: smallest and largest value of a scaled pixel; None if samples are not images, or if
            the range differs between channels.
        unheld: classes of which no client has a training sample.
        span: the range over all channels; None if samples are not images.
    """

    shape: tuple[int, ...] = ()
    classes: int = 0
    range: tuple[float, float] | None = None
    unheld: tuple[int, ...] = ()
    span: tuple[float, float] | None = None


@dataclass(frozen=True)
class Context:
    """All that a hook may read: the federation, and the facts of this round.

    The engine compiles ``loss``, ``gradient`` and ``client_update`` when clients run side by side.
    Values that change from round to round (other than ``lr``) should reach them through
    ``sample_steps`` or ``message``; otherwise they are recompiled in every round.

    Attributes:
        net: the model as a function of its parameters.
        task: loss and correctness.
        clients: number of clients in the federation, K.
        rounds: number of rounds in the run.
        epochs: local epochs per round, E.
        batch_size: of local training; the last mini-batch of an epoch may be smaller.
        cohort_size: how many clients the server asks in a round; some may not send an update.
        optimizer: the clients' optimizer.
        server_optimizer: turns the mean update into the next parameters.
        schedule: round -> the clients' learning rate, before any method changes it.
        server_lr: the server optimizer's learning rate.
        round: this round, from 0.
        lr: the clients' learning rate in this round; a scalar tensor inside a compiled step.
        cohort: ids of this round's clients, int64 [cohort].
        sizes: their numbers of training samples, float [cohort].
        total: training samples of all clients, including those that do not take part.
        initial: the parameters before the first round, from which personal models start.
        artifacts: what the method's ``requires`` and ``optional`` name.
        nets: the networks of :meth:`fedrepro.engine.method.Method.nets`.
        inputs: what samples look like.
        seed: seed of all randomness; use :meth:`stream` instead.
        flips: whether training mirrors each image with probability 1/2.
        mode: for the engine: how clients that run side by side are compiled
            (:mod:`fedrepro.engine.executors`).
    """

    net: Net
    task: Task = CLASSIFICATION
    clients: int = 1
    rounds: int = 1
    epochs: int = 1
    batch_size: int = 0
    cohort_size: int = 1
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

    @property
    def draws(self) -> bool:
        """True if layers of the model or of the method's networks draw random numbers."""
        return any(net.draws for net in (self.net, *self.nets.values()))

    def drawing_from(self, seed: int) -> AbstractContextManager[None]:
        """A context in which these layers draw from ``seed``: :meth:`Net.drawing_from`."""
        return self.net.drawing_from(seed, self.draws)

    def stream(self, purpose: str) -> torch.Generator:
        """The server's randomness in this round for one purpose; a new generator at each call.

        ``init_server`` shares the streams of the first round, so its purposes need other names.
        """
        return stream(self.seed, "server", self.round, purpose)
