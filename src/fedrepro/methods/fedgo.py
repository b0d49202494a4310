"""FedGO (Jang et al., ICML 2025, Algorithms 1 to 3): teachers weighted by their discriminators.

The paper is "FedGO: federated ensemble distillation with GAN-based optimality". As FedDF, but on
each of the server's samples a client's logits count in proportion to n_k D_k / (1 - D_k), D_k its
discriminator of own samples from generated ones: with optimal ones that is n_k p_k, whatever the
generator (Theorem 3.6). Discriminators are made before (``discriminators``, on ``wgan_gp`` or
``fedgan``) and judge the server's samples once.

``weighting`` has the other four that Figure 2 compares: uniform (FedDF), variance, entropy
(temperature 1) and domain, D_k without n_k and of the same discriminators (A11). In place of n_k
stand the mixing coefficients of the round, which are n_k's shares unless a wrapper sets them.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.tree import Tree
from fedrepro.methods.distilling import weighting
from fedrepro.methods.feddf import FedDF, in_batches
from fedrepro.support.errors import bad_value

WEIGHTINGS = ("odds", "uniform", "variance", "entropy", "domain")


@dataclass(frozen=True)
class FedGO(FedDF):
    """FedGO (Jang et al., ICML 2025, Algorithms 1 to 3)."""

    needs: ClassVar[tuple[str, ...]] = ("unlabelled", "discriminators")

    weighting: str = "odds"  # uniform, variance, entropy or domain

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weighting not in WEIGHTINGS:
            one_of = f"one of {', '.join(WEIGHTINGS)}"
            raise bad_value("method fedgo", "weighting", self.weighting, one_of, WEIGHTINGS)

    def init(self, ctx: Context, params: Tree) -> Tree:
        given, critics = ctx.given["unlabelled"], ctx.given["discriminators"]
        assert critics.net is not None
        rows = in_batches(given, ctx.net.device)
        judged = []
        with torch.no_grad():
            for client in range(ctx.clients):
                critic = tree.take(critics.tensors, client)
                scores = [critics.net.predict(critic, given.inputs(each)) for each in rows]
                judged.append(torch.cat(scores).squeeze(-1))
        return {**super().init(ctx, params), "judged": torch.stack(judged)}

    def shares(
        self, ctx: Context, server: Tree, logits: Tensor, judged: Tensor, weights: Tensor
    ) -> Tensor:
        match self.weighting:
            case "uniform":
                return weighting.uniform(logits)
            case "variance":
                return weighting.variance(logits)
            case "entropy":
                return weighting.entropy(logits)
            case "domain":
                return weighting.domain_aware(server["judged"][ctx.cohort])
        return weighting.odds(server["judged"][ctx.cohort], weights)
