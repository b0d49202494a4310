r"""FedGO (Jang et al., ICML 2025, Algorithms 1 to 3): teachers weighted by their discriminators.

$$ w \approx \mathrm{argmin}_v \, \mathrm{mean}_x \, \mathrm{KL} \left( \mathrm{softmax}\, z(x) \,
\| \, \mathrm{softmax}\, f_v(x) \right) $$

$$ z(x) = \sum_k \alpha_k(x) f_{w_k}(x), \quad \alpha_k(x) \propto n_k \frac{D_k(x)}{1 - D_k(x)},
\quad \sum_k \alpha_k(x) = 1 $$

Symbols: $x$: a sample of the server's; $z$: the ensemble's logits; $D_k$: the output of client
$k$'s discriminator.

The paper is "Provably near-optimal federated ensemble distillation with negligible overhead". It
differs from FedDF in the weights of teachers: on each of the server's samples, a client's logits
count in proportion to n_k D_k / (1 - D_k), where D_k is the client's discriminator of own against
generated samples. With optimal discriminators that is n_k times the density of client k's samples,
for any generator (Theorem 3.6). Discriminators are trained in an earlier run (``discriminators``,
on ``wgan_gp`` or ``fedgan``) and judge the server's samples once.

``weighting`` selects one of the other four that Figure 2 compares: uniform (FedDF), variance,
entropy (temperature 1) and domain, D_k without n_k and with the same discriminators (A11). In place
of n_k the code uses the round's aggregation weights, which are n_k's shares unless a wrapper sets
them.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from fedrepro.engine.fidelity import one_of
from fedrepro.engine.method import Context, LoadedArtifact, Tree
from fedrepro.methods.distilling import weighting
from fedrepro.methods.feddf import FedDF, Teacher, in_batches

WEIGHTINGS = ("odds", "uniform", "variance", "entropy", "domain")


@torch.no_grad()
def scores(ctx: Context, client: int, given: LoadedArtifact) -> Tensor:
    """The output of a client's discriminator for samples, [n]."""
    critics, rows = ctx.artifacts["discriminators"], in_batches(given, ctx.net.device)
    return torch.cat([critics.outputs(client, given.inputs(batch)) for batch in rows]).squeeze(-1)


@dataclass(frozen=True)
class FedGO(FedDF):
    """FedGO (Jang et al., ICML 2025, Algorithms 1 to 3)."""

    requires: ClassVar[tuple[str, ...]] = ("unlabelled", "discriminators")

    weighting: Annotated[str, one_of(*WEIGHTINGS)] = "odds"  # uniform, variance, entropy or domain

    def init_server(self, ctx: Context, params: Tree) -> Tree:
        given = ctx.artifacts["unlabelled"]
        judged = torch.stack([scores(ctx, client, given) for client in range(ctx.clients)])
        return {**super().init_server(ctx, params), "judged": judged}

    def judge(
        self, ctx: Context, server: Tree, updates: Tree, teacher: Teacher, given: LoadedArtifact
    ) -> Tensor:
        client = int(ctx.cohort[teacher.place])
        if given is ctx.artifacts["unlabelled"]:
            return torch.as_tensor(server["judged"][client])
        return scores(ctx, client, given)

    def shares(self, logits: Tensor, judged: Tensor, weights: Tensor) -> Tensor:
        match self.weighting:
            case "uniform":
                return weighting.uniform(logits)
            case "variance":
                return weighting.variance(logits)
            case "entropy":
                return weighting.entropy(logits)
            case "domain":
                return weighting.domain_aware(judged)
        return weighting.odds(judged, weights)
