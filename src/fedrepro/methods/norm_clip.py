r"""Norm clipping (Sun et al., 2019, "Can you really backdoor federated learning?"). A wrapper.

$$ \Delta_k \leftarrow \frac{\Delta_k}{\max(1, \|\Delta_k\| / M)} $$

The server scales every update whose Euclidean norm exceeds ``bound`` down to that norm:
delta / max(1, |delta| / M) (section 4, "Norm thresholding of updates"). The norm is that of all
that a client sends as ``delta``, running statistics included; an update without a finite norm
counts as zero. Everything after that is the inner method's. The weak noise that the paper also
tries is not part of this wrapper.

https://arxiv.org/abs/1911.07963
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine.fidelity import Positive
from fedrepro.engine.method import Context, Method, Tree, Wrapper, tree
from fedrepro.methods._combining import needs_more_than_delta


def clipped(deltas: Tree, bound: float) -> Tree:
    """``deltas``, leaves [cohort, ...], each client's scaled to a norm of at most ``bound``.

    Without a finite norm, to zero.
    """
    squares = [tree.rows(leaf).double().square().sum(1) for leaf in tree.leaves(deltas)]
    norms = torch.stack(squares).sum(0).sqrt()
    factors = torch.where(norms > bound, bound / norms, 1.0)

    def scaled(leaf: Tensor) -> Tensor:
        factor, usable = (
            values.view(-1, *[1] * (leaf.dim() - 1)) for values in (factors, norms.isfinite())
        )
        return (leaf * factor.to(leaf.dtype)).where(usable, leaf.new_zeros(()))

    return tree.apply(scaled, deltas)


@dataclass(frozen=True)
class NormClip(Wrapper):
    """Norm clipping (Sun et al., 2019, section 4)."""

    clips: ClassVar[bool] = True

    bound: Positive = 1.0  # M: the largest norm of an update

    @classmethod
    def refuses(cls, inner: Method) -> str | None:
        if any(isinstance(layer, cls) for layer in inner.layers()):
            return "its updates are clipped already"
        return needs_more_than_delta(inner)

    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        clipped_updates = {**updates, "delta": clipped(updates["delta"], self.bound)}
        return self.inner.aggregation_weights(ctx, server, clipped_updates)

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        clipped_updates = {**updates, "delta": clipped(updates["delta"], self.bound)}
        return self.inner.server_update(ctx, server, clipped_updates, weights)
