"""Initial weights, by PyTorch's rules unless a module asks for others, drawn from a named stream.

Numbers are drawn on the CPU in contiguous order, then copied to the tensor, whatever its device and
memory layout. Layers without a rule here reset themselves, with the stream in place of the global
generators, which are left as they were.
"""

import math
from collections.abc import Callable, Iterator
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from fedrepro.engine.tree import Tree
from fedrepro.support.copies import copied
from fedrepro.support.errors import UserError, refusal
from fedrepro.support.rng import drawing_on, seeded

Drawn = nn.Linear | nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d  # layers with weights and a bias
Others = nn.Conv3d | nn.ConvTranspose1d | nn.ConvTranspose3d  # that draw alike by their own rules
BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm
KNOWN = Drawn | nn.Embedding | nn.RNNBase | nn.GroupNorm | nn.LayerNorm | BatchNorm
UNLIKELY = 1e-12  # probability of weights that a layer has drawn
SORTED = 10_000  # entries of a weight by which its distribution is told


def _drawn(leaf: Tensor, draw: Callable[[Tensor], object]) -> None:
    """Fill ``leaf`` with what ``draw`` writes to a CPU tensor of its shape."""
    if leaf.is_meta:  # a shape without numbers
        return
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
    bound = _bound_of(module)
    _uniform(module.weight, bound, rng)
    if module.bias is not None:
        _uniform(module.bias, bound, rng)


def _bound_of(layer: nn.Module) -> float:
    """The largest initial weight of a layer that draws from a uniform distribution."""
    if isinstance(layer, Drawn | Others):
        return 1 / math.sqrt(layer.weight[0].numel())
    return 1 / math.sqrt(layer.hidden_size) if isinstance(layer, nn.RNNBase) else math.inf


def fresh_linear(inputs: int, outputs: int, like: Tensor, rng: torch.Generator) -> Tree:
    """Weight and bias of a linear layer by PyTorch's default rule, on the device of ``like``."""
    bound = 1 / math.sqrt(inputs)

    def drawn(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=like.dtype).uniform_(-bound, bound, generator=rng).to(like)

    return {"weight": drawn(outputs, inputs), "bias": drawn(outputs)}


def _recurrent(module: nn.RNNBase, rng: torch.Generator) -> None:
    for weight in module.parameters(recurse=False):
        _uniform(weight, _bound_of(module), rng)


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


def _redraw(module: nn.Module, rng: torch.Generator, std: float | None = None) -> None:
    """The rule of AAggFF's and FedEvg's released code, which leaves all other layers as they are.

    Weights are Xavier-normal, biases are zero, and BatchNorm's scale is from N(1, 1). With ``std``,
    as in FedEvg's code for FedCGAN, weights are from N(0, std) and that scale from N(1, std).
    """
    for layer in module.modules():
        if isinstance(layer, Drawn):
            _xavier_normal(layer, rng)
            if std is not None:
                _normal(layer.weight, 0.0, std, rng)
        elif isinstance(layer, nn.BatchNorm2d):
            _normal(layer.weight, 1.0, 1.0 if std is None else std, rng)
            layer.bias.zero_()


