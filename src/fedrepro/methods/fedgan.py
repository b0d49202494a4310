"""FedGAN (Rasouli et al., 2020, Algorithm 1), FedGO's generator G3, made without the server's data.

The paper is "FedGAN: federated generative adversarial networks for distributed data". Clients train
generator and critic as WGAN-GP on their own samples, the server averages both, weighted by samples.
FedGO says of optimizers nothing: they start anew in every round (A20).
"""

from dataclasses import dataclass
from typing import ClassVar

from fedrepro.methods.wgan_gp import WganGp


@dataclass(frozen=True)
class FedGAN(WganGp):
    """FedGAN (Rasouli et al., 2020, Algorithm 1), of WGAN-GP."""

    carries: ClassVar[bool] = False
