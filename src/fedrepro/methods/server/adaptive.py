"""Base of the adaptive server optimizers.

The state is kept between rounds. ``initial_accumulator`` 0 is the start that IMA's released code
has.

``fedadam@released`` and so on follow AAggFF's released code (discrepancy 19). It creates the
optimizer again in every round, so that m is (1 - beta1) of the round's own gradient, and updates v
twice: once on creation, from tau squared, and again in the step. Yogi's first update uses the sign
of v0 - Delta, with Delta the clients' mean update, in place of v0 - Delta squared.
"""

from dataclasses import dataclass

from torch import Tensor

from fedrepro.engine.fidelity import BelowOne, NonNegative, Positive, deviation
from fedrepro.engine.optim import Optimizer, adaptive, forgetful
from fedrepro.methods.server.base import ServerOptimizer


@dataclass(frozen=True)
class Adaptive(ServerOptimizer):
    """Base of the three adaptive ones; ``initial_accumulator`` is the initial value of v.

    None means tau squared, the smallest value that Algorithm 2 allows.
    """

    lr: Positive = 0.01  # the server's learning rate
    beta1: BelowOne = 0.9  # decay of the first moment
    tau: Positive = 1e-3  # added to the root of v
    initial_accumulator: NonNegative | None = None  # of v; None: tau squared
    remembers: bool = deviation(
        True, released=False, item="19", why="no memory of earlier rounds; v is updated twice"
    )

    def second_moment(self, v: Tensor, gradient: Tensor) -> Tensor:
        raise NotImplementedError

    def first_of_two(self, v: Tensor, gradient: Tensor) -> Tensor:
        """The released code's update of v before that of the step."""
        return self.second_moment(v, gradient)

    def build(self) -> Optimizer:
        if self.remembers:
            return adaptive(self.second_moment, self.beta1, self.tau, self.initial_accumulator)

        def twice(v: Tensor, gradient: Tensor) -> Tensor:
            return self.second_moment(self.first_of_two(v, gradient), gradient)

        return forgetful(adaptive(twice, self.beta1, self.tau, self.initial_accumulator))
