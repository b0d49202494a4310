"""The federation that oracles play in: samples, cohorts, mini-batches, rates. See by_hand.py."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from support.by_hand import Array, Model, initial, torch_stream
from support.oracles.numeric import SGD, cross_entropy, gradient, logits

State = dict[str, Any]  # nested dicts of arrays
Played = Iterator[tuple[State, dict[int, State]]]  # a round's server state, and all clients' states
LAYERS, WIDTHS = ("body.0", "head"), (6, 8, 3)


@dataclass(frozen=True)
class Batch:
    """A mini-batch, and which step of the client's round it is."""

    x: Array
    y: Array
    step: int


Loss = Callable[[Model, Batch], Any]


def classified(model: Mapping[str, Array], batch: Batch) -> Any:
    """The cross-entropy."""
    return cross_entropy(logits(model, batch.x), batch.y)


@dataclass
class Clients:
    """Everything that is given to an oracle.

    Attributes:
        x, y: every client's samples.
        given: further inputs of the method, such as unlabelled samples, as arrays.
        options: hyperparameters of the method.
    """

    x: list[Array]
    y: list[Array]
    rounds: int
    cohort_size: int
    batch_size: int = 8
    epochs: int = 2
    rate_of_first: float = 0.1
    decay: float = 0.99
    momentum: float = 0.9
    weight_decay: float = 1e-2
    seed: int = 3
    given: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.y)

    def initial(self) -> Model:
        return initial(LAYERS, WIDTHS, self.seed)

    def rate(self, t: int) -> float:
        return self.rate_of_first * self.decay**t

    def cohort(self, t: int) -> list[int]:
        if self.cohort_size == len(self):
            return list(range(len(self)))
        drawn = torch.randperm(len(self), generator=self.stream("cohort", t)).tolist()
        return sorted(drawn[: self.cohort_size])

    def stream(self, *key: object) -> torch.Generator:
        return torch_stream(self.seed, *key)

    def server_stream(self, t: int, purpose: str) -> torch.Generator:
        return self.stream("server", t, purpose)

    def sizes(self, cohort: Sequence[int] | None = None) -> Array:
        everyone = range(len(self)) if cohort is None else cohort
        return np.array([len(self.y[client]) for client in everyone], float)

    def shares(self, cohort: Sequence[int]) -> Array:
        """n_k over their sum."""
        return self.sizes(cohort) / self.sizes(cohort).sum()

    def steps(self, t: int, client: int) -> int:
        return self.epochs * -(-len(self.y[client]) // self.batch_size)

    def batches(self, t: int, client: int) -> tuple[list[list[Batch]], torch.Generator]:
        """A client's mini-batches by epoch, and the generator from which a method draws more."""
        random = self.stream("shuffle", t, client)
        x, y, size = self.x[client], self.y[client], self.batch_size
        epochs, step = [], 0
        for _ in range(self.epochs):
            order, epoch = torch.randperm(len(y), generator=random).numpy(), []
            for first in range(0, len(y), size):
                rows = order[first : first + size]
                epoch.append(Batch(x[rows], y[rows], step))
                step += 1
            epochs.append(epoch)
        return epochs, random

    def optimizer(self) -> SGD:
        return SGD(self.momentum, self.weight_decay)

    def train(
        self,
        model: Model,
        t: int,
        client: int,
        loss: Loss = classified,
        *,
        optimizer: Any = None,
        epochs: slice = slice(None),
        only: Callable[[str], bool] = lambda name: True,
        slope: Callable[[Model, Batch], Model] | None = None,
        rate: float | None = None,
    ) -> Model:
        """A client's local training in round ``t``: a new optimizer's steps along ``loss``.

        Args:
            epochs: which of the round's epochs.
            only: which leaves move.
            slope: what is descended, in place of the gradient of ``loss``.
        """
        optimizer = optimizer or self.optimizer()
        rate = self.rate(t) if rate is None else rate
        for batch in (each for epoch in self.batches(t, client)[0][epochs] for each in epoch):
            moving = {name: leaf for name, leaf in model.items() if only(name)}
            fixed = model

            def of(part: Model, batch: Batch = batch, fixed: Model = fixed) -> Any:
                return loss({**fixed, **part}, batch)

            slopes = slope(model, batch) if slope else gradient(of, moving)
            model = optimizer.step(model, slopes, rate)
        return model

    def loss_of(self, model: Model, client: int) -> float:
        """On all of a client's samples."""
        return float(cross_entropy(logits(model, self.x[client]), self.y[client]))


def mean(models: Sequence[Model], shares: Array) -> Model:
    """The weighted sum of models."""
    return {
        name: sum(p * model[name] for p, model in zip(shares, models, strict=True))
        for name in models[0]
    }


def flat(model: Mapping[str, Array]) -> Array:
    return np.concatenate([leaf.ravel() for leaf in model.values()])
