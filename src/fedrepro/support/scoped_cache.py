"""Values that are made once within a block: while a site is rendered, no result changes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

_kept = ContextVar[dict["ScopedCache[Any, Any]", dict[Any, Any]] | None]("_kept", default=None)


@contextmanager
def read_once() -> Iterator[None]:
    """A block in which no result changes: each run is read once, each table computed once."""
    outer = _kept.get()
    token = _kept.set({} if outer is None else outer)
    try:
        yield
    finally:
        _kept.reset(token)


class ScopedCache(Generic[Key, Value]):
    """Values by key, kept until the outermost :func:`read_once` ends; outside, made each time."""

    def of(self, key: Key, make: Callable[[], Value]) -> Value:
        kept = _kept.get()
        if kept is None:
            return make()
        own: dict[Key, Value] = kept.setdefault(self, {})
        if key not in own:
            own[key] = make()
        return own[key]
