"""FedYogi: the second moment moves by a bounded step."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.methods.server.adaptive import Adaptive


@dataclass(frozen=True)
class FedYogi(Adaptive):
    """FedYogi (Reddi et al., ICLR 2021): v <- v - (1 - beta2) g^2 sign(v - g^2)."""

    beta2: float = 0.99  # decay of the second moment

    def second_moment(self, v: Tensor, gradient: Tensor) -> Tensor:
        square = gradient**2
        return v - (1 - self.beta2) * square * torch.sign(v - square)

    def first_of_two(self, v: Tensor, gradient: Tensor) -> Tensor:
        return v - (1 - self.beta2) * gradient**2 * torch.sign(v + gradient)  # Delta = -gradient
