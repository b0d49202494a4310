"""Refuse a wrapper for what a user's hooks would lose by it, or would get too early."""

import inspect
from collections.abc import Iterable
from typing import Any

from fedrepro.check.traces import codes_in, functions_of, outside
from fedrepro.engine.method import Method, Wrapper, name_of
from fedrepro.methods._combining import AVERAGING
from fedrepro.support.plugins import overrides

# A hook of which a wrapper's own takes the place, and by what names that calls the one inside.
CALLS = {
    "client_update": {"client_update", "gradient", "loss"},
    "aggregation_weights": {"aggregation_weights"},
    "server_update": {"server_update"},
}
OF_UPDATES = ("aggregation_weights", "server_update")


def refused(wrapper: Wrapper, inner: Method) -> str | None:
    """Return why a wrapper may not be around ``inner``: a hook of a user's would be lost."""
    cls, layers = type(wrapper), inner.layers()
    private = next((layer for layer in layers if layer.mechanism), None)
    if private and any(overrides(cls, hook) for hook in OF_UPDATES):
        return f"it would get updates without its noise: name it after {name_of(private)}"
    if overrides(cls, "apply_server_optimizer") and not overrides(cls, "server_update"):
        return "its server_update would never call the wrapper's apply_server_optimizer"
    for hook in CALLS:
        replaces = cls.sets_weights and hook == "aggregation_weights"
        if not (replaces or (overrides(cls, hook) and not _calls_inner(cls, hook))):
            continue
        for layer in layers:
            # A wrapper of the package says itself what it can't wrap of the package's.
            mine = overrides(cls, hook) or overrides(type(layer), hook)
            if mine and _defines(layer, hook):
                return f"the wrapper would never call the {hook} of {name_of(layer)}"
    return None


def _defines(layer: Method, hook: str) -> bool:
    """Return True if a layer depends on a hook of its own."""
    cls = type(layer)
    if hook == "aggregation_weights":
        # An author may say that other weights will do.
        owner = next(each for each in cls.__mro__ if hook in vars(each))
        return cls.sets_weights or (overrides(cls, hook) and "sets_weights" not in vars(owner))
    defaults = (*AVERAGING, Wrapper) if hook == "server_update" else (Method, Wrapper)
    names = CALLS[hook]
    return any(getattr(cls, each) not in [getattr(d, each) for d in defaults] for each in names)


def _calls_inner(cls: type[Wrapper], hook: str) -> bool:
    """Return False if a wrapper's hook can't call that inside, as its code has no name for it."""
    own = [each for each in cls.__mro__ if not issubclass(Wrapper, each)]
    functions = [
        each
        for owner in own
        for each in (*vars(owner).values(), *outside(functions_of(owner)).values())
    ]
    whole = _names_in(each for each in functions if inspect.isfunction(each))
    return bool(CALLS[hook] & whole or {"inner", "layers"} & _names_in([getattr(cls, hook)]))


def _names_in(functions: Iterable[Any]) -> set[str]:
    """The names in some functions' code, and its texts, which `getattr` may be given."""
    codes = (code for each in functions for code in codes_in(inspect.unwrap(each).__code__))
    return {
        text for code in codes for text in (*code.co_names, *code.co_consts) if type(text) is str
    }
