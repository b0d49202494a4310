r"""FedGAN (Rasouli et al., 2020, Algorithm 1), FedGO's generator G3, trained without server data.

$$ (G, D) \leftarrow \sum_k p_k (G_k, D_k), \quad (G_k, D_k) \text{: WGAN-GP on client } k \text{'s
samples, from } (G, D) $$

The paper is "FedGAN: federated generative adversarial networks for distributed data". Clients train
generator and critic as WGAN-GP on their own samples; the server averages both, weighted by samples.
FedGO does not mention optimizers: here they restart in every round (A20), as does the count of the
critic's steps: a client with fewer mini-batches than ``critic_steps`` does not train its generator.

https://arxiv.org/abs/2006.07228
"""

from dataclasses import dataclass
from typing import ClassVar

from fedrepro.methods.wgan_gp import WganGp


@dataclass(frozen=True)
class FedGAN(WganGp):
    """FedGAN (Rasouli et al., 2020, Algorithm 1), of WGAN-GP."""

    carries: ClassVar[bool] = False
