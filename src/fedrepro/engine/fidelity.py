"""Deviations of released code from its paper: switches that ``name@released`` sets."""

from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Self


def deviation(default: Any, released: Any, item: str, why: str) -> Any:
    """A field for a deviation of the released code from the paper.

    ``default`` follows the paper; ``name@released`` sets the field to ``released``. ``item`` is the
    number in the ledger of discrepancies, and ``why`` says in a few words what the code does.
    """
    return field(default=default, metadata={"released": released, "item": item, "why": why})


@dataclass(frozen=True)
class Faithful:
    """A part of a composition: it follows its paper or, with ``@released``, the authors' code."""

    @classmethod
    def deviations(cls) -> list[Field[Any]]:
        """The fields made by :func:`deviation`."""
        return [entry for entry in fields(cls) if "released" in entry.metadata]

    def as_released(self) -> Self:
        """This part with all deviations of the authors' code."""
        released = {entry.name: entry.metadata["released"] for entry in self.deviations()}
        return replace(self, **released)
