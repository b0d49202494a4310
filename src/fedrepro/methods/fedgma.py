r"""FedGMA, gradient-masked averaging (Tenison et al., TMLR 2023, "Gradient masked averaging").

$$ w \leftarrow w - M \odot \sum_k p_k \Delta_k $$

$$ A = \left| \frac{1}{m} \sum_k \mathrm{sign}(\Delta_k) \right|, \quad M = \begin{cases} 1 &
\text{where } A \ge \text{threshold} \\ A & \text{elsewhere} \end{cases} $$

Where clients disagree on the direction of a parameter, the server moves it less. The agreement of
m clients is A = |sum_k sign(delta_k)| / m. The mask is 1 where A reaches the threshold, else A
itself, and the server follows the mask times the mean update. With ``hard``, the mask is 0 where A
is below the threshold: the AND-mask as IMA describes it, which makes the update sparse (sections
2.2 and 6.4, Appendix D). Buffers have no gradient and are averaged as usual.

IMA's released code (discrepancy B5) does neither: it keeps the plain average and then subtracts
1e-4 / m times every client's masked update, each measured from the model that the previous clients
left. That equals FedAvg to four digits, as do the numbers that IMA prints: ``@released``.

https://arxiv.org/abs/2201.11986
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.engine.fidelity import Share
from fedrepro.engine.method import Context, Method, Tree, deviation, tree

RELEASED_RATE = 1e-4  # the server's, fixed in the released code


@dataclass(frozen=True)
class FedGMA(Method):
    """FedGMA, gradient-masked averaging (Tenison et al., TMLR 2023)."""

    threshold: Share = 0.8  # epsilon in IMA's Table V
    hard: bool = False  # zero what fewer clients agree on, instead of weakening it
    masks_the_mean: bool = deviation(
        True, released=False, item="B5", why="the plain average, less 1e-4 of the masked movements"
    )

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        mean = tree.weighted_sum(updates["delta"], weights)
        deltas = ctx.net.trainable(updates["delta"])
        change = self.masked if self.masks_the_mean else self.released
        masked = tree.apply(change, ctx.net.trainable(mean), deltas)
        return self.apply_server_optimizer(ctx, server, {**mean, **masked})

    def masked(self, mean: Tensor, deltas: Tensor) -> Tensor:
        """The masked mean update of one parameter; ``deltas`` are [cohort, ...]."""
        agreement = deltas.sign().mean(0).abs()
        weaker = torch.zeros_like(mean) if self.hard else mean * agreement
        return torch.where(agreement >= self.threshold, mean, weaker)

    def released(self, mean: Tensor, deltas: Tensor) -> Tensor:
        """The step of IMA's code: see the top of this file. From here on, minus is a gain."""
        clients, votes = len(deltas), -deltas.sign().sum(0)
        agreed = votes.abs() > self.threshold * clients
        model, before = -mean, torch.zeros_like(mean)  # relative to the model that was sent
        for delta in deltas:
            away = -delta - before
            mask = agreed & ((away > 0) == (votes > 0))
            model = before = model - RELEASED_RATE / clients * away * mask
        return -model
