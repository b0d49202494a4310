"""Check what a hook returns, and that it changes nothing that it may not.

It returns trees of tensors with the right names, shapes and dtypes. All that no hook may change is
compared before and after a call of it.
"""

import inspect
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedrepro.check.traces import (
    attributes_of,
    changes,
    frozen,
    functions_of,
    generators,
    marks,
    outside,
)
from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.method import Method
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


# The hooks that get a context.
HOOKS = [
    name
    for name, hook in vars(Method).items()
    if inspect.isfunction(hook) and "ctx" in inspect.signature(hook).parameters
]


class Purity:
    """Watches a part of a composition.

    Args:
        functions: what it calls besides the functions of its class.
    """

    keep: ClassVar[str] = "return what must survive a round in `server` or `client_state`"
    draw: ClassVar[str] = (
        "draw from `rng`, or on the server from ctx.stream(purpose), with generator="
    )

    def __init__(self, part: object, functions: Iterable[Callable[..., Any]] = ()) -> None:
        self.part, self.cls, self.functions = part, type(part), [*functions]
        self.module = sys.modules[self.cls.__module__]

    def _where(self, name: str) -> str:
        """The file of a hook, and its line if it is in the method's own file."""
        code = inspect.unwrap(getattr(self.cls, name)).__code__
        file = str(self.module.__file__)
        return f"{file}:{code.co_firstlineno}" if code.co_filename == file else file

    @contextmanager
    def _unchanged(self, ctx: Context, arguments: Mapping[str, Any]) -> Iterator[None]:
        """A context that raises Mistake for what was changed in it, although no hook may."""
        dtype = torch.get_default_dtype()
        trees = {key: each for key, each in arguments.items() if isinstance(each, Tensor | dict)}
        trees |= {"ctx.initial": ctx.initial, "ctx.sizes": ctx.sizes, "ctx.cohort": ctx.cohort}
        # Kept alive, so that no new tensor reuses the memory address of an old one.
        kept = [leaf for each in trees.values() for leaf in tree.leaves(each)]
        before = self._traces(ctx, trees)
        yield
        after = self._traces(ctx, trees)
        torch.set_default_dtype(dtype)
        del kept
        for (what, remedy), traces in before.items():
            for key in changes(traces, after[what, remedy]):
                raise Mistake(what.format(key), remedy)

    def _traces(
        self, ctx: Context, trees: Mapping[str, Tree | Tensor]
    ) -> dict[tuple[str, str], dict[str, object]]:
        """Traces of all that no hook may change, by the words for a change and its remedy."""
        # Not the package's classes that a plug-in's extends.
        ours = __name__.partition(".")[0]
        others = (each for each in self.cls.mro()[1:] if each.__module__.partition(".")[0] != ours)
        own = [self.cls, *others]
        owners = {"self.": attributes_of(self.part)} | {
            f"{each.__name__}.": vars(each) for each in own
        }
        # A class that a program gives: what else is in its module, such as data, is not looked at.
        inside = (outside(functions_of(each)) for each in own)
        variables = dict(ChainMap(outside(self.functions), *inside))
        owners["the variable "] = vars(self.module) | variables
        return {
            ("changed {} in place", "return new tensors and new dicts instead"): {
                f"{name}[{key}]" if key else name: mark
                for name, argument in trees.items()
                for key, mark in marks(argument).items()
            },
            ("changed {}", self.keep): {
                f"{whose}{key}": frozen(value)
                for whose, owner in owners.items()
                for key, value in list(owner.items())
                if not key.startswith("__") and key not in HOOKS and not isinstance(value, type)
            },
            ("set torch's default {}", "give `dtype` to what makes tensors"): {
                "dtype": torch.get_default_dtype()
            },
            (
                "drew from the global generator of {}",
                self.draw,
                # Layers such as dropout draw from the generators, which are restored afterwards.
            ): {} if ctx.draws else generators(ctx.net.device),
        }
