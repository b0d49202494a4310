"""What a torch module holds and returns, and what of it cannot be used."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import permutations
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from fedrepro.engine import tree
from fedrepro.engine.initialise import BatchNorm
from fedrepro.engine.tree import Tree
from fedrepro.support.errors import UserError, bad_value, refusal

Dropout = nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d
# Inputs -> a forward pass's positional arguments, and those by name.
Arguments = Callable[[Tensor], tuple[Sequence[Any], Mapping[str, Any]]]
AlphaDropout = nn.AlphaDropout | nn.FeatureAlphaDropout


def refuse_unusable(module: nn.Module) -> None:
    """Raises UserError for a module that torch cannot call with other parameters."""
    where = f"model {type(module).__name__}"
    if any(isinstance(layer, torch.jit.ScriptModule) for layer in module.modules()):
        raise refusal(where, "scripted: pass the module that was scripted instead")
    named = [*module.named_parameters()]
    trained, known = (
        {id(leaf) for leaf in leaves if leaf.requires_grad}
        for leaves in (module.parameters(), (leaf for _, leaf in named))
    )
    if trained != known:
        wanted = "those of named_parameters(): freeze others by `requires_grad_(False)`"
        raise bad_value(where, "parameters()", "others", wanted)
    for path, leaf in (*named, *module.named_buffers()):
        if is_lazy(leaf):
            why = (
                f"{path}: its shape is not known yet: give the lazy layer its number of inputs, "
                "or call the model once on a sample"
            )
            raise refusal(where, why, path)
        if leaf.requires_grad and leaf.is_complex():
            wanted = "real numbers, such as torch.view_as_real has, made complex in `forward`"
            raise bad_value(where, path, str(leaf.dtype), wanted)


def refuse_shared(where: str, module: nn.Module, moving: Collection[str]) -> None:
    """Raises UserError for a constant that lies in the memory of a tensor that changes."""
    leaves, places = leaves_of(module), defaultdict[int, list[str]](list)
    for name, leaf in leaves.items():
        places[leaf.untyped_storage().data_ptr()].append(name)
    for pair in (pair for names in places.values() for pair in permutations(names, 2)):
        if pair[0] in moving and pair[1] not in moving:
            marks = torch.zeros(leaves[pair[0]].untyped_storage().nbytes())
            one, other = (
                marks.as_strided(leaf.shape, leaf.stride(), leaf.storage_offset())
                for leaf in (leaves[name] for name in pair)
            )
            if one.fill_(1).numel() and other.any():
                why = f"{pair[0]} and {pair[1]}: one memory, of which training changes the first"
                raise refusal(where, f"{why}: keep one, and take views in `forward`", pair[0])


def called(
    module: nn.Module, params: Tree, inputs: Sequence[Any], named: Mapping[str, Any] | None = None
) -> Any:
    """What a module returns with other parameters and buffers, which have its names.

    A tensor that the forward pass replaces is replaced in ``params``.

    A tensor in several places is given to each layer that has it, once. PyTorch's `tie_weights`
    gives it once for each path to a layer, and leaves its numbers in a layer that has two paths
    (its issue 164759), which then trains no more.
    """
    everywhere = dict(params)
    first: dict[Tensor, str] = {}
    for path, layer in module.named_modules():
        own = {"prefix": path, "recurse": False, "remove_duplicate": False}
        for leaves in (layer.named_parameters, layer.named_buffers):
            for name, leaf in leaves(**own):
                known = first.setdefault(leaf, name)
                if known in params:
                    everywhere[name] = everywhere[known]
    inputs, named = tuple(inputs), dict(named or {})
    returned = functional_call(module, everywhere, inputs, named, tie_weights=False)
    params.update((name, everywhere[name]) for name in params)
    return returned


def one_input(x: Tensor) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments of a forward pass of one input."""
    return (x,), {}


def outputs_of(returned: Any) -> Any:
    """What a forward pass returned, or the `logits` in it, as transformers' models have them."""
    return returned if isinstance(returned, Tensor) else getattr(returned, "logits", returned)


def leaves_of(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def fill(module: nn.Module, params: Mapping[str, Tensor]) -> None:
    """Copy tensors to the parameters and buffers of the same names."""
    with torch.no_grad():
        for name, leaf in leaves_of(module).items():
            if name in params:
                leaf.copy_(params[name])


def float_buffers(module: nn.Module) -> Tree:
    """The buffers that can be averaged, by name."""
    return {name: leaf for name, leaf in module.named_buffers() if leaf.is_floating_point()}


def count_in_floats(module: nn.Module) -> None:
    """Let a BatchNorm that averages over all mini-batches count them in a float buffer.

    So the count travels with the statistics; whole numbers don't.
    """
    for layer in module.modules():
        if isinstance(layer, BatchNorm) and layer.momentum is None and layer.track_running_stats:
            count, mean = layer.num_batches_tracked, layer.running_mean
            assert count is not None and mean is not None
            layer.num_batches_tracked = count.to(mean.dtype)


def lay_out(module: nn.Module) -> None:
    """Bring parameters into an order in memory that optimizers know: contiguous, channels_last."""
    for leaf in module.parameters():
        known = leaf.dim() == 4 and leaf.is_contiguous(memory_format=torch.channels_last)
        if not (known or leaf.is_contiguous()):
            leaf.data = leaf.data.contiguous()


def is_in(module: nn.Module, path: str, leaf: Tensor) -> bool:
    """Return True if a leaf is still the module's own."""
    parent, _, name = path.rpartition(".")
    attribute: object = getattr(module.get_submodule(parent), name)
    return attribute is leaf


def replaced(where: str, path: str) -> UserError:
    """The error about a model that replaces one of its tensors."""
    name = path.rpartition(".")[2]
    why = (
        f"its forward pass replaces {path}, which is then lost: change it in place, as in "
        f"self.{name}.copy_(...), a parameter without gradients"
    )
    return refusal(where, why, path)


def tied(module: nn.Module) -> str:
    """The name of a parameter that body and head share, or ""."""
    body, head = getattr(module, "body", None), getattr(module, "head", None)
    if not (isinstance(body, nn.Module) and isinstance(head, nn.Module)):
        return ""
    of_head = set(map(id, head.parameters()))
    return next((name for name, leaf in body.named_parameters("body") if id(leaf) in of_head), "")


def learned_elsewhere(module: nn.Module, bound: Tree) -> Tree:
    """Copies of the leaves that :func:`initialise` does not (fully) overwrite."""
    parts = tuple(
        f"{path}." if path else ""
        for path, part in module.named_modules()
        if getattr(part, "keeps_weights", False) or getattr(part, "redrawn", False)
    )
    kept = {*float_buffers(module), *(name for name in bound if name.startswith(parts))}
    return tree.copy({name: leaf for name, leaf in bound.items() if name in kept})


def draws_in_training(layer: nn.Module) -> bool:
    """Return True if a layer draws random numbers in training.

    torchvision's StochasticDepth and timm's DropPath are recognised by name, because neither
    package is required. DistilBERT's attention also draws, but comes with a dropout layer.
    """
    if isinstance(layer, Dropout | AlphaDropout):
        return layer.p > 0
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
        return layer.dropout > 0
    return type(layer).__name__ in ("StochasticDepth", "DropPath")
