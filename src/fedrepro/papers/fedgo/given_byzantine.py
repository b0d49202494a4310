"""FedGO's Byzantine clients (Appendix F.8): their discriminators say 1 of everything.

A setting's key ``byzantine`` says how many there are; the run's seed draws which.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from fedrepro.engine.context import LoadedArtifact
from fedrepro.support.errors import bad_value
from fedrepro.support.rng import stream


@dataclass(frozen=True)
class Lying(LoadedArtifact):
    """One network of each client, of which some give 1 of everything.

    Attributes:
        liars: whose.
    """

    liars: frozenset[int] = frozenset()

    def outputs(self, client: int, x: Tensor) -> Tensor:
        found = super().outputs(client, x)
        return torch.ones_like(found) if client in self.liars else found


def with_liars(given: LoadedArtifact, liars: frozenset[int]) -> Lying:
    """What is given, with the networks of some clients made to lie."""
    return Lying(**{each.name: getattr(given, each.name) for each in fields(given)}, liars=liars)


def changed(
    given: Mapping[str, LoadedArtifact], wanted: int, clients: int, seed: int, where: str
) -> Mapping[str, LoadedArtifact]:
    """What is given, with discriminators of ``wanted`` Byzantine clients.

    Args:
        seed: of the run.
        where: the setting, in words.

    Raises:
        UserError: for more of them than there are clients.
    """
    if wanted > clients:
        expectation = f"at most {clients}, the number of clients"
        raise bad_value(where, "byzantine", wanted, expectation)
    drawn = torch.randperm(clients, generator=stream(seed, "byzantine"))[:wanted]
    theirs = with_liars(given["discriminators"], frozenset(drawn.tolist()))
    return {**given, "discriminators": theirs}
