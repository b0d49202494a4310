"""Attacks of clients: what arrives at the server in place of their updates.

A setting's key ``attack`` requests one. The run's seed selects the attackers, the same in all
rounds. They train like the others; what they send is replaced after all clients of the round have
trained, so that an attack knows the round's honest updates and is the same with every executor. It
changes ``delta``, without running statistics, and nothing else that a method sends.

- ``sign_flip``: -scale times the own update (Li et al., AAAI 2019, "RSA";
  https://arxiv.org/abs/1811.03761).
- ``gaussian``: normal numbers of standard deviation ``scale`` (Blanchard et al., NeurIPS 2017;
  https://arxiv.org/abs/1703.02757).
- ``inner_product``: -scale times the mean of the round's honest updates (Xie et al., UAI 2020,
  "Fall of empires"; https://arxiv.org/abs/1903.03936). In a cohort without honest
  clients, of all updates.

Label flipping changes data, not updates: :mod:`fedrepro.data.tensors.noise`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.tree import Tree
from fedrepro.support.errors import bad_value
from fedrepro.support.rng import stream


def attackers(seed: int, clients: int, share: float) -> frozenset[int]:
    """The ids of a share of all clients, rounded down."""
    drawn = torch.randperm(clients, generator=stream(seed, "attack"))
    return frozenset(drawn[: int(share * clients + 1e-9)].tolist())


@dataclass(frozen=True)
class Attack:
    """(context, updates of the cohort) -> what arrives at the server.

    Attributes:
        kind: "sign_flip", "gaussian" or "inner_product"; "label_flip" changes data, no updates.
        scale: a factor or, of "gaussian", the standard deviation.
        clients: ids of the attackers.
    """

    kind: str
    scale: float
    clients: frozenset[int]

    def __call__(self, ctx: Context, updates: Tree) -> Tree:
        """The updates, those of attackers replaced; leaves [cohort, ...].

        Raises:
            UserError: if clients do not send ``delta``.
        """
        if "delta" not in updates:
            expected = f"a method whose clients send `delta`, not {', '.join(updates)}"
            raise bad_value("setting", "attack", self.kind, expected)
        attacking = [int(client) in self.clients for client in ctx.cohort]
        if not any(attacking):
            return updates
        mask = torch.tensor(attacking, device=ctx.cohort.device)
        rng = ctx.stream("attack")
        moved = ctx.net.trainable(updates["delta"])
        moved = tree.apply(lambda leaf: self.replaced(leaf, mask, rng), moved)
        return {**updates, "delta": {**updates["delta"], **moved}}

    def replaced(self, deltas: Tensor, mask: Tensor, rng: torch.Generator) -> Tensor:
        """One parameter's updates [cohort, ...], those under ``mask`` [cohort] replaced."""
        if self.kind == "sign_flip":
            sent = -self.scale * deltas[mask]
        elif self.kind == "gaussian":
            shape = deltas[mask].shape
            sent = self.scale * torch.randn(shape, generator=rng, dtype=deltas.dtype)
        else:
            honest = deltas if bool(mask.all()) else deltas[~mask]
            sent = (-self.scale * honest.mean(0)).expand_as(deltas[mask])
        return deltas.index_put((mask,), sent.to(deltas.device))
