"""The verdict of our runs on a claim, at scale paper or compact, from numbers by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fedrepro.report.cells.cell import diverged_in_words
from fedrepro.report.papers.claim import Claim
from fedrepro.report.papers.leads import (
    LOOKS,
    Diverged,
    Judged,
    PairedTest,
    Single,
    judge_leads,
)
from fedrepro.report.papers.pairs import Pair


@dataclass(frozen=True)
class CompactPair:
    """Two cells of a compact table: their positions in it, and what they compare in words."""

    left: int
    right: int
    words: str


class Side(NamedTuple):
    """A cell of a comparison: its name, its numbers by seed, and the seeds that diverged."""

    name: str
    by_seed: Mapping[int, float]
    diverged: tuple[int, ...] = ()


class Comparison(NamedTuple):
    """One pair of cells with its verdict; ``p`` is corrected by Holm's method, or None."""

    pair: Pair | CompactPair
    word: Single
    test: PairedTest | None
    p: float | None


@dataclass(frozen=True)
class Finding(Judged):
    """The verdict of our runs, or of what we counted, on a whole claim.

    Attributes:
        pairs: its comparisons, in the order of ``tests``.
        unit: of the leads, or "".
        margin: how small a mean lead does not matter, or None.
        counted: whether it rests on numbers that involve no chance, and on no run.
        printed_lead: the printed mean lead over the same comparisons as ours; None without ours.
        item: the compact table, or "".
        diverged: how many runs of its cells diverged; ``why`` names them.
    """

    pairs: Sequence[Pair | CompactPair] = ()
    unit: str = ""
    margin: float | None = None
    counted: bool = False
    printed_lead: float | None = None
    item: str = ""
    diverged: int = 0

    @property
    def comparisons(self) -> list[Comparison]:
        rows = zip(self.pairs, self.words, self.tests, self.ps, strict=True)
        return [Comparison(*row) for row in rows]

    @property
    def computed(self) -> list[Comparison]:
        return [comparison for comparison in self.comparisons if comparison.test]

    @property
    def tally(self) -> str:
        """How many of the comparisons hold; "" if they are counted, as ``why`` says it then."""
        return "" if self.counted else super().tally


def finding_of(
    claim: Claim,
    pairs: Sequence[Pair | CompactPair],
    sides: Sequence[tuple[Side, Side]],
    margin: float | None,
    *,
    in_looks: bool = False,
) -> Finding:
    """Judge a claim by its leads over paired seeds.

    Args:
        sides: of each pair.
        in_looks: whether nothing is decided before the first look.
    """
    leads = [
        {
            seed: claim.sign * (left.by_seed[seed] - right.by_seed[seed])
            for seed in sorted(left.by_seed.keys() & right.by_seed.keys())
        }
        for left, right in sides
    ]
    lost = [Diverged(len(left.diverged), len(right.diverged)) for left, right in sides]
    judged = judge_leads(leads, claim.by, claim.over == "each", margin, lost)
    if in_looks:
        judged = _after_first_look(judged)
    diverged = {side.name: side.diverged for both in sides for side in both if side.diverged}
    return replace(
        Finding(
            **vars(judged), pairs=pairs, margin=margin, diverged=sum(map(len, diverged.values()))
        ),
        why=judged.why + diverged_in_words(diverged),
    )


def _after_first_look(judged: Judged) -> Judged:
    """Nothing is decided before the first look; seeds in between would be looks of their own."""
    seeds = judged.overall.seeds if judged.overall else 0
    if judged.word in ("not computed", "undecided") or seeds >= LOOKS[0]:
        return judged
    why = f"{seeds} of {LOOKS[0]} seeds, with which it is judged first."
    return replace(judged, word="undecided", why=why, needs=str(LOOKS[0]))
