"""Where released code departs from its paper: switches that ``name@released`` turns."""

from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Self


def deviation(default: Any, released: Any, item: str, why: str) -> Any:
    """A field for a place where the released code departs from the paper.

    ``default`` follows the paper; ``name@released`` sets the field to ``released``. ``item`` is the
    number in the ledger of discrepancies.
    """
    return field(default=default, metadata={"released": released, "item": item, "why": why})


@dataclass(frozen=True)
class Faithful:
    """What a composition can name: it follows its paper, or ``@released`` the authors' code."""

    @classmethod
    def deviations(cls) -> list[Field[Any]]:
        """The fields that :func:`deviation` made."""
        return [each for each in fields(cls) if "released" in each.metadata]

    def as_released(self) -> Self:
        """This part as the authors' code has it, wherever that departs from the paper."""
        return replace(self, **{each.name: each.metadata["released"] for each in self.deviations()})
