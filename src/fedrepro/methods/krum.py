r"""Krum (Blanchard et al., NeurIPS 2017). A wrapper.

$$ w \leftarrow w - \Delta_{k^*}, \quad k^* = \mathrm{argmin}_k \, \sum_{j \in N_k} \|\Delta_k -
\Delta_j\|^2, \quad N_k \text{: the } m - f - 2 \text{ closest to } k $$

Symbols: $f$: the largest number of attackers, ``share`` times $m$, rounded down.

The paper is "Machine learning with adversaries: Byzantine tolerant gradient descent" (section 4).
Of a cohort of m clients up to f may be attackers: the ``share``, rounded down. A client's score is
the sum of the squared distances of its update to the m - f - 2 closest others. The server moves by
the update with the lowest score. The theorem requires m > 2 f + 2; in a smaller cohort the score is
the distance to the closest update. Distances leave out running statistics, which have other units.

https://arxiv.org/abs/1703.02757
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine.method import Context, Tree, tree
from fedrepro.methods._combining import Withstanding


def scores(deltas: list[Tensor], attackers: int) -> Tensor:
    """Krum's score of each client [cohort]; ``deltas`` are leaves [cohort, ...]."""
    flat = [tree.rows(leaf) for leaf in deltas]
    # Exact differences: the usual detour by products loses what sets close updates apart.
    exact = "donot_use_mm_for_euclid_dist"
    squares = [torch.cdist(leaf, leaf, compute_mode=exact).double().square() for leaf in flat]
    distances = torch.stack(squares).sum(0).sort(1).values
    closest = max(len(distances) - attackers - 2, 1)
    return distances[:, 1 : 1 + closest].sum(1)  # the first is to itself


@dataclass(frozen=True)
class Krum(Withstanding):
    """Krum (Blanchard et al., NeurIPS 2017, section 4)."""

    selects: ClassVar[bool] = True

    def selected(self, cohort: int, attackers: int) -> int:
        """How many updates the server uses."""
        return 1

    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        cohort = len(ctx.sizes)
        attackers = self.attackers(ctx)
        deltas = tree.leaves(ctx.net.trainable(updates["delta"]))
        best = scores(deltas, attackers).argsort(stable=True)
        best = best[: self.selected(cohort, attackers)]
        return torch.zeros_like(ctx.sizes).index_fill(0, best, 1 / len(best)), server

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        # Without the others: a weight of zero does not keep out NaN.
        best = weights.nonzero().flatten()
        delta = tree.apply(lambda leaf: leaf[best], updates["delta"])
        return self.inner.server_update(ctx, server, {"delta": delta}, weights[best])
