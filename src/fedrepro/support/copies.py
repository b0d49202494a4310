"""Copies of torch modules."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
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
            if not isinstance(held, dict | list):
                continue
            for key, value in [*(held.items() if isinstance(held, dict) else enumerate(held))]:
                if isinstance(value, FunctionType | partial) or type(value) is tuple:
                    held[key] = _rebound(value, twins)
    return twin


def _parts(value: Any) -> Iterator[Any]:
    """The values that a function, or a tuple of them, refers to."""
    if isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, FunctionType):
        yield from value.__defaults__ or ()
        yield from (*(value.__kwdefaults__ or {}).values(), *vars(value).values())
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # of one that is not filled yet
                yield cell.cell_contents
    elif type(value) is tuple:
        yield from value


def _refers(value: Any, twins: Mapping[int, Any], seen: set[int]) -> bool:
    """Return True if a value is, or refers to, one that has a twin."""
    if id(value) in twins:
        return True
    if id(value) in seen:
        return False
    seen.add(id(value))
    return any(_refers(part, twins, seen) for part in _parts(value))


def _rebound(value: Any, twins: dict[int, Any]) -> Any:
    if id(value) in twins or not _refers(value, twins, set()):
        return twins.get(id(value), value)

    def own(part: Any) -> Any:
        return _rebound(part, twins)

    if isinstance(value, MethodType):
        return MethodType(own(value.__func__), own(value.__self__))
    if isinstance(value, partial):
        named = {name: own(part) for name, part in value.keywords.items()}
        return partial(own(value.func), *map(own, value.args), **named)
    if not isinstance(value, FunctionType):
        return tuple(map(own, value))
    cells = tuple(_cell(cell, twins) for cell in value.__closure__ or ())
    new = FunctionType(value.__code__, value.__globals__, None, None, cells)
    twins[id(value)] = new  # before its cells are filled, as it may refer to itself
    new.__defaults__ = value.__defaults__ and tuple(map(own, value.__defaults__))
    named = {name: own(part) for name, part in (value.__kwdefaults__ or {}).items()}
    new.__kwdefaults__ = named or None
    new.__dict__.update({name: own(part) for name, part in vars(value).items()})
    for before, cell in zip(value.__closure__ or (), cells, strict=True):
        if cell is not before:
            cell.cell_contents = own(before.cell_contents)
    return new


def _cell(cell: CellType, twins: dict[int, Any]) -> CellType:
    """The cell that a new function has: of what refers to a copy, one that its users share."""
    with suppress(ValueError):
        if _refers(cell.cell_contents, twins, set()):
            cell = twins.setdefault(id(cell), CellType())
    return cell
