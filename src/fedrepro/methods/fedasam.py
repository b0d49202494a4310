r"""FedASAM (Caldarola et al., ECCV 2022, "Improving generalization in federated learning", eq. 5).

$$ w_k \leftarrow w_k - \eta \nabla F_k(w_k + \epsilon), \quad \epsilon = \rho \frac{T^2 g}{\|T g\|}
$$

$$ g = \nabla F_k(w_k), \quad T = \mathrm{diag}(|w_k| + \zeta) $$

Symbols: $g$: the gradient at $w_k$; $\zeta$: the hyperparameter ``eta``; $T$ is 1 for biases.

Every local step is a step of ASAM (Kwon et al., ICML 2021, eqs. 9 to 11): the gradient is taken at
w + eps instead of w, the worst point of a neighbourhood that scales with the weights,
eps = rho * T^2 g / |T g| with T = |w| + eta for weights and 1 for biases. Weight decay and momentum
act at w. The defaults are for CNNs; for other networks rho = 0.2 and eta = 0.05 (IMA, Table V).

As in IMA's text and code, the stochastic weight averaging of Caldarola et al. is left out. A
parameter counts as a weight if its name contains "weight", including those of normalisation layers,
as in the code of both papers.

https://arxiv.org/abs/2203.11834, https://arxiv.org/abs/2102.11600
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.engine.fidelity import NonNegative
from fedrepro.engine.method import Context, Method, Tree, tree

LEAST_NORM = 1e-16  # a zero gradient has no direction


@dataclass(frozen=True)
class FedASAM(Method):
    """FedASAM (Caldarola et al., ECCV 2022; Kwon et al., ICML 2021, eqs. 9 to 11)."""

    rho: NonNegative = 0.7  # size of the neighbourhood
    eta: NonNegative = 0.2  # added to the absolute weights

    def gradient(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tree:
        here = super().gradient(ctx, message, client_state, params, batch)
        away = self.ascent(params, here)
        worst = {name: leaf + away[name] if name in away else leaf for name, leaf in params.items()}
        return super().gradient(ctx, message, client_state, worst, batch)

    @torch.no_grad()
    def ascent(self, params: Tree, gradient: Tree) -> Tree:
        """eps, over the leaves of ``gradient``."""

        def scale(name: str) -> Tensor | float:
            return params[name].abs() + self.eta if "weight" in name else 1.0

        scaled = {name: leaf * scale(name) for name, leaf in gradient.items()}
        length = self.rho / (tree.square_norm(scaled).sqrt() + LEAST_NORM)
        return {name: leaf * scale(name) * length for name, leaf in scaled.items()}
