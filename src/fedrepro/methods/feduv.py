r"""FedUV (Son et al., CVPR 2024).

$$ w_k \approx \mathrm{argmin}_v \, F_k(v) + \text{variance} \cdot \mathrm{mean}_c \max \left( 0,
\frac{1}{\sqrt{C}} - \sigma_c \right) + \text{uniformity} \cdot \mathrm{mean}_{i < j} \, e^{-\|h_i -
h_j\|^2 / s} $$

Symbols: $C$: number of classes; $\sigma_c$: the standard deviation of class $c$'s probability over
the mini-batch; $h_i$: the body's features of sample $i$; $s$: the median of their squared
distances.

The paper is "FedUV: uniformity and variance for heterogeneous federated learning". It adds two
terms to a client's loss. ``variance`` keeps predictions from collapsing onto the client's own
classes: if the standard deviation of a class's probability over a mini-batch is below
gamma = 1 / sqrt(classes), that of a balanced and perfect prediction, the shortfall is added.
``uniformity`` spreads the body's features over their space: the mean over pairs of
exp(-|h_i - h_j|^2 / s), with s the median of those squared distances.

As in the released code, standard deviations divide by n - 1, s is the lower median of the nonzero
distances, and gradients go through it. Both terms are left out for a mini-batch of one sample, for
which that code divides by zero.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.engine.fidelity import NonNegative
from fedrepro.engine.method import Context, Method, Tree, require_classification


def variance_term(logits: Tensor, real: Tensor) -> Tensor:
    """The mean shortfall of the classes' standard deviations, a scalar tensor.

    Args:
        logits: [n, classes].
        real: [n], 1 for samples that count, 0 for padding.
    """
    probabilities = logits.softmax(-1)
    count, mask = real.sum(), real[:, None]
    mean = (probabilities * mask).sum(0) / count.clamp(min=1)
    squares = ((probabilities - mean).square() * mask).sum(0) / (count - 1).clamp(min=1)
    spread = squares > 0  # the square root has no gradient at 0
    deviations = torch.where(spread, torch.where(spread, squares, 1).sqrt(), 0)
    shortfall = torch.relu(logits.shape[-1] ** -0.5 - deviations).mean()
    return torch.where(count > 1, shortfall, 0)


def uniformity_term(features: Tensor, real: Tensor) -> Tensor:
    """The mean over pairs of samples of exp(-|h_i - h_j|^2 / median), a scalar tensor.

    Args:
        features: [n, features].
        real: as in :func:`variance_term`.
    """
    left, right = torch.triu_indices(len(features), len(features), 1, device=features.device)
    squares = (features[left] - features[right]).square().sum(-1)  # [n (n - 1) / 2]
    counts = real[left] * real[right] > 0
    apart = counts & (squares > 0)
    ordered = torch.where(apart, squares, torch.inf).sort().values
    middle = ((apart.sum() - 1) // 2).clamp(min=0)
    # If all samples coincide, the median is that infinity, and every pair adds 1.
    scale = torch.cat([ordered, ordered.new_full((1,), torch.inf)]).gather(0, middle[None])[0]
    kernel = torch.where(counts, (-squares / scale).exp(), 0)
    return kernel.sum() / counts.sum().clamp(min=1)


@dataclass(frozen=True)
class FedUV(Method):
    """FedUV (Son et al., CVPR 2024)."""

    variance: NonNegative = 2.5  # weight of the term that keeps predictions from collapsing
    uniformity: NonNegative = 0.5  # weight of the term that spreads features

    def check(self, ctx: Context) -> None:
        ctx.net.require_chain()
        require_classification(self, ctx, "it uses the probabilities of classes")

    def loss(
        self, ctx: Context, message: Tree, client_state: Tree, params: Tree, batch: Tree
    ) -> Tensor:
        features, logits = ctx.net.features_and_output(params, batch["x"])
        real = batch["real"] if "real" in batch else torch.ones_like(logits[:, 0])
        return (
            ctx.task.loss(logits, batch)
            + self.variance * variance_term(logits, real)
            + self.uniformity * uniformity_term(features.flatten(1), real)
        )
