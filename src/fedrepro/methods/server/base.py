"""Base of server optimizers: the last part of a composition, as in ``fedavg+fedadam``.

The server uses the weighted mean of the clients' updates as a gradient (Reddi et al., ICLR 2021,
"Adaptive federated optimization", Algorithm 2; https://arxiv.org/abs/2003.00295).
"""

from dataclasses import dataclass
from typing import Any

from fedrepro.engine.fidelity import Faithful, Positive, name_of
from fedrepro.engine.optim import Optimizer, sgd
from fedrepro.support import plugins
from fedrepro.support.errors import bad_value


@dataclass(frozen=True)
class ServerOptimizer(Faithful):
    """Plain averaging: the server moves by the mean update of its clients."""

    lr: Positive = 1.0  # the server's learning rate

    def build(self) -> Optimizer:
        return sgd()


def built(server_optimizer: Any) -> Optimizer:
    """The functions that a server optimizer builds.

    Raises:
        UserError: if that is no optimizer of this package, such as one of torch.optim.
    """
    with plugins.blamed():
        optimizer = server_optimizer.build()
    if not isinstance(optimizer, Optimizer):
        where, given = f"server optimizer {name_of(server_optimizer)}", type(optimizer).__name__
        wanted = "an Optimizer of fedrepro.engine.optim, with its functions init and update"
        raise bad_value(where, "build", given, wanted)
    return optimizer
