"""A paper's claim as a comparison of its printed cells: the format of claims.yaml."""

import re
from typing import Literal

from pydantic import Field

from fedrepro.report.papers.insight import Address
from fedrepro.report.papers.selectors import CellSelector, CompactSelector
from fedrepro.support.typed_yaml import Typed

Quantifier = Literal["each", "more", "average", "same", "amount"]
OF_THE_MEAN: tuple[Quantifier, ...] = ("more", "average")


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
