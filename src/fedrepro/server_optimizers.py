"""Server optimizers, named as the last part of a composition: ``fedavg+fedadam``.

The server takes the weighted mean of the clients' movements for a gradient (Reddi et al., ICLR
2021, "Adaptive federated optimization", Algorithm 2). The state is kept from round to round; the
released code of AAggFF makes it anew each round (discrepancy 19), that of IMA starts it at zero.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.optim import Optimizer, adaptive, sgd


@dataclass(frozen=True)
class ServerOptimizer:
    """Plain averaging: the server moves by the mean movement of its clients."""

    lr: float = 1.0

    def build(self) -> Optimizer:
        return sgd()


@dataclass(frozen=True)
class FedAvgM(ServerOptimizer):
    """FedAvgM (Hsu et al., 2019, arXiv:1909.06335): SGD with momentum on the server."""

    momentum: float = 0.9

    def build(self) -> Optimizer:
        return sgd(self.momentum)


@dataclass(frozen=True)
class Adaptive(ServerOptimizer):
    """What the three adaptive ones share; ``initial_accumulator`` is where v starts.

    None means tau squared, the least that Algorithm 2 allows.
    """

    lr: float = 0.01
    beta1: float = 0.9
    tau: float = 1e-3
    initial_accumulator: float | None = None

    def second_moment(self, v: Tensor, gradient: Tensor) -> Tensor:
        raise NotImplementedError

    def build(self) -> Optimizer:
        return adaptive(self.second_moment, self.beta1, self.tau, self.initial_accumulator)


@dataclass(frozen=True)
class FedAdagrad(Adaptive):
    """FedAdagrad (Reddi et al., ICLR 2021): v <- v + g^2."""

    beta1: float = 0.0

    def second_moment(self, v: Tensor, gradient: Tensor) -> Tensor:
        return v + gradient**2


@dataclass(frozen=True)
class FedAdam(Adaptive):
    """FedAdam (Reddi et al., ICLR 2021): v <- beta2 v + (1 - beta2) g^2."""

    beta2: float = 0.99

    def second_moment(self, v: Tensor, gradient: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * gradient**2


@dataclass(frozen=True)
class FedYogi(Adaptive):
    """FedYogi (Reddi et al., ICLR 2021): v <- v - (1 - beta2) g^2 sign(v - g^2)."""

    beta2: float = 0.99

    def second_moment(self, v: Tensor, gradient: Tensor) -> Tensor:
        square = gradient**2
        return v - (1 - self.beta2) * square * torch.sign(v - square)


SERVER_OPTIMIZERS: dict[str, type[ServerOptimizer]] = {
    "fedavgm": FedAvgM,
    "fedadagrad": FedAdagrad,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
}
