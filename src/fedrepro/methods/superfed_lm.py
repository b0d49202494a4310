r"""SuPerFed-LM (Hahn et al., KDD 2022; thesis chapter II): one lambda per layer and mini-batch.

$$ \min_{f, l} \; \mathbb{E}_{\lambda_j \sim U(0, 1)} F_k \left( \left[ (1 - \lambda_j) f_j +
\lambda_j l_j \right]_j \right) + \frac{\mu}{2} \|f - w\|^2 + \nu \cos^2(f, l), \quad j \text{:
layer} $$

Symbols: $f$, $l$: a client's federated and local model.

Otherwise identical to SuPerFed-MM. A layer is a module with parameters of its own: a linear or
convolutional layer, a normalisation, an embedding, or a whole LSTM.

https://arxiv.org/abs/2109.07628
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.engine.fidelity import NonNegative
from fedrepro.engine.method import Context, Tree, tree
from fedrepro.methods.superfed_mm import SuPerFedMM


@dataclass(frozen=True)
class SuPerFedLM(SuPerFedMM):
    """SuPerFed-LM, layer mixing (Hahn et al., KDD 2022; thesis eqs. 2.3 to 2.6)."""

    nu: NonNegative = 2.0  # weight of the squared cosine

    def sample_steps(self, ctx: Context, rng: torch.Generator, steps: int) -> Tree:
        if not self.mixing(ctx):
            return {}
        layers = layer_numbers(ctx.initial)
        return {"lambda": torch.rand(steps, 1 + max(layers.values()), generator=rng)}

    def mixed(self, federated: Tree, local: Tree, weight: Tensor) -> Tree:
        return {
            name: tree.mix(federated[name], local[name], weight[number])
            for name, number in layer_numbers(federated).items()
        }


def layer_numbers(params: Tree) -> dict[str, int]:
    """The layer number of every parameter, in the order of the layers."""
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in params))
    return {name: layers.index(name.rpartition(".")[0]) for name in params}
