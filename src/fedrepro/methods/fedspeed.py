r"""FedSpeed (Sun et al., ICLR 2023, Algorithm 1).

$$ w_k \leftarrow w_k - \eta \left( (1 - \alpha) g_1 + \alpha g_2 - g_k + \mu (w_k - w) \right) $$

$$ g_1 = \nabla F_k(w_k), \quad g_2 = \nabla F_k \left( w_k + \rho \frac{g_1}{\|g_1\|} \right) $$

$$ g_k \leftarrow g_k - \mu (w_k - w), \quad w \leftarrow \sum_k p_k \left( w_k - g_k / \mu \right)
$$

Symbols: $g_k$: client $k$'s correction.

The paper is "FedSpeed: larger local interval, less communication round, and higher generalization
accuracy". A client descends (1 - alpha) g1 + alpha g2 - g_k + mu (theta - w), where g2 is the
gradient at the perturbed point theta + rho g1 / |g1|, and g_k corrects the proximal term:
g_k <- g_k - mu (theta - w) after the local steps (their 1/lambda is ``mu`` here, and ``h`` is
-g_k / mu). It sends theta + h, of which the server takes the mean over the cohort; ``client_model``
gives this sum, not theta.

With a sample of clients in each round, this mean does not come to rest at the minimum: the
corrections of absent clients are missing. ``fedspeed@released`` follows the authors' code: clients
send theta, and the server adds the mean of all clients' h, as FedDyn's does (discrepancy B25).

As in the authors' experiments rho is divided by |g1|; Algorithm 1 has a constant. Clients are
weighted by samples (Algorithm 1: equally). The defaults are those of the authors' code, which also
clips gradients to a norm of 10. BatchNorm's running statistics move at both points.

https://arxiv.org/abs/2302.10429
"""

from dataclasses import dataclass

from torch import Tensor

from fedrepro.engine.fidelity import NonNegative, Positive, Share
from fedrepro.engine.method import Context, Method, Steps, Tree, deviation, tree
from fedrepro.methods.fedsam import perturbed
from fedrepro.methods.lagrangian.augmented import AugmentedLagrangian


@dataclass(frozen=True)
class FedSpeed(AugmentedLagrangian):
    """FedSpeed (Sun et al., ICLR 2023, Algorithm 1)."""

    mu: Positive = 0.1  # their 1 / lambda: strength of the proximal term
    rho: NonNegative = 0.1  # radius of the perturbation
    alpha: Share = 1.0  # the share of the gradient at the perturbed point
    of_cohort: bool = deviation(
        True, released=False, item="B25", why="the server adds all clients' corrections"
    )

    @property
    def penalty(self) -> float:
        return self.mu

    def loss_gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        here = super().loss_gradient(ctx, message, client_state, params, batch)
        away = perturbed(params, here, self.rho)
        there = super().loss_gradient(ctx, message, client_state, away, batch)
        return tree.mix(here, there, self.alpha)

    def client_update(
        self, ctx: Context, message: Tree, client_state: Tree, steps: Steps | Tree
    ) -> tuple[Tree, Tree]:
        update, client_state = super().client_update(ctx, message, client_state, steps)
        if not self.of_cohort:
            return update, client_state
        delta = update["delta"]
        sent = tree.subtract(ctx.net.trainable(delta), client_state["h"])
        return {"delta": {**delta, **sent}}, client_state

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        if self.of_cohort:
            return Method.init_server(self, ctx, params)
        return super().init_server(ctx, params)

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        if self.of_cohort:
            return Method.server_update(self, ctx, server, updates, weights)
        return super().server_update(ctx, server, updates, weights)
