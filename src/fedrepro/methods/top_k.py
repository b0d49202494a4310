r"""Top-k sparsification with error feedback (Stich et al., NeurIPS 2018). A wrapper.

$$ \hat\Delta_k = \mathrm{top}_{\text{share}}(\Delta_k + e_k), \quad e_k \leftarrow \Delta_k + e_k -
\hat\Delta_k, \quad w \leftarrow w - \sum_k p_k \hat\Delta_k $$

Symbols: $e_k$: what client $k$ has left out so far.

The paper is "Sparsified SGD with memory" (Algorithm 1, Definition 2.2). A client sends the
``share`` of its update's entries with the largest magnitudes, at least one, over all layers
together. Each takes its value and a place of 4 bytes. What a client left out is added to its next
update.

https://arxiv.org/abs/1809.07599
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedrepro.engine.fidelity import PositiveShare
from fedrepro.engine.tree import Tree
from fedrepro.methods._compressing import Compressing

PLACE = 4  # bytes


@dataclass(frozen=True)
class TopK(Compressing):
    """Top-k sparsification with error feedback (Stich et al., NeurIPS 2018, Algorithm 1)."""

    share: PositiveShare = 0.1  # k / d: of a vector's entries that are sent

    def number(self, entries: int) -> int:
        """k, of a vector with ``entries``."""
        return max(1, math.ceil(self.share * entries - 1e-9))

    def compressed(self, vector: Tensor, client_state: Tree) -> Tensor:
        places = vector.abs().topk(self.number(len(vector))).indices
        return torch.zeros_like(vector).scatter(0, places, vector[places])

    def bytes_of(self, entries: int, width: int) -> int:
        return self.number(entries) * (width + PLACE)
