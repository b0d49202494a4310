"""The four fixed workloads of `make bench`: sizes, and random data of the right shapes."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedrepro.models import registry as models


@dataclass(frozen=True)
class Workload:
    """One federated training job, whose cost depends on its shapes and not on its data.

    Attributes:
        name, title: W1 to W4, and what that is in words.
        model: by its name in the registry of models.
        shape, classes: of one sample, and how many; 2 classes are learned with one output.
        clients, samples, cohort: clients in all, samples of each, clients in a round.
        epochs, batch_size: of a client's training in a round.
        rounds: how many rounds one measurement takes, so that it lasts some seconds.
        measurements: how many there are.
    """

    name: str
    title: str
    model: str
    shape: tuple[int, ...]
    classes: int
    clients: int
    samples: int
    cohort: int
    epochs: int
    batch_size: int
    rounds: int
    measurements: int
    lr: float = 0.05

    @property
    def steps_per_round(self) -> int:
        return self.cohort * self.epochs * -(-self.samples // self.batch_size)

    @property
    def binary(self) -> bool:
        return self.classes == 2

    def module(self) -> nn.Module:
        return models.build(self.model, self.shape, 1 if self.binary else self.classes)

    def data(self) -> tuple[Tensor, Tensor]:
        """All clients' samples, client by client: images as bytes, tables as floats."""
        rng = torch.Generator().manual_seed(0)
        total = self.clients * self.samples
        if len(self.shape) == 3:
            x = torch.randint(256, (total, *self.shape), generator=rng, dtype=torch.uint8)
        else:
            x = torch.randn(total, *self.shape, generator=rng)
        return x, torch.randint(self.classes, (total,), generator=rng)


WORKLOADS = [
    Workload(
        name="W1",
        title="CNN on 28x28 (conv 5x5 32/64, FC 512), 100 clients x 100, 10 a round, batch 20",
        model="mcmahan_cnn",
        shape=(1, 28, 28),
        classes=10,
        clients=100,
        samples=100,
        cohort=10,
        epochs=1,
        batch_size=20,
        rounds=3,
        measurements=5,
    ),
    Workload(
        name="W2",
        title="TwoNN, 500 clients x 96, 5 a round, 10 epochs, batch 10",
        model="twonn",
        shape=(1, 28, 28),
        classes=10,
        clients=500,
        samples=96,
        cohort=5,
        epochs=10,
        batch_size=10,
        rounds=6,
        measurements=5,
    ),
    Workload(
        name="W3",
        title="logistic regression, 7 clients x 90 x 15 features, batch 20",
        model="logistic",
        shape=(15,),
        classes=2,
        clients=7,
        samples=90,
        cohort=7,
        epochs=1,
        batch_size=20,
        rounds=200,
        measurements=5,
    ),
    Workload(
        name="W4",
        title="ResNet-18 on 32x32, 5 clients x 100, batch 50",
        model="ima_resnet18",
        shape=(3, 32, 32),
        classes=10,
        clients=5,
        samples=100,
        cohort=5,
        epochs=1,
        batch_size=50,
        rounds=1,
        measurements=2,
    ),
]
