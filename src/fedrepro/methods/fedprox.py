r"""FedProx (Li et al., MLSys 2020, "Federated optimization in heterogeneous networks", eq. 2).

$$ w_k \approx \mathrm{argmin}_v \, F_k(v) + \frac{\mu}{2} \|v - w\|^2 $$

A proximal term pulls the local model v towards the received one, w.

The released code of SuPerFed and AAggFF takes mu times the sum over layers of the norms, not
squared (discrepancy 21); IMA's code has the square, as here. ``sample_weighted`` and
``constant_server_lr`` are as in FedAvg (12, 13), but not part of ``fedprox@released``: AAggFF's
code deviates in them, SuPerFed's does not. The same holds for ``halved``: AAggFF's code has mu/2
times the norms.

https://arxiv.org/abs/1812.06127
"""

from dataclasses import dataclass

from torch import Tensor

from fedrepro.engine.fidelity import NonNegative
from fedrepro.engine.method import Context, Tree, deviation
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.personal.proximity import UNSQUARED, gradient_with_pull


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedProx (Li et al., MLSys 2020, eq. 2)."""

    sample_weighted: bool = True  # False: clients count the same
    constant_server_lr: bool = True  # False: the server's rate grows as the clients' decays
    mu: NonNegative = 0.01  # strength of the proximal term
    halved: bool = False  # mu/2 times norms that are not squared; squared ones always have mu/2
    squared: bool = deviation(True, released=False, item="21", why=UNSQUARED)

    def gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        # Not in `loss`: the gradient of the pull has a closed form, faster than autograd.
        mu = self.mu / 2 if self.halved and not self.squared else self.mu

        def loss(params: Tree) -> Tensor:
            return self.loss(ctx, message, client_state, params, batch)

        return gradient_with_pull(ctx, loss, params, message["params"], mu, self.squared)
