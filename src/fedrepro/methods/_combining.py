"""Base of wrappers that combine updates by another rule than the weighted mean.

Such a rule covers all that the server uses of an update, or it protects nothing. It therefore wraps
only methods whose server moves by the weighted mean of ``delta``. Clients count the same, whatever
number of samples they have: an attacker can claim any number.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from fedrepro.engine.fidelity import Limit
from fedrepro.engine.method import Context, Method, Tree, Wrapper, name_of, tree
from fedrepro.methods.adaptive_weighting.rule import Decider, refused
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.personal.partly_shared import PartlyShared
from fedrepro.support.errors import nobody

# Their ``server_update`` follows the weighted mean of ``delta``, and uses nothing else.
AVERAGING = (Method, FedAvg, PartlyShared, Decider)
MINORITY = Limit(
    lambda n: 0 <= n < 0.5, "a number from 0 and below 0.5, as no rule withstands a majority"
)


def needs_more_than_delta(inner: Method) -> str | None:
    """Why changing ``delta`` does not change all that the server uses of an update, or None."""
    if inner.centralized:
        return "it trains one model in one place: no client sends an update"
    if type(inner.layers()[-1]).server_update not in [base.server_update for base in AVERAGING]:
        return "its server uses more of an update than the mean of `delta`"
    return None


@dataclass(frozen=True)
class Combining(Wrapper):
    """Base of wrappers that replace the weighted mean of ``delta``."""

    sets_weights: ClassVar[bool] = True
    selects: ClassVar[bool] = False  # the server gets some clients' updates as they are

    @classmethod
    def refuses(cls, inner: Method) -> str | None:
        if not cls.selects and any(layer.clips for layer in inner.layers()):
            return "it would clip what the clients' updates are combined to: clip them before it"
        return refused(inner) or needs_more_than_delta(inner)

    def combined(self, ctx: Context, deltas: Tensor) -> Tensor:
        """One parameter's updates [cohort, ...] as one [...]."""
        raise NotImplementedError

    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        return torch.full_like(ctx.sizes, 1 / len(ctx.sizes)), server

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        # As the only update of the round, which the inner method's mean leaves as it is.
        delta = tree.apply(lambda leaf: self.combined(ctx, leaf)[None], updates["delta"])
        return self.inner.server_update(ctx, server, {"delta": delta}, weights.new_ones(1))


@dataclass(frozen=True)
class Withstanding(Combining):
    """Base of rules for a known share of attackers."""

    share: Annotated[float, MINORITY] = 0.2  # of a cohort's clients that may be attackers

    def check(self, ctx: Context) -> None:
        if self.share and not whole_clients(self.share, ctx.cohort_size):
            raise nobody(f"method {name_of(self)}", "share", self.share, ctx.cohort_size)
        self.inner.check(ctx)

    def attackers(self, ctx: Context) -> int:
        """The number of updates that may be attackers', fewer than half of those that arrive.

        A share of the clients that were asked: those that dropped out may have been the others.
        """
        arrived = len(ctx.sizes)
        asked = max(ctx.cohort_size, arrived)
        return min(whole_clients(self.share, asked), (arrived - 1) // 2)


def whole_clients(share: float, clients: int) -> int:
    """A share of some clients, rounded down."""
    return int(share * clients + 1e-9)
