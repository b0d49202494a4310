"""Server optimizers, named as the last part of a composition: ``fedavg+fedadam``.

The server takes the weighted mean of the clients' movements for a gradient (Reddi et al., ICLR
2021, "Adaptive federated optimization", Algorithm 2). The state is kept from round to round; that
of IMA's released code starts at zero.

``fedadam@released`` and so on are those of AAggFF's released code (discrepancy 19). It makes the
optimizer anew in every round, so that m is (1 - beta1) of the round's own gradient, and updates v
twice: once where it makes it, from tau squared, and once more in the step. Yogi's first time has
the sign of v0 - Delta, with Delta the clients' mean movement, in place of v0 - Delta squared.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.fidelity import Faithful, divergence
from fedrepro.optim import Optimizer, adaptive, forgetful, sgd


@dataclass(frozen=True)
class ServerOptimizer(Faithful):
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
    remembers: bool = divergence(
        True, released=False, item="19", why="no memory of earlier rounds; v is updated twice"
    )

    def second_moment(self, v: Tensor, gradient: Tensor) -> Tensor:
        raise NotImplementedError

    def first_of_two(self, v: Tensor, gradient: Tensor) -> Tensor:
        """The update of v that the released code makes before that of the step."""
        return self.second_moment(v, gradient)

    def build(self) -> Optimizer:
        if self.remembers:
            return adaptive(self.second_moment, self.beta1, self.tau, self.initial_accumulator)

        def twice(v: Tensor, gradient: Tensor) -> Tensor:
            return self.second_moment(self.first_of_two(v, gradient), gradient)

        return forgetful(adaptive(twice, self.beta1, self.tau, self.initial_accumulator))


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

    def first_of_two(self, v: Tensor, gradient: Tensor) -> Tensor:
        return v - (1 - self.beta2) * gradient**2 * torch.sign(v + gradient)  # Delta = -gradient


SERVER_OPTIMIZERS: dict[str, type[ServerOptimizer]] = {
    "fedavgm": FedAvgM,
    "fedadagrad": FedAdagrad,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
}
