"""Base of server optimizers: the last part of a composition, as in ``fedavg+fedadam``.

The server uses the weighted mean of the clients' updates as a gradient (Reddi et al., ICLR 2021,
"Adaptive federated optimization", Algorithm 2; https://arxiv.org/abs/2003.00295).
"""

from dataclasses import dataclass

from fedrepro.engine.fidelity import Faithful, Positive
from fedrepro.engine.optim import Optimizer, sgd


@dataclass(frozen=True)
class ServerOptimizer(Faithful):
    """Plain averaging: the server moves by the mean update of its clients."""

    lr: Positive = 1.0  # the server's learning rate

    def build(self) -> Optimizer:
        return sgd()
