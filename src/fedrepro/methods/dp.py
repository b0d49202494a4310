r"""Differential privacy of clients: clipped updates and Gaussian noise on their sum. A wrapper.

$$ w \leftarrow w - \frac{1}{m} \left( \sum_k \Delta_k \min \left( 1, \frac{S}{\|\Delta_k\|} \right)
+ \mathcal{N}(0, z^2 S^2 I) \right) $$

Of DP-FedAvg (McMahan et al., ICLR 2018, "Learning differentially private recurrent language
models", Algorithm 1, flat clipping): every update is scaled down to a Euclidean norm of at most
``clip``, S; the sum over the cohort gets normal noise of standard deviation z S, where z is the
``noise_multiplier``; the server moves by that, divided by the size of the cohort. Clients count the
same, as a weight by samples would tell of them. Of an update that is not finite nothing is used.

There, each client takes part with a probability of its own draw. Here cohorts have a fixed size,
sampled without replacement, and the guarantee is for that: against replacing one client, which
moves the sum by at most 2 S (:mod:`fedrepro.run.privacy` computes epsilon). It covers the models of
all rounds, for those who don't know the seed. It does not cover what is recorded of clients:
losses, norms, scores.

https://arxiv.org/abs/1710.06963
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.engine.fidelity import NonNegative, Positive
from fedrepro.engine.method import Context, GaussianMechanism, Tree, tree
from fedrepro.methods._combining import Combining
from fedrepro.methods.norm_clip import clipped


@dataclass(frozen=True)
class DP(Combining):
    """Clipped updates and Gaussian noise on their sum (McMahan et al., ICLR 2018, Algorithm 1)."""

    clip: Positive = 1.0  # S: the largest norm of an update
    noise_multiplier: NonNegative = 1.0  # z: standard deviation of the sum's noise, in units of S

    @property
    def mechanism(self) -> GaussianMechanism:
        return GaussianMechanism(self.clip, self.noise_multiplier)

    def check(self, ctx: Context) -> None:
        """Refuse running statistics, which have other units than parameters.

        Raises:
            UserError: for a model with BatchNorm.
        """
        ctx.net.refuse_running_statistics("dp")
        self.inner.check(ctx)

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        moved = tree.weighted_sum(clipped(updates["delta"], self.clip), weights)
        if self.noise_multiplier:
            rng, scale = ctx.stream("privacy"), self.noise_multiplier * self.clip / len(weights)

            def noisy(leaf: Tensor) -> Tensor:
                noise = torch.randn(leaf.shape, generator=rng, dtype=leaf.dtype)
                return leaf + scale * noise.to(leaf.device)

            moved = tree.apply(noisy, moved)
        delta = {"delta": tree.apply(lambda leaf: leaf[None], moved)}
        return self.inner.server_update(ctx, server, delta, weights.new_ones(1))
