"""What the adaptive server optimizers share.

The state is kept from round to round; that of IMA's released code starts at zero.

``fedadam@released`` and so on are those of AAggFF's released code (discrepancy 19). It makes the
optimizer anew in every round, so that m is (1 - beta1) of the round's own gradient, and updates v
twice: once where it makes it, from tau squared, and once more in the step. Yogi's first time has
the sign of v0 - Delta, with Delta the clients' mean movement, in place of v0 - Delta squared.
"""

from dataclasses import dataclass

from torch import Tensor

from fedrepro.engine.fidelity import deviation
from fedrepro.engine.optim import Optimizer, adaptive, forgetful
from fedrepro.methods.server.base import ServerOptimizer


@dataclass(frozen=True)
class Adaptive(ServerOptimizer):
    """What the three adaptive ones share; ``initial_accumulator`` is where v starts.

    None means tau squared, the least that Algorithm 2 allows.
    """

    lr: float = 0.01
    beta1: float = 0.9
    tau: float = 1e-3
    initial_accumulator: float | None = None
    remembers: bool = deviation(
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
