"""The cells that a claim compares: one language of selectors, for printed and for compact tables.

A selector has patterns for some of a cell's keys, and leaves the others open. On the left of a
comparison ``*`` matches any text. On the right it stands for the text that it matched on the left,
``others`` for every value that the left does not name, except references, and a key without a
pattern for the value on the left.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from fedrepro.support.typed_yaml import Typed

OTHERS = "others"
Keys = Mapping[str, str]  # a cell's values by key
Patterns = str | list[str] | None


def patterns_of(wanted: Patterns) -> list[str]:
    """The patterns of a key; empty if it is left open."""
    return [wanted] if isinstance(wanted, str) else wanted or []


def star_in(pattern: str, text: str) -> str | None:
    """The text that ``*`` stands for, "" for a pattern without one; None if it does not match."""
    match = re.fullmatch(re.escape(pattern).replace(r"\*", "(.+)"), text)
    if match is None:
        return None
    return match[1] if match.groups() else ""


class Selector(Typed):
    """Patterns by key; the keys are the fields of a subclass."""

    def star(self, key: str, text: str) -> str | None:
        """The text that ``*`` stands for in a key's value, by the first match, or None."""
        patterns = patterns_of(getattr(self, key))
        stars = (star_in(pattern, text) for pattern in patterns)
        return next((star for star in stars if star is not None), None if patterns else "")

    def pairs_with(
        self, right: "Selector", cells: Sequence[Keys], references: Collection[str] = ()
    ) -> Iterator[tuple[int, int]]:
        """The indices of each selected cell and of those that ``right`` compares with it."""

        def compares(key: str, star: str, cell: Keys, rival: Keys) -> bool:
            wanted, text = getattr(right, key), rival[key]
            if wanted is None:
                return text == cell[key]
            if wanted == OTHERS:
                return self.star(key, text) is None and text not in references
            return text in {pattern.replace("*", star) for pattern in patterns_of(wanted)}

        for index, cell in enumerate(cells):
            stars = {key: self.star(key, text) for key, text in cell.items()}
            if any(star is None for star in stars.values()):
                continue
            for rival_index, rival in enumerate(cells):
                alike = (compares(key, star or "", cell, rival) for key, star in stars.items())
                if index != rival_index and all(alike):
                    yield index, rival_index


class CellSelector(Selector):
    """Selects printed cells by some of their keys. A key may have several values."""

    dataset: str | list[str] | None = None
    setting: str | list[str] | None = None
    method: str | list[str] | None = None
    metric: str | list[str] | None = None


class CompactSelector(Selector):
    """Selects cells of a compact table by the labels of their column and row."""

    column: str | list[str] | None = None
    row: str | list[str] | None = None
