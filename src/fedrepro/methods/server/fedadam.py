"""FedAdam: the second moment is a moving average."""

from dataclasses import dataclass

from torch import Tensor

from fedrepro.methods.server.adaptive import Adaptive


@dataclass(frozen=True)
class FedAdam(Adaptive):
    """FedAdam (Reddi et al., ICLR 2021): v <- beta2 v + (1 - beta2) g^2."""

    beta2: float = 0.99  # decay of the second moment

    def second_moment(self, v: Tensor, gradient: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * gradient**2
