r"""FedSAM (Qu et al., ICML 2022, Algorithm 1).

$$ w_k \leftarrow w_k - \eta \nabla F_k \left( w_k + \rho \frac{g}{\|g\|} \right), \quad g = \nabla
F_k(w_k) $$

The paper is "Generalized federated learning via sharpness aware minimization". Every local step is
a step of SAM (Foret et al., ICLR 2021): the gradient is taken at w + rho g / |g|, to first order
the worst point of a ball around w. Weight decay and momentum act at w. Caldarola et al. (ECCV 2022)
propose the same. BatchNorm's running statistics move at both points. rho = 0.05 is the default of
Foret et al.; the server's rate is 1.

https://arxiv.org/abs/2206.02618, https://arxiv.org/abs/2010.01412
"""

from dataclasses import dataclass

import torch

from fedrepro.engine.fidelity import NonNegative
from fedrepro.engine.method import Context, Method, Tree, tree

LEAST_NORM = 1e-16  # a zero gradient has no direction


def perturbed(params: Tree, gradient: Tree, rho: float) -> Tree:
    """``params`` + rho g / |g|; leaves without a gradient (buffers) stay."""
    with torch.no_grad():
        away = tree.scale(gradient, rho / (tree.square_norm(gradient).sqrt() + LEAST_NORM))
    return {name: leaf + away[name] if name in away else leaf for name, leaf in params.items()}


@dataclass(frozen=True)
class FedSAM(Method):
    """FedSAM (Qu et al., ICML 2022, Algorithm 1)."""

    rho: NonNegative = 0.05  # radius of the ball

    def gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        here = super().gradient(ctx, message, client_state, params, batch)
        worst = perturbed(params, here, self.rho)
        return super().gradient(ctx, message, client_state, worst, batch)
