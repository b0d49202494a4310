"""Find a claim's word from numbers by seed; `claims.py` finds these numbers in tables."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fedrepro.report.cells.cell import diverged_in_words
from fedrepro.report.papers.claim import Claim
from fedrepro.report.papers.leads import (
    LOOKS,
    Comparison,
    Diverged,
    Judged,
    Rule,
    Single,
    Word,
    judge_leads,
    overall_of,
)
from fedrepro.report.papers.pairs import Pair
from fedrepro.report.papers.published import Unit
from fedrepro.report.papers.verdict import SLACK, TWINS
from fedrepro.support.printing import decimals_for, with_interval

MOST_RIVALS = 3  # names in a verdict
Runs = frozenset[tuple[str, tuple[str, ...]]]  # by setting and methods


@dataclass(frozen=True)
class CompactPair:
    """Two cells of a compact table: their positions in it, and what they compare in words.

    Attributes:
        rival: what the right cell has that the left one has not: its column, else its row.
    """

    left: int
    right: int
    words: str
    rival: str


class Side(NamedTuple):
    """A cell of a comparison: its name, its numbers by seed, and the seeds that diverged.

    Attributes:
        impossible: whether its runs are finished, and have no such measure.
    """

    name: str
    by_seed: Mapping[int, float]
    diverged: tuple[int, ...] = ()
    impossible: bool = False

    def mean_of(self, seeds: Sequence[int]) -> float:
        return math.fsum(self.by_seed[seed] for seed in seeds) / len(seeds)

    def is_twin_of(self, other: "Side", most: float) -> bool:
        """Return True if both have the same seeds, and none separates them by more than ``most``.

        One seed does not show it, nor numbers whose unit has no such distance, as rounds.
        """
        return (
            most > 0
            and len(self.by_seed) > 1
            and self.by_seed.keys() == other.by_seed.keys()
            and (self.diverged, other.diverged) == ((), ())
            and all(abs(self.by_seed[s] - other.by_seed[s]) <= most * SLACK for s in self.by_seed)
        )


@dataclass(frozen=True)
class Finding(Judged):
    """The verdict of our runs, or of what we counted, on a whole claim.

    Attributes:
        by: the lead that was tested.
        unit: of the leads, or "".
        margin: how small a mean lead does not matter, or None.
        counted: whether it rests on numbers that involve no chance, and on no run.
        printed_lead: the printed mean lead over the same comparisons as ours; None without ours.
        item: the compact table, or "".
        runs: of scale compact, on which it rests.
        diverged: how many runs of its cells diverged; ``why`` names them.
        rests_on: rivals, without any one of which the mean lead would not be decided as it is.
        twins: comparisons that are left out, as no seed separates them from another one.
        impossible: comparisons that are left out, as a side's runs cannot have the measure.
        machines: the kinds of machine and package of its runs, if there are several.
    """

    by: float = 0.0
    unit: str = ""
    margin: float | None = None
    counted: bool = False
    printed_lead: float | None = None
    item: str = ""
    runs: Runs = frozenset()
    diverged: int = 0
    rests_on: Sequence[str] = ()
    twins: Sequence[Pair | CompactPair] = ()
    impossible: Sequence[Pair | CompactPair] = ()
    machines: Sequence[str] = ()

    @property
    def verdict(self) -> str:
        """Its word, with the rivals that it is against, or how many comparisons are open."""
        if self.word == Word.DOES_NOT_HOLD:
            rows = self.comparisons
            against = dict.fromkeys(row.pair.rival for row in rows if row.word == Single.AGAINST)
            some = [*against][:MOST_RIVALS]
            more = f" and {len(against) - len(some)} more" if len(against) > len(some) else ""
            return f"{self.word}, against {', '.join(some)}{more}" if some else self.word
        if self.word == Word.LEADS_ON_AVERAGE:
            left = sum(word not in (Single.LEADS, Single.NOT_BEHIND) for word in self.words)
            return f"{self.word}, open for {left} of {len(self.words)}"
        return self.word

    @property
    def computed(self) -> list[Comparison]:
        return [comparison for comparison in self.comparisons if comparison.test]

    @property
    def tally(self) -> str:
        """How many of the comparisons hold; "" if they are counted, as ``why`` says it then."""
        return "" if self.counted else super().tally


def experiments(findings: Iterable[Finding]) -> int:
    """On how many experiments findings rest: those that share runs are one witness."""
    groups: list[Runs] = []
    for finding in findings:
        shared = [group for group in groups if group & finding.runs]
        groups = [group for group in groups if group not in shared]
        groups.append(finding.runs.union(*shared))
    return len(groups)


def finding_of(
    claim: Claim,
    pairs: Sequence[Pair | CompactPair],
    sides: Sequence[tuple[Side, Side]],
    margin: float | None,
    unit: Unit,
    *,
    compact: bool = False,
) -> Finding:
    """Judge a claim by its leads over paired seeds.

    Args:
        sides: of each pair.
        unit: of the numbers, which says how close twins are.
        compact: whether the runs are of scale compact: nothing is decided before the first look,
            and of an amount, which belongs to the paper's data and network, only the direction is
            tested.
    """
    kept, twins, impossible = _distinct(pairs, sides, TWINS[unit])
    pairs, sides = [pairs[place] for place in kept], [sides[place] for place in kept]
    shared = [sorted(left.by_seed.keys() & right.by_seed.keys()) for left, right in sides]
    leads = [
        {seed: claim.sign * (left.by_seed[seed] - right.by_seed[seed]) for seed in seeds}
        for (left, right), seeds in zip(sides, shared, strict=True)
    ]
    means = [
        (left.mean_of(seeds), right.mean_of(seeds)) if seeds else None
        for (left, right), seeds in zip(sides, shared, strict=True)
    ]
    lost = [Diverged(len(left.diverged), len(right.diverged)) for left, right in sides]
    in_direction = compact and claim.quantifier == "amount"
    rule = Rule(0.0 if in_direction else claim.by, claim.quantifier, margin)
    judged = judge_leads(leads, rule, lost)
    if compact:
        judged = _held_until_first_look(judged)
    if in_direction and judged.word == Word.HOLDS:
        judged = replace(judged, word=Word.HOLDS_IN_DIRECTION)
    if in_direction:
        why = f"{judged.why} The amount belongs to the paper's data and network, and is not tested."
        judged = replace(judged, why=why.strip())
    diverged = {side.name: side.diverged for both in sides for side in both if side.diverged}
    rivals = [pair.rival for pair in pairs]
    rests_on = _resting_on(judged, leads, rivals, rule)
    said = (judged.why, diverged_in_words(diverged).strip(), *rests_on.values())
    compared = zip(judged.comparisons, pairs, means, strict=True)
    about = {
        "comparisons": tuple(replace(row, pair=pair, means=both) for row, pair, both in compared),
        "why": " ".join(filter(None, said)),
    }
    return Finding(
        **vars(judged) | about, by=rule.by, margin=margin, twins=twins, impossible=impossible,
        diverged=sum(map(len, diverged.values())), rests_on=tuple(rests_on),
    )  # fmt: skip


def _resting_on(
    judged: Judged, leads: Sequence[Mapping[int, float]], rivals: Sequence[str], rule: Rule
) -> dict[str, str]:
    """The rivals without which the mean lead would no longer be decided, and what it would be."""
    overall = judged.overall
    if judged.word in (Word.UNDECIDED, Word.NOT_COMPUTED) or overall is None:
        return {}
    if not rule.is_of_the_mean and judged.word != Word.LEADS_ON_AVERAGE:
        return {}  # each comparison is decided by itself
    said = {}
    for rival in dict.fromkeys(rivals):
        others = [
            lead for lead, other in zip(leads, rivals, strict=True) if other != rival and lead
        ]
        rest = overall_of(others, rule.by)
        if rest is None or (rest.is_above(rule.by), rest.is_below(rule.by)) == (
            overall.is_above(rule.by),
            overall.is_below(rule.by),
        ):
            continue
        digits = decimals_for([overall.lead, rest.lead])
        lead = with_interval(rest.lead, rest.interval, f"{{:+.{digits}f}}".format)
        said[rival] = f"Without {rival}, the mean lead is {lead}."
    return said


def _distinct(
    pairs: Sequence[Pair | CompactPair], sides: Sequence[tuple[Side, Side]], most: float
) -> tuple[list[int], list[Pair | CompactPair], list[Pair | CompactPair]]:
    """Places of the comparisons that count, and those that are left out: twins, impossible ones."""
    kept: list[int] = []
    twins, impossible = [], []
    for place, (left, right) in enumerate(sides):
        if left.impossible or right.impossible:
            impossible.append(pairs[place])
        elif any(
            left.is_twin_of(sides[other][0], most) and right.is_twin_of(sides[other][1], most)
            for other in kept
        ):
            twins.append(pairs[place])
        else:
            kept.append(place)
    # Of a claim of which nothing can exist all is shown, as not computed.
    return (kept, twins, impossible) if kept else ([*range(len(pairs))], [], [])


def _held_until_first_look(judged: Judged) -> Judged:
    """Nothing is decided before the first look; seeds in between would be looks of their own."""
    seeds = judged.overall.seeds if judged.overall else 0
    if judged.word in (Word.NOT_COMPUTED, Word.UNDECIDED) or seeds >= LOOKS[0]:
        return judged
    why = f"{seeds} of {LOOKS[0]} seeds, with which it is judged first."
    return replace(judged, word=Word.UNDECIDED, why=why, needs=str(LOOKS[0]))
