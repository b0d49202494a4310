"""Copies of torch modules."""

import copy
from contextlib import suppress
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedrepro.support.errors import bad_value, refusal


def copied(module: nn.Module) -> nn.Module:
    """A copy, also of layers that hold tensors computed from their parameters (old weight norm).

    Raises:
        UserError: if two parameters share memory, which their copies would not, or one has a hook,
            which its copy would lose, or no numbers.
    """
    seen: dict[int, str] = {}
    where = f"model {type(module).__name__}"
    for name, leaf in module.named_parameters():
        if leaf.is_meta:
            wanted = "a device with numbers: call module.to_empty(device='cpu') and fill it"
            raise bad_value(where, f"{name}: device", "meta", wanted)
        if leaf._backward_hooks or getattr(leaf, "_post_accumulate_grad_hooks", None):
            why = (
                f"{name}: has a hook, which training on copies would not call: change the weight "
                "in `forward`, or register a hook of the layer"
            )
            raise refusal(where, why, name)
        if (
            not is_lazy(leaf)
            and leaf.data_ptr()
            and (other := seen.setdefault(leaf.data_ptr(), name)) != name
        ):
            why = (
                f"{other} and {name}: two parameters in the same memory: use one, transposed in "
                "`forward` if need be, as in F.linear(x, weight.T)"
            )
            raise refusal(where, why, name)
    computed = (
        leaf
        for layer in module.modules()
        for leaf in vars(layer).values()
        if isinstance(leaf, Tensor) and not leaf.is_leaf
    )
    twins = {id(leaf): leaf.detach().clone() for leaf in computed}
    return rebound(copy.deepcopy(module, twins), twins)


def rebound(twin: nn.Module, twins: dict[int, Any]) -> nn.Module:
    """A copy, whose functions refer to it where the module's refer to the module.

    Hooks do, and activations such as ``lambda x: F.dropout(x, 0.5, self.training)``: to
    ``copy.deepcopy`` functions are values.

    Args:
        twins: the memo of ``copy.deepcopy``, to which functions and cells are added.
    """
    for layer in twin.modules():
        for held in (vars(layer), *vars(layer).values()):
            for key, value in held.items() if isinstance(held, dict) else ():
                if isinstance(value, FunctionType):
                    held[key] = _rebound(value, twins)
    return twin


def _rebound(value: Any, twins: dict[int, Any]) -> Any:
    if isinstance(value, MethodType):
        return MethodType(value.__func__, twins.get(id(value.__self__), value.__self__))
    if isinstance(value, FunctionType) and id(value) not in twins:
        twins[id(value)] = value  # it may refer to itself
        for cell in (cells := value.__closure__ or ()):
            with suppress(ValueError):  # of one that is not filled yet
                if (new := _rebound(cell.cell_contents, twins)) is not cell.cell_contents:
                    twins.setdefault(id(cell), CellType(new))
        if any(id(cell) in twins for cell in cells):
            own = tuple(twins.get(id(cell), cell) for cell in cells)
            new = FunctionType(value.__code__, value.__globals__, None, value.__defaults__, own)
            new.__kwdefaults__, new.__dict__ = value.__kwdefaults__, {**vars(value)}
            twins[id(value)] = new
    return twins.get(id(value), value)
