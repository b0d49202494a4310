r"""FedAvgM: momentum on the server.

$$ u \leftarrow \beta u + g, \quad w \leftarrow w - \text{lr} \cdot u, \quad g = \sum_k p_k \Delta_k
$$

Symbols: $u$: the server's momentum; $\beta$: its decay, ``momentum``.
"""

from dataclasses import dataclass

from fedrepro.engine.fidelity import BelowOne
from fedrepro.engine.optim import Optimizer, sgd
from fedrepro.methods.server.base import ServerOptimizer


@dataclass(frozen=True)
class FedAvgM(ServerOptimizer):
    """FedAvgM (Hsu et al., 2019, arXiv:1909.06335): SGD with momentum on the server."""

    momentum: BelowOne = 0.9  # of the server

    def build(self) -> Optimizer:
        return sgd(self.momentum)
