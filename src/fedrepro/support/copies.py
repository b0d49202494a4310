"""Copies of torch modules."""

import copy

from torch import Tensor, nn


def copied(module: nn.Module) -> nn.Module:
    """A copy, also of layers that hold tensors computed from their parameters (old weight norm)."""
    computed = (
        leaf
        for layer in module.modules()
        for leaf in vars(layer).values()
        if isinstance(leaf, Tensor) and not leaf.is_leaf
    )
    return copy.deepcopy(module, {id(leaf): leaf.detach().clone() for leaf in computed})
