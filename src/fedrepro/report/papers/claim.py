"""A paper's claim as a comparison of cells, and a sentence about results: what their files may say.

Claims are in claims.yaml, sentences in what_follows.yaml.

A claim selects the cells that it compares, printed and compact ones in one language. A selector has
patterns for some of a cell's keys, and leaves the others open. On the left of a comparison ``*``
matches any text. On the right it stands for the text that it matched on the left, ``others`` for
every value that the left does not name, except references, and a key without a pattern for the
value on the left.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from pydantic import Field

from fedrepro.support.typed_yaml import Typed

OTHERS = "others"
Keys = Mapping[str, str]  # a cell's values by key
Patterns = str | list[str] | None
Quantifier = Literal["each", "more", "average", "same", "amount"]
OF_THE_MEAN: tuple[Quantifier, ...] = ("more", "average")


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


class CompactTest(Typed):
    """The cells of scale compact that test a claim, as ``left`` and ``right`` of :class:`Claim`."""

    table: str = Field(description="A table of config/compact/<system>.yaml.")
    left: CompactSelector
    right: CompactSelector
    stands_for: dict[str, str] = Field(
        default_factory=dict,
        description="By setting of the table: which of the paper's the claim is about, if another "
        "than the setting itself stands for.",
    )
    looked_at: str = Field(
        default="",
        description="What was looked at before the result was believed; a loss needs it. Its "
        "numbers are placeholders, as in what_follows.yaml.",
    )
    numbers: dict[str, Address] = Field(
        default_factory=dict, description="The cells that `looked_at` names; tables are compact."
    )


class Objection(Typed):
    """What somebody objects to a verdict, and what we answered."""

    says: str
    by: str
    on: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="The day, such as 2026-11-27.")
    answer: str = ""


class Claim(Typed):
    """An entry of claims.yaml; ``system`` is its folder's name.

    Every cell of ``left`` is compared with every cell of ``right`` that equals it in the keys that
    ``right`` does not name.
    """

    system: str
    name: str = Field(pattern=r"^[a-z0-9-]+$")
    says: str = Field(description="The claim in our own words.")
    source: str
    basis: Literal["abstract", "text", "table"] = Field(
        description="Where the claim is made; table: we know no sentence, but the table implies it."
    )
    tables: list[str]
    left: CellSelector
    right: CellSelector
    expect: Literal["more", "less"]
    by: float = Field(
        default=0.0, description="The least lead; if negative, the most that it may lag."
    )
    quantifier: Quantifier = Field(
        default="each",
        description="each: better than every rival, or in every setting; more: more than "
        "others, without an every in the text; average: on average; same: nearly the same; "
        "amount: by how much.",
    )
    place: list[str] = Field(
        default_factory=list,
        description="Where the paper says it: a file of its text, and lines of it.",
    )
    text_says: str = Field(
        default="", description="What the text says, where the claim is stronger than the text."
    )
    margin: float | None = Field(
        default=None,
        gt=0,
        description="A mean lead within this of zero is too small to matter, in printed units; "
        "only where `by` is 0. By default half a percentage point; other units have no default.",
    )

    compact: CompactTest | str = Field(
        default="", description="The cells of scale compact that test it, or why none can."
    )

    objections: list[Objection] = Field(
        default_factory=list, description="Shown beside each of its verdicts, in the same size."
    )

    @property
    def anchor(self) -> str:
        """``<system>-<name>``: its name in ``fedrepro claims`` and in links."""
        return f"{self.system}-{self.name}"

    @property
    def label(self) -> str:
        """Its name in words; abbreviations and names are written as in what it says."""
        words = re.findall(r"\w+", f"{self.says} {self.source}")[1:]
        known = {word.lower(): word for word in words if word != word.lower()}
        first, *rest = (known.get(word, word) for word in self.name.split("-"))
        return " ".join([first[:1].upper() + first[1:], *rest])

    @property
    def is_of_the_mean(self) -> bool:
        """Whether only the mean over its comparisons counts."""
        return self.quantifier in OF_THE_MEAN

    @property
    def sign(self) -> int:
        return 1 if self.expect == "more" else -1
