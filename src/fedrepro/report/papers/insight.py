"""A sentence on what a table comes to, with numbers of the runs: the form of what_follows.yaml."""

from pydantic import Field

from fedrepro.support.typed_yaml import Typed


class Address(Typed):
    """A cell of a table of the system's experiment file, by its labels."""

    table: str | None = Field(default=None, description="Without it, the first of the sentence's.")
    row: str
    column: str


class Bounds(Typed):
    """Between which a number lies."""

    above: float = float("-inf")
    below: float = float("inf")


class Insight(Typed):
    """An entry of what_follows.yaml; ``system`` is its folder's name.

    A placeholder in ``says`` is a name of ``numbers``, for our number there: ``{name}``; or for
    what is printed (``{name.printed}``), ours less printed (``{name.difference}``), how many seeds
    ours is of (``{name.seeds}``); or one less another, ``{name - other}``. Without one of these
    numbers the sentence is left out.
    """

    system: str
    tables: list[str] = Field(min_length=1, description="On whose pages it stands.")
    says: str
    numbers: dict[str, Address]
    only_if: dict[str, Bounds] = Field(
        default={}, description="By expression: what the sentence takes for granted."
    )
