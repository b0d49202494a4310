"""Availability of clients: which can be asked, and how much of its work each gets done.

A setting's key ``availability`` requests it. In a round, each client that the server asks completes
a share of its local steps; with a share of 0 its update does not arrive. Three causes act together,
and each is a function of the run's seed, the round and the client alone, so that a run resumes and
runs in every executor with the same bits:

- ``dropout``: with this probability a client drops out after it was asked.
- ``partial``: with this probability a client completes only a share of its steps, drawn uniformly,
  as the stragglers of Li et al. (MLSys 2020, "FedProx", section 5.2;
  https://arxiv.org/abs/1812.06127) and the clients of Wang et al. (NeurIPS 2020, "FedNova";
  https://arxiv.org/abs/2007.07481). There it is a number of epochs.
- ``deadline``: the simulated time that the server waits. A client's time for a round is its number
  of steps over the mean of all clients, divided by its speed, log-normal with ``spread``, drawn
  once for the run. A client that is late is dropped, or sends what it has got done.

``period`` makes participation diurnal: each client can be asked in half of every so many rounds,
from a phase of its own (Bonawitz et al., MLSys 2019; https://arxiv.org/abs/1902.01046).

The steps that are left out are the last mini-batches of each epoch, whose samples change with every
shuffle. If no update would arrive in a round, the server waits for its first client.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.support.rng import stream

AWAKE = 0.5  # share of a period


@dataclass(frozen=True)
class Availability:
    """Which clients can be asked, and how much of its work each gets done.

    Attributes:
        seed: the run's.
        steps: number of mini-batches of each client in an epoch.
        dropout, partial, deadline, spread, period: as at the top of this file; None: none.
        late: "dropped", or "partial": a client that is late sends what it has got done.
    """

    seed: int
    steps: tuple[int, ...]
    dropout: float = 0.0
    partial: float = 0.0
    deadline: float | None = None
    spread: float = 0.0
    late: str = "dropped"
    period: int | None = None

    def awake(self, round: int, clients: Sequence[int]) -> list[int]:
        """Those of ``clients`` that can be asked; the first of them if there are none."""
        if self.period is None:
            return [*clients]
        phases = torch.rand(len(self.steps), generator=stream(self.seed, "day"))
        time = (round / self.period + phases.double()) % 1
        return [client for client in clients if time[client] < AWAKE] or [clients[0]]

    def shares(self, round: int) -> Tensor:
        """The share of its steps that each client gets done if it is asked, float64 [clients]."""
        everyone = len(self.steps)
        rng = stream(self.seed, "availability", round)
        drops, slows, done = torch.rand(3, everyone, generator=rng, dtype=torch.float64)
        shares = torch.where(slows < self.partial, 1 - done, 1.0)
        if self.deadline is not None:
            in_time = (self.deadline / self.times()).clamp(max=1.0)
            if self.late == "dropped":
                in_time = in_time.floor()
            shares = torch.minimum(shares, in_time)
        return torch.where(drops < self.dropout, 0.0, shares)

    def times(self) -> Tensor:
        """Each client's simulated time for all steps of a round, float64 [clients]."""
        steps = torch.tensor(self.steps, dtype=torch.float64)
        rng = stream(self.seed, "speed")
        speeds = (self.spread * torch.randn(len(steps), generator=rng, dtype=torch.float64)).exp()
        return steps / steps.mean() / speeds

    def arriving(self, round: int, asked: Sequence[int]) -> list[int]:
        """Those of ``asked`` whose updates arrive: at least one."""
        shares = self.shares(round)
        return [client for client in asked if shares[client] > 0] or [asked[0]]

    def steps_done(self, round: int, client: int) -> int:
        """Mini-batches of an epoch that a client whose update arrives gets done, at least one."""
        share = float(self.shares(round)[client]) or 1.0  # 0: it is the one that is waited for
        return max(1, math.ceil(share * self.steps[client] - 1e-9))  # one under way is finished
