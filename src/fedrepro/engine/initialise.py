"""Initial weights, by PyTorch's rules unless a module asks for others, drawn from a named stream.

Numbers are drawn on the CPU in contiguous order, then copied to the tensor, whatever its device and
memory layout. The global random state is not used.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedrepro.engine.tree import Tree

Drawn = nn.Linear | nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d  # layers with weights and a bias
BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm


def _drawn(leaf: Tensor, draw: Callable[[Tensor], object]) -> None:
    """Fill ``leaf`` with what ``draw`` writes to a CPU tensor of its shape."""
    fresh = torch.empty(leaf.shape, dtype=leaf.dtype, device="cpu")
    draw(fresh)
    leaf.copy_(fresh)


def _uniform(leaf: Tensor, bound: float, rng: torch.Generator) -> None:
    _drawn(leaf, lambda fresh: fresh.uniform_(-bound, bound, generator=rng))


def _normal(leaf: Tensor, mean: float, std: float, rng: torch.Generator) -> None:
    _drawn(leaf, lambda fresh: fresh.normal_(mean, std, generator=rng))


def _uniform_fan_in(module: Drawn, rng: torch.Generator) -> None:
    """He et al. (2015) with a = sqrt(5), which is U(-1/sqrt(fan_in), 1/sqrt(fan_in)).

    The weight of a transposed convolution is [inputs, outputs, ...]; PyTorch's fan_in is outputs.
    """
    bound = 1 / math.sqrt(module.weight[0].numel())
    _uniform(module.weight, bound, rng)
    if module.bias is not None:
        _uniform(module.bias, bound, rng)


def fresh_linear(inputs: int, outputs: int, like: Tensor, rng: torch.Generator) -> Tree:
    """Weight and bias of a linear layer by PyTorch's default rule, on the device of ``like``."""
    bound = 1 / math.sqrt(inputs)

    def drawn(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=like.dtype).uniform_(-bound, bound, generator=rng).to(like)

    return {"weight": drawn(outputs, inputs), "bias": drawn(outputs)}


def _recurrent(module: nn.RNNBase, rng: torch.Generator) -> None:
    bound = 1 / math.sqrt(module.hidden_size)
    for weight in module.parameters(recurse=False):
        _uniform(weight, bound, rng)


def _xavier_normal(module: Drawn, rng: torch.Generator) -> None:
    _drawn(module.weight, lambda fresh: nn.init.xavier_normal_(fresh, generator=rng))
    if module.bias is not None:
        module.bias.zero_()


def _dcgan(module: nn.Module, rng: torch.Generator) -> None:
    """DCGAN's rule (Radford et al., ICLR 2016): N(0, 0.02), BatchNorm's scale N(1, 0.02)."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            _normal(layer.weight, 0.0, 0.02, rng)
        elif isinstance(layer, nn.BatchNorm2d):
            _normal(layer.weight, 1.0, 0.02, rng)


def _redraw(module: nn.Module, rng: torch.Generator) -> None:
    """Xavier-normal weights, zero biases, BatchNorm's scale from N(1, 1); leave the rest."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
            _xavier_normal(layer, rng)
        elif isinstance(layer, nn.BatchNorm2d):
            _normal(layer.weight, 1.0, 1.0, rng)
            layer.bias.zero_()


def initialise(module: nn.Module, rng: torch.Generator) -> None:
    """Overwrite all parameters and buffers of ``module`` in place, in the order of its layers.

    Attributes of a module change the rule: a part with ``keeps_weights`` keeps its pre-trained
    weights; ``redrawn`` discards them as AAggFF's released code does (discrepancy 14); ``xavier``
    and ``dcgan`` select those rules. A layer whose buffers do not start at fixed values draws them
    in its ``draw_buffers``.

    Raises:
        TypeError: for a layer with parameters whose default rule is unknown.
    """
    kept = {
        layer
        for part in module.modules()
        if getattr(part, "keeps_weights", False)
        for layer in part.modules()
    }
    if getattr(module, "redrawn", False):
        _redraw(module, rng)
        return
    draw = _xavier_normal if getattr(module, "xavier", False) else _uniform_fan_in
    for layer in module.modules():
        if layer in kept:
            continue
        if isinstance(layer, Drawn):
            draw(layer, rng)
        elif isinstance(layer, nn.Embedding):
            _normal(layer.weight, 0.0, 1.0, rng)
        elif isinstance(layer, nn.RNNBase):
            _recurrent(layer, rng)
        elif isinstance(layer, nn.GroupNorm | nn.LayerNorm | BatchNorm):
            layer.reset_parameters()  # ones, zeros and new statistics: no randomness
        elif next(layer.parameters(recurse=False), None) is not None:
            raise TypeError(f"no initialisation rule for {type(layer).__name__}")
        if draw_buffers := getattr(layer, "draw_buffers", None):
            draw_buffers(rng)
    if getattr(module, "dcgan", False):
        _dcgan(module, rng)
