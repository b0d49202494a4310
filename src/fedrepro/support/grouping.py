"""Group items by a key."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key")


def grouped(items: Iterable[Item], key_of: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items of each key, in the order in which keys and items come first."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key_of(item), []).append(item)
    return groups
