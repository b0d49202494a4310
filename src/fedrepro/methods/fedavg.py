"""FedAvg (McMahan et al., AISTATS 2017, Algorithm 1).

The paper is "Communication-efficient learning of deep networks from decentralized data".

Every hook is the default of :class:`fedrepro.method.Method`: the server sends its parameters, each
client of the cohort runs E epochs of SGD, the server averages, weighted by numbers of samples.
"""

from dataclasses import dataclass

from fedrepro.method import Method


@dataclass(frozen=True)
class FedAvg(Method):
    """FedAvg (McMahan et al., AISTATS 2017, Algorithm 1)."""
