"""The pairs of printed cells that a claim compares, and whether they support it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from fedrepro.report.papers.claim import CellSelector, Claim
from fedrepro.report.papers.published import KEYS, PrintedCell, Published
from fedrepro.run.results import PAPERS
from fedrepro.support.errors import UserError

OTHERS = "others"


@dataclass(frozen=True)
class Pair:
    """Two printed numbers; ``lead`` is the left's lead over the right in the claimed direction."""

    left: PrintedCell
    right: PrintedCell
    lead: float

    @property
    def rounding(self) -> float:
        """The lead's rounding error: half a unit of each number's last digit."""
        return (self.left.last_digit + self.right.last_digit) / 2


@dataclass(frozen=True)
class PrintedFinding:
    """The printed numbers' verdict on a claim.

    Attributes:
        held, of: in how many of the comparisons it holds.
        lead: mean over the comparisons.
        against: the pairs that contradict it, the largest first.
    """

    word: Literal["supports", "does not support"]
    held: int
    of: int
    lead: float
    against: tuple[Pair, ...]


def pairs_of(claim: Claim, published: Published) -> list[Pair]:
    """All comparisons of a claim, in the order of the printed cells.

    Raises:
        UserError: if there are none.
    """
    items = {(claim.system, item) for item in claim.tables}
    cells = [cell for key in published.tables if key in items for cell in published.tables[key]]
    cells = [cell for cell in cells if cell.mean is not None]
    references = published.systems[claim.system].references
    found = [
        Pair(left, right, claim.sign * (left.mean - right.mean))
        for left in cells
        if (stars := _match(claim.left, left)) is not None
        for right in cells
        if left.mean is not None and right.mean is not None
        if _answers(claim, left, right, stars, references)
    ]
    if not found:
        raise UserError(
            f"{PAPERS / claim.system}/claims.yaml: {claim.name}: matches no printed cells"
        )
    return found


def judge_printed(claim: Claim, pairs: Sequence[Pair]) -> PrintedFinding:
    """Whether the printed numbers support the claim, allowing for rounding."""
    against = sorted(
        (pair for pair in pairs if not leads(claim, pair.lead, pair.rounding)),
        key=lambda pair: pair.lead,
    )
    mean = sum(pair.lead for pair in pairs) / len(pairs)
    rounding = sum(pair.rounding for pair in pairs) / len(pairs)
    supports = not against if claim.over == "each" else leads(claim, mean, rounding)
    word: Literal["supports", "does not support"] = "supports" if supports else "does not support"
    return PrintedFinding(word, len(pairs) - len(against), len(pairs), mean, tuple(against))


def leads(claim: Claim, lead: float, rounding: float) -> bool:
    """Whether the lead is positive, or at least the claim's ``by``, allowing for rounding."""
    return lead > 0 if claim.by == 0 else lead >= claim.by - rounding - 1e-9


def _match(place: CellSelector, cell: PrintedCell) -> dict[str, str] | None:
    """What ``*`` matches in a cell, by key; None if the cell does not match."""
    stars = {}
    for key in KEYS:
        wanted = getattr(place, key)
        if wanted is None:
            continue
        for pattern in _several(wanted):
            expression = re.escape(pattern).replace(r"\*", "(.+)")
            if match := re.fullmatch(expression, getattr(cell, key)):
                stars[key] = match[1] if match.groups() else ""
                break
        else:
            return None
    return stars


def _answers(
    claim: Claim,
    left: PrintedCell,
    right: PrintedCell,
    stars: dict[str, str],
    references: Iterable[str],
) -> bool:
    for key in KEYS:
        wanted, value = getattr(claim.right, key), getattr(right, key)
        if wanted is None:
            same = value == getattr(left, key)
        elif wanted == OTHERS:
            named = CellSelector.model_validate({key: getattr(claim.left, key)})
            same = _match(named, right) is None and value not in references
        else:
            same = value in {text.replace("*", stars.get(key, "")) for text in _several(wanted)}
        if not same:
            return False
    return left is not right


def _several(wanted: str | list[str]) -> list[str]:
    return [wanted] if isinstance(wanted, str) else wanted
