"""Compare all that no hook may change before and after a call of it."""

import inspect
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedrepro.check.forms import Mistake
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
