"""FedGO's Byzantine clients (Appendix F.8), whose discriminators output 1 for every sample.

A setting's key ``byzantine`` gives their number; the run's seed selects them.
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
    """One network per client; some output 1 for every sample.

    Attributes:
        liars: the Byzantine clients.
    """

    liars: frozenset[int] = frozenset()

    def outputs(self, client: int, x: Tensor) -> Tensor:
        outputs = super().outputs(client, x)
        return torch.ones_like(outputs) if client in self.liars else outputs


def with_liars(given: LoadedArtifact, liars: frozenset[int]) -> Lying:
    """The input, with the networks of Byzantine clients replaced."""
    return Lying(**{each.name: getattr(given, each.name) for each in fields(given)}, liars=liars)


def changed(
    given: Mapping[str, LoadedArtifact], wanted: int, clients: int, seed: int, where: str
) -> Mapping[str, LoadedArtifact]:
    """The input, with ``wanted`` clients' discriminators made Byzantine.

    Args:
        seed: the run's seed.
        where: the setting, in words.

    Raises:
        UserError: if ``wanted`` exceeds the number of clients.
    """
    if wanted > clients:
        expectation = f"at most {clients}, the number of clients"
        raise bad_value(where, "byzantine", wanted, expectation)
    drawn = torch.randperm(clients, generator=stream(seed, "byzantine"))[:wanted]
    theirs = with_liars(given["discriminators"], frozenset(drawn.tolist()))
    return {**given, "discriminators": theirs}
