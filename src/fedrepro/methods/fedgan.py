"""FedGAN (Rasouli et al., 2020, Algorithm 1), FedGO's generator G3, trained without server data.

The paper is "FedGAN: federated generative adversarial networks for distributed data". Clients train
generator and critic as WGAN-GP on their own samples; the server averages both, weighted by samples.
FedGO does not mention optimizers: here they restart in every round (A20).

https://arxiv.org/abs/2006.07228
"""

from dataclasses import dataclass
from typing import ClassVar

from fedrepro.methods.wgan_gp import WganGp


@dataclass(frozen=True)
class FedGAN(WganGp):
    """FedGAN (Rasouli et al., 2020, Algorithm 1), of WGAN-GP."""

    carries: ClassVar[bool] = False
