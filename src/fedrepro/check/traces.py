"""Traces that code leaves: what it changed, drew from, and took gradients of."""

import inspect
import random
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.method import Method
from fedrepro.engine.tree import Tree
from fedrepro.support import plugins

EMPTY = CellType()
ENTRIES, NUMBERS = 256, 1_000_000  # that are looked at in a container, and in an array


def generators(device: torch.device) -> dict[str, object]:
    """The states of the global generators, by the names of their libraries."""
    of_torch = [torch.get_rng_state()]
    if device.type == "cuda":
        of_torch.append(torch.cuda.get_rng_state(device))
    of_numpy: Any = np.random.get_state(legacy=False)  # noqa: NPY002  # only inspected
    return {
        "torch": [_bytes(state) for state in of_torch],
        "numpy": frozen(of_numpy),
        "Python's random": random.getstate(),
    }


def changes(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """The keys whose values differ, or that only one of the two has."""
    return [key for key in {**before, **after} if before.get(key) != after.get(key)]


def marks(what: Tree | Tensor) -> dict[str, tuple[int, int, int]]:
    """Identity and version of every leaf, and a checksum for writes that autograd misses."""
    return {key: (id(leaf), *_content_of(leaf)) for key, leaf in tree.named(what)}


def strangers(outputs: object, known: Iterable[Tensor]) -> list[Tensor]:
    """Tensors that require gradients, that outputs follow from, and that are none of ``known``.

    Raises:
        NotImplementedError: for a reentrant checkpoint, whose layers only `backward` reaches.
    """
    own, seen, rest = set(map(id, known)), set[Any](), [getattr(outputs, "grad_fn", None)]
    leaves = []
    while rest:
        node = rest.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name() == "CheckpointFunctionBackward":
            raise NotImplementedError(
                "checkpoint(use_reentrant=True): expected use_reentrant=False"
            )
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in own:
            leaves.append(leaf)
        rest += [before for before, _ in node.next_functions]
    return leaves


def frozen(value: Any, depth: int = 4) -> object:
    """A value that differs if a variable was changed, in place or by assignment.

    Of large ones, a part is looked at: a hook may name all of a program's data.
    """
    if depth == 0:
        return id(value)
    if isinstance(value, dict | list | tuple | set | frozenset) and len(value) > ENTRIES:
        return id(value), len(value)
    inside = partial(frozen, depth=depth - 1)
    match value:
        case Tensor():
            return id(value), marks(value)
        case torch.nn.Module():
            return id(value), marks(dict(value.state_dict(keep_vars=True)))
        case np.ndarray():
            return value.flat[:: max(1, value.size // NUMBERS)].tobytes()
        case torch.Generator():
            return _bytes(value.get_state())
        case np.random.Generator():
            return frozen(value.bit_generator.state)  # made anew, so its parts have no identity
        case random.Random():
            return value.getstate()
        case dict():
            return [(key, inside(entry)) for key, entry in value.items()]
        case list() | tuple() | set() | frozenset():
            return [inside(entry) for entry in value]
        case str() | bytes() | bytearray() | int() | float() | None:
            return repr(value)
    module = type(value).__module__
    if module in ("collections", "itertools"):
        return repr(value)
    own = plugins.is_own(module) or module == "__main__"
    if own and hasattr(value, "__dict__") and not isinstance(value, Method):
        return id(value), inside(attributes_of(value))
    return id(value)


def attributes_of(value: object) -> dict[str, object]:
    """The attributes of an object, without what is only computed once from the others."""
    cls, kept = type(value), getattr(value, "__dict__", {})
    once = {key for key in kept if isinstance(getattr(cls, key, None), cached_property)}
    return {key: each for key, each in kept.items() if key not in once}


def functions_of(cls: type) -> list[FunctionType]:
    """The functions that a class defines."""
    return [value for value in vars(cls).values() if inspect.isfunction(value)]


def outside(functions: Iterable[Any]) -> dict[str, object]:
    """The variables outside of some functions that they name, and the functions these call."""
    there: dict[str, object] = {}
    waiting = [*functions]
    while waiting:
        function = inspect.unwrap(waiting.pop())
        if inspect.ismethod(function):
            there |= attributes_of(function.__self__)
            function = function.__func__
        if not isinstance(function, FunctionType):
            there |= getattr(function, "__dict__", {})  # of an object that can be called
            continue
        names = {name for code in codes_in(function.__code__) for name in code.co_names}
        space = function.__globals__
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        filled = {name: cell.cell_contents for name, cell in cells if cell != EMPTY}
        for name, value in ({key: space[key] for key in names if key in space} | filled).items():
            if inspect.isfunction(value) and value.__globals__ is space and name not in there:
                waiting.append(value)
            there[name] = value
    return there


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Some code, and that of the functions inside of it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def _content_of(leaf: Tensor) -> tuple[int, int]:
    """A tensor's version, and the sum of its bits as integers, which depends on no order.

    0 of what has none, such as a sparse tensor, or one inside of ``torch.vmap``.
    """
    try:
        version = leaf._version
        leaf = torch.view_as_real(leaf) if leaf.is_complex() else leaf
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        some = leaf.detach().flatten()[:: max(1, leaf.numel() // NUMBERS)]
        return version, int(some.view(bits[leaf.element_size()]).sum(dtype=torch.int64))
    except (RuntimeError, ValueError, TypeError):
        return 0, 0


def _bytes(state: Tensor) -> bytes:
    return state.numpy().tobytes()
