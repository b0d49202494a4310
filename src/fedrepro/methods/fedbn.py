r"""FedBN (Li et al., ICLR 2021, "FedBN: federated learning on non-IID features", Algorithm 1).

$$ \min_{\theta, \phi_1, \phi_2, \dots} \sum_k p_k F_k(\theta, \phi_k), \quad \phi_k\text{:
BatchNorm}, \quad \theta\text{: all else} $$

FedAvg of everything but BatchNorm: every client keeps its BatchNorm layers, parameters and running
statistics alike. A client is scored with its own; the shared model, which has the initial ones, is
only a part. Of a model without BatchNorm all is shared, which is FedAvg; other normalisation layers
are shared, too.

https://arxiv.org/abs/2102.07623
"""

from dataclasses import dataclass

from fedrepro.engine.initialise import BatchNorm
from fedrepro.engine.method import Context, Net, Tree
from fedrepro.methods.personal.partly_shared import PartlyShared


@dataclass(frozen=True)
class FedBN(PartlyShared):
    """FedBN (Li et al., ICLR 2021, Algorithm 1)."""

    def check(self, ctx: Context) -> None:
        """Any model will do: it need not have a body and a head."""

    def shared(self, net: Net, params: Tree) -> Tree:
        layers = net.module.named_modules()
        own = tuple(f"{path}." for path, layer in layers if isinstance(layer, BatchNorm))
        return {name: leaf for name, leaf in params.items() if not name.startswith(own)}
