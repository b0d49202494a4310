"""The pairs of printed cells that a claim compares, and whether they support it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fedrepro.report.papers.claim import Claim
from fedrepro.report.papers.estimate import student_t
from fedrepro.report.papers.paper_files import KEYS
from fedrepro.report.papers.published import PrintedCell, Published, Spread
from fedrepro.report.papers.verdict import variance_of
from fedrepro.run.landed_runs import PAPERS
from fedrepro.support.errors import refusal


class PrintedWord(StrEnum):
    """The printed numbers' verdict on a claim.

    ``WITHIN_THE_SPREAD``: it leads, but not beyond what the paper's own seeds scatter.
    ``BUT_FOR_TIES``: some numbers are equal as printed.
    """

    SUPPORTS = "supports"
    WITHIN_THE_SPREAD = "supports within the spread"
    BUT_FOR_TIES = "supports but for ties"
    DOES_NOT_SUPPORT = "does not support"


@dataclass(frozen=True)
class Pair:
    """Two printed numbers; ``lead`` is the left's lead over the right in the claimed direction."""

    left: PrintedCell
    right: PrintedCell
    lead: float

    @property
    def rival(self) -> str:
        """The method on the right."""
        return self.right.method

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
        against: the pairs that contradict it, the largest first; ties come last.
        ties: how many of them are equal as printed.
        beyond: in how many comparisons the lead is beyond the printed spread over seeds; None
            if none is printed.
    """

    word: PrintedWord
    held: int
    of: int
    lead: float
    against: tuple[Pair, ...]
    ties: int = 0
    beyond: int | None = None


def printed_pairs(claim: Claim, published: Published) -> list[Pair]:
    """All comparisons of a claim, in the order of the printed cells.

    Raises:
        UserError: if there are none.
    """
    items = {(claim.system, item) for item in claim.tables}
    cells = [cell for key in published.tables if key in items for cell in published.tables[key]]
    numbers = [(cell, cell.mean) for cell in cells if cell.mean is not None]
    selected = claim.left.pairs_with(
        claim.right,
        [{key: getattr(cell, key) for key in KEYS} for cell, _ in numbers],
        published.systems[claim.system].references,
    )
    pairs = []
    for left_index, right_index in selected:
        (left, left_mean), (right, right_mean) = numbers[left_index], numbers[right_index]
        pairs.append(Pair(left, right, claim.sign * (left_mean - right_mean)))
    if not pairs:
        file = PAPERS / claim.system / "claims.yaml"
        raise refusal(file, f"{claim.name}: matches no printed cells", claim.name)
    return pairs


def judge_printed(
    claim: Claim, pairs: Sequence[Pair], spread: Spread | None = None
) -> PrintedFinding:
    """The verdict of the printed numbers on the claim, allowing for rounding.

    Args:
        spread: what the paper's printed standard deviations are over.
    """
    against = sorted(
        (pair for pair in pairs if not leads(claim, pair.lead, pair.rounding)),
        key=lambda pair: room(claim, pair.lead),
    )
    ties = sum(claim.by == 0 and abs(pair.lead) < 1e-9 for pair in against)
    mean = math.fsum(pair.lead for pair in pairs) / len(pairs)
    rounding = math.fsum(pair.rounding for pair in pairs) / len(pairs)
    every = not claim.is_of_the_mean
    beyond: list[bool] | None = None
    spreads_of_both = (pair.left.std and pair.right.std for pair in pairs)
    if spread and spread.over == "seeds" and all(spreads_of_both):
        beyond = [_is_beyond(claim, [pair], spread) for pair in pairs]
    word = PrintedWord.SUPPORTS
    if len(against) > ties if every else not leads(claim, mean, rounding):
        word = PrintedWord.DOES_NOT_SUPPORT
    elif every and ties:
        word = PrintedWord.BUT_FOR_TIES
    elif spread and beyond is not None:
        clear = all(beyond) if every else _is_beyond(claim, pairs, spread)
        word = PrintedWord.SUPPORTS if clear else PrintedWord.WITHIN_THE_SPREAD
    return PrintedFinding(
        word,
        len(pairs) - len(against),
        len(pairs),
        mean,
        tuple(against),
        ties,
        None if beyond is None else sum(beyond),
    )


def _is_beyond(claim: Claim, pairs: Sequence[Pair], spread: Spread) -> bool:
    """Return True if the mean lead is inside the claimed ones by the 95 % limit of Welch's t."""
    shares: dict[PrintedCell, float] = {}  # a number may be in several pairs
    for pair in pairs:
        shares[pair.left] = shares.get(pair.left, 0.0) + 1 / len(pairs)
        shares[pair.right] = shares.get(pair.right, 0.0) - 1 / len(pairs)
    errors = [
        share**2 * variance_of(cell.std or 0.0, spread) / spread.seeds
        for cell, share in shares.items()
    ]
    total = math.fsum(errors)
    degrees = total**2 * (spread.seeds - 1) / math.fsum(error**2 for error in errors)
    lead = math.fsum(pair.lead for pair in pairs) / len(pairs)
    return room(claim, lead) > student_t(degrees) * math.sqrt(total)


def leads(claim: Claim, lead: float, rounding: float) -> bool:
    """Return True if a lead is as claimed, allowing for rounding: one of 0 must be more than 0."""
    inside = room(claim, lead)
    return inside > 0 if claim.by == 0 and not is_two_sided(claim) else inside >= -rounding - 1e-9


def room(claim: Claim, lead: float) -> float:
    """How far a lead is inside the claimed ones; below 0, how far it is outside."""
    return (claim.margin or 0.0) - abs(lead) if is_two_sided(claim) else lead - claim.by


def is_two_sided(claim: Claim) -> bool:
    """Return True if a claim bounds leads on both sides; with ``by`` it bounds what may lag."""
    return claim.quantifier == "same" and claim.by == 0
