"""Base of wrappers that combine updates by another rule than the weighted mean.

Such a rule covers all that the server uses of an update, or it protects nothing. It therefore wraps
only methods whose server moves by the weighted mean of ``delta``. Clients count the same, whatever
number of samples they have: an attacker can claim any number.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.method import Method, Wrapper
from fedrepro.engine.tree import Tree
from fedrepro.methods.adaptive_weighting.rule import Decider, refused
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.personal.partly_shared import PartlyShared
from fedrepro.support.errors import bad_value

# Their ``server_update`` follows the weighted mean of ``delta``, and uses nothing else.
AVERAGING = (Method, FedAvg, PartlyShared, Decider)


def needs_more_than_delta(inner: Method) -> str | None:
    """Why changing ``delta`` does not change all that the server uses of an update, or None."""
    if inner.centralized:
        return "it trains one model in one place: no client sends an update"
    if type(inner.layers()[-1]).server_update not in [each.server_update for each in AVERAGING]:
        return "its server uses more of an update than the mean of `delta`"
    return None


@dataclass(frozen=True)
class Combining(Wrapper):
    """Base of wrappers that replace the weighted mean of ``delta``."""

    sets_weights: ClassVar[bool] = True

    @classmethod
    def refuses(cls, inner: Method) -> str | None:
        return refused(inner) or needs_more_than_delta(inner)

    def combined(self, deltas: Tensor) -> Tensor:
        """One parameter's updates [cohort, ...] as one [...]."""
        raise NotImplementedError

    def aggregation_weights(self, ctx: Context, server: Tree, updates: Tree) -> tuple[Tensor, Tree]:
        return torch.full_like(ctx.sizes, 1 / len(ctx.sizes)), server

    def server_update(self, ctx: Context, server: Tree, updates: Tree, weights: Tensor) -> Tree:
        # As the only update of the round, which the inner method's mean leaves as it is.
        delta = tree.apply(lambda leaf: self.combined(leaf)[None], updates["delta"])
        return self.inner.server_update(ctx, server, {"delta": delta}, weights.new_ones(1))


def whole_clients(share: float, cohort: int) -> int:
    """A share of a cohort, rounded down."""
    return int(share * cohort + 1e-9)


def check_share(method: str, share: float) -> None:
    """Refuse a share of attackers that no rule withstands.

    Raises:
        UserError: unless it is at least 0 and below 0.5.
    """
    if not 0 <= share < 0.5:
        expected = "a number from 0 and below 0.5, as no rule withstands a majority"
        raise bad_value(f"method {method}", "share", share, expected)