def initialise(module: nn.Module, rng: torch.Generator) -> None:
    """Overwrite all parameters and running statistics of ``module`` in place, layer by layer.

    Attributes of a module change the rule: a part with ``keeps_weights`` keeps its pre-trained
    weights; ``redrawn`` discards them as AAggFF's released code does (discrepancy 14); ``xavier``
    and ``dcgan`` select those rules, and ``redrawn_with`` that of FedEvg's released code: "xavier",
    or a standard deviation. A layer whose buffers do not start at fixed values draws them in its
    ``draw_buffers``. A layer that is not known here, or whose class overrides PyTorch's
    rule, draws its parameters in its ``reset_parameters``, after the layers in it.

    Raises:
        UserError: for a parameter that no layer draws.
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
    drawn = [layer for layer in _inner_first(module) if layer not in kept]
    _mark(drawn)
    for layer in drawn:
        reset = _own_rule(layer)
        if reset and not (isinstance(layer, KNOWN) and reset.__module__.startswith("torch.")):
            with drawing_on(rng, next((leaf.device for leaf in layer.parameters()), None)):
                reset()
        elif isinstance(layer, Drawn):
            draw(layer, rng)
        elif isinstance(layer, nn.Embedding):
            _normal(layer.weight, 0.0, 1.0, rng)
            if layer.padding_idx is not None:
                layer.weight[layer.padding_idx].zero_()
        elif isinstance(layer, nn.RNNBase):
            _recurrent(layer, rng)
        elif isinstance(layer, nn.GroupNorm | nn.LayerNorm | BatchNorm):
            layer.reset_parameters()  # ones, zeros and new statistics: no randomness
        elif own := dict(layer.named_parameters(recurse=False)):
            raise _undrawn(type(layer).__name__, f"parameter {next(iter(own))}")
        if draw_buffers := getattr(layer, "draw_buffers", None):
            draw_buffers(rng)
    if getattr(module, "dcgan", False):
        _dcgan(module, rng)
    if rule := getattr(module, "redrawn_with", None):
        _redraw(module, rng, None if rule == "xavier" else rule)
    _refuse_marks(module, drawn)


# By id, those that were given trained weights (`fedrepro.api.stored_model`).
LOADED = WeakValueDictionary[int, nn.Module]()


def is_fresh(module: nn.Module) -> bool:
    """Return True if every weight is as its layer drew it when made: nobody has changed any.

    It is seen by how often tensors were written to. As writes to ``.data`` are not counted, it is
    also seen by weights that the layer hardly draws. Neither tells a copy that was loaded with the
    weights of an untrained module from one.
    """
    if any(LOADED.get(id(layer)) is layer for layer in module.modules()) or any(
        leaf.grad is not None or leaf.is_inference() for leaf in module.parameters()
    ):
        return False  # of tensors made in inference mode, torch does not count the writes
    redrawn = [_redrawn(module, seed) for seed in (0, 1)]
    one, other = redrawn
    if one is None or other is None:
        return False
    for layers in zip(module.modules(), one.modules(), other.modules(), strict=True):
        bound = _bound_of(layers[0])
        leaves = zip(*(each.parameters(recurse=False) for each in layers), strict=True)
        for own, first, second in leaves:
            if own._version != first._version or not _is_like(own.detach(), first, second, bound):
                return False
    buffers = zip(module.buffers(), one.buffers(), strict=True)
    return all(torch.equal(own, reset) for own, reset in buffers)


def _redrawn(module: nn.Module, seed: int) -> nn.Module | None:
    """A copy whose layers have drawn their parameters anew; None if one has no rule for it."""
    fresh = copied(module)
    with seeded(seed):
        for layer in _inner_first(fresh):
            if reset := _own_rule(layer):
                reset()
            elif next(layer.parameters(recurse=False), None) is not None:
                return None
    return fresh


def _is_like(own: Tensor, one: Tensor, other: Tensor, bound: float) -> bool:
    """Return True if a weight may be a draw, as the two others are, uniform up to a bound if any.

    It is not if the largest entry, or the distribution of all (by the test of Kolmogorov and
    Smirnov), is of a probability below :data:`UNLIKELY`.
    """
    share = float(own.abs().amax()) / bound if own.numel() else 0.0
    if not share <= 1 + 1e-6:
        return False
    if torch.equal(one, other):  # not drawn: ones, zeros
        return torch.equal(own, one)
    if bound < math.inf and share ** own.numel() < UNLIKELY:
        return False
    if own.numel() > 1 and 2 * len(own.unique()) <= own.numel() < 2 * len(one.unique()):
        return False  # filled with one number, or a few
    step = max(1, own.numel() // SORTED)
    mine, drawn = (each.detach().flatten()[::step].cpu().sort().values for each in (own, one))
    count = len(mine)
    below = torch.searchsorted(drawn, mine, right=True) / count
    distance = float((below - torch.arange(1, count + 1) / count).abs().max())
    return 2 * math.exp(-count * distance**2) >= UNLIKELY


def _inner_first(module: nn.Module, seen: set[nn.Module] | None = None) -> Iterator[nn.Module]:
    """All layers, each once and after those that it consists of, as PyTorch makes them."""
    seen = {module} if seen is None else seen
    for child in module.children():
        if child not in seen:
            seen.add(child)
            yield from _inner_first(child, seen)
    yield module


def _own_rule(layer: nn.Module) -> Callable[[], object] | None:
    """The function by which a layer draws its parameters, as PyTorch's layers call it."""
    return getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)


def _mark(layers: list[nn.Module]) -> None:
    """Fill parameters with NaN, to see afterwards which ones nothing has drawn."""
    for layer in layers:
        if hasattr(layer, "parametrizations"):  # its tensors are functions of other parameters
            raise _undrawn(type(layer).__name__, "parametrizations")
        for leaf in layer.parameters(recurse=False):
            leaf.fill_(math.nan)


def _refuse_marks(module: nn.Module, layers: list[nn.Module]) -> None:
    for path, layer in module.named_modules():
        if layer in layers:
            for name, leaf in layer.named_parameters(recurse=False):
                if not leaf.is_meta and leaf.isnan().any():
                    raise _undrawn(type(layer).__name__, f"parameter {path}.{name}")


def _undrawn(layer: str, what: str) -> UserError:
    why = (
        f"no rule draws its {what}: keep its weights, pass a function that builds the model, or "
        "give the layer a method reset_parameters"
    )
    return refusal(f"model: layer {layer}", why)
