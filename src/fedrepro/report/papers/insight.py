"""A sentence about a table's results, with the runs' numbers: the format of what_follows.yaml."""

from pydantic import Field

from fedrepro.support.typed_yaml import Typed


class Address(Typed):
    """A cell of a table of the system's experiment file, by its labels."""

    table: str | None = Field(
        default=None, description="By default, the first of the sentence's tables."
    )
    row: str
    column: str


class Insight(Typed):
    """An entry of what_follows.yaml; ``system`` is its folder's name.

    A placeholder in ``says`` is a key of ``numbers``: ``{name}`` is our number, ``{name.printed}``
    the printed one, ``{name.difference}`` ours - printed, ``{name.seeds}`` our number of seeds, and
    ``{name - other}`` a difference. Differences have a sign. If a number is missing, the sentence
    is left out; otherwise it is shown, whichever way the numbers turn out.
    """

    system: str
    tables: list[str] = Field(min_length=1, description="The tables whose pages show it.")
    says: str
    numbers: dict[str, Address]
