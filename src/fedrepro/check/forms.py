"""The form of what a hook returns: trees of tensors with the right names, shapes and dtypes."""

from typing import Any

import torch
from torch import Tensor

from fedrepro.engine import tree
from fedrepro.engine.tree import Tree

Structure = dict[str, tuple[tuple[int, ...], torch.dtype]]


class Mistake(Exception):
    """A mistake of a hook, and its remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}: {remedy}")


def require_pair(result: Any, wanted: str) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise Mistake(f"returned {shown(result)}", f"return {wanted}")
    return result


def require_weights(result: Any, cohort: int) -> Any:
    """Check the weights that a hook returned, and return the server's state beside them."""
    wanted = "two things: the aggregation weights [cohort] and the server's state"
    weights, server = require_pair(result, wanted)
    if not isinstance(weights, Tensor) or weights.shape != (cohort,):
        raise Mistake(
            f"the aggregation weights are {shown(weights)}",
            f"return one for each client of the cohort, [{cohort}]",
        )
    if not bool(weights.isfinite().all()):
        raise Mistake("an aggregation weight is not finite", "return finite ones")
    return server


def require_tree(result: Any, whose: str) -> None:
    for key, leaf in tree.named(result):
        if not isinstance(leaf, Tensor):
            what = f"{whose}: {key}" if key else whose
            raise Mistake(f"{what} is {shown(leaf)}", "return tensors, in dicts by name")


def require_dict(result: Any, whose: str) -> None:
    if not isinstance(result, dict):
        raise Mistake(f"{whose} is {shown(result)}", "return a dict of tensors by name")
    require_tree(result, whose)


def structure_of(what: Tree) -> Structure:
    return {key: (tuple(leaf.shape), leaf.dtype) for key, leaf in tree.named(what)}


def require_like(result: Tree, wanted: Tree, whose: str, remedy: str) -> None:
    """Raise Mistake unless two trees have the same names, shapes and dtypes."""
    require_structure(structure_of(result), structure_of(wanted), whose, remedy)


def require_structure(there: Structure, wanted: Structure, whose: str, remedy: str) -> None:
    for key in {**wanted, **there}:
        if key not in there:
            raise Mistake(f"{whose} lacks {key}", remedy)
        if key not in wanted:
            raise Mistake(f"{whose} has an additional {key}", remedy)
        if there[key] != wanted[key]:
            kinds = f"{_kind(*there[key])}, not {_kind(*wanted[key])}"
            raise Mistake(f"{whose}: {key} is {kinds}", remedy)


def _kind(shape: tuple[int, ...], dtype: torch.dtype) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"


def shown(result: Any) -> str:
    if isinstance(result, Tensor):
        return f"a tensor of {_kind(tuple(result.shape), result.dtype)}"
    if isinstance(result, float | int | str | None):
        return repr(result)
    return f"a {type(result).__name__}"
