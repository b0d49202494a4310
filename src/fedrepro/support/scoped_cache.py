"""Values that are made once within a block: while a site is rendered, no result changes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class ScopedCache(Generic[Key, Value]):
    """Values by key, kept until the outermost block ends; outside of one, made each time."""

    def __init__(self, name: str) -> None:
        self._kept = ContextVar[dict[Key, Value] | None](name, default=None)

    @contextmanager
    def within(self) -> Iterator[None]:
        outer = self._kept.get()
        token = self._kept.set({} if outer is None else outer)
        try:
            yield
        finally:
            self._kept.reset(token)

    def of(self, key: Key, make: Callable[[], Value]) -> Value:
        kept = self._kept.get()
        if kept is None:
            return make()
        if key not in kept:
            kept[key] = make()
        return kept[key]
