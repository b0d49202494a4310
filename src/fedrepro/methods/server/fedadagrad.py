"""FedAdagrad: the second moment is a sum."""

from dataclasses import dataclass

from torch import Tensor

from fedrepro.methods.server.adaptive import Adaptive


@dataclass(frozen=True)
class FedAdagrad(Adaptive):
    """FedAdagrad (Reddi et al., ICLR 2021): v <- v + g^2."""

    beta1: float = 0.0  # decay of the first moment

    def second_moment(self, v: Tensor, gradient: Tensor) -> Tensor:
        return v + gradient**2
