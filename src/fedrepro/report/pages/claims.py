"""The page of the claims: whether the printed numbers support each, and whether our runs do."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import differences
from fedrepro.report.cells.cell import ComputedTable
from fedrepro.report.cells.claims import (
    CellIndex,
    Counted,
    Finding,
    counted_index,
    index_of,
    judge_claim,
    margin_of,
)
from fedrepro.report.cells.compact import CompactFinding, CompactPair, judge_compact
from fedrepro.report.cells.readings import answers_by_table
from fedrepro.report.drawing.forest import Bar, forest, verdicts
from fedrepro.report.drawing.style import INK
from fedrepro.report.pages.templates import MINUS, figure
from fedrepro.report.papers.claim import Claim
from fedrepro.report.papers.leads import LOOKS, POCOCK, WORDS, PairedTest, Single
from fedrepro.report.papers.pairs import PRINTED_WORDS, PrintedFinding, judge_printed, pairs_of
from fedrepro.report.papers.published import Published


@dataclass(frozen=True)
class ClaimView:
    """A claim with its verdicts.

    Attributes:
        ours: in the text's reading.
        released: in the released code's, as far as it is computed.
        compact: at scale compact; None if nothing there can test it, as the claim says why.
        tables: pages and names of its tables.
        differences: of the settings of its compact runs from the paper's: what, there, here, the
            ratio, and in which settings.
        untuned: what the paper tunes and no search of these settings has, and where it says so.
    """

    claim: Claim
    printed: PrintedFinding
    ours: Finding
    released: Finding
    compact: CompactFinding | None
    tables: tuple[tuple[str, str], ...]
    differences: tuple[tuple[str, str, str, str, str], ...]
    untuned: tuple[tuple[str, str], ...]

    @property
    def plot(self) -> str:
        """The compact comparisons and their mean as an SVG; "" without them."""
        if self.compact is None:
            return ""
        judged = self.compact.judged
        single = [found for each in judged.tests if each and (found := interval_of(each))]
        mean = interval_of(judged.overall) if judged.overall else None
        about = f"{self.claim.anchor}: leads at scale compact, and their mean"
        return forest(single, mean, self.ours.margin, about)

    @property
    def comparisons(self) -> list[tuple[CompactPair, PairedTest | None, Single, float | None]]:
        """The compact comparisons with test, word and Holm's p."""
        if self.compact is None:
            return []
        judged = self.compact.judged
        return list(zip(self.compact.pairs, judged.tests, judged.words, judged.ps, strict=True))

    @property
    def facts(self) -> dict[str, str | int]:
        """A row: our mean lead, its verdicts, and the number of comparisons behind them."""
        overall, printed = self.ours.overall, self.ours.printed_lead
        return {
            "claim": self.claim.anchor,
            "says": self.claim.says,
            "source": self.claim.source,
            "printed": f"{self.printed.word} ({self.printed.held} of {self.printed.of})",
            "lead": _lead_of(overall),
            "printed_lead": f"{printed:+.2f}" if overall and printed is not None else "",
            "ours": _tally(self.ours),
            "needs": self.ours.needs,
            "released": _tally(self.released),
            "compact": self.compact.judged.word if self.compact else "none",
            "compact_lead": _lead_of(self.compact.judged.overall) if self.compact else "",
            "compact_seeds": _seeds_of(self.compact),
            "compact_diverged": self.compact.diverged if self.compact else 0,
            "compact_why": self.compact.judged.why if self.compact else str(self.claim.compact),
            "seeds": overall.seeds if overall else 0,
        }


def interval_of(test: PairedTest) -> tuple[float, float, float] | None:
    """Low, mean, high; None without an interval."""
    if test.low is None or test.high is None:
        return None
    return test.low, test.lead, test.high


def _lead_of(test: PairedTest | None) -> str:
    if test is None:
        return ""
    if test.low is None or test.high is None:
        return _plain(test.lead)
    return f"{_plain(test.lead)} [{_plain(test.low)}, {_plain(test.high)}]"


def _plain(lead: float) -> str:
    """As pages show it, but with ASCII's minus."""
    return figure(lead).replace(MINUS, "-")


def _seeds_of(found: CompactFinding | None) -> int:
    return found.judged.overall.seeds if found and found.judged.overall else 0


def _tally(finding: Finding) -> str:
    """The verdict, and how many of its comparisons have been computed."""
    computed, of = len(finding.computed), len(finding.comparisons)
    how = ", counted" if finding.counted else ""
    return f"{finding.word} ({computed} of {of}{how})" if computed else finding.word


def views_of(
    workbench: Workbench, published: Published, tables: Mapping[tuple[str, str], ComputedTable]
) -> list[ClaimView]:
    """Test all claims on some tables."""
    counted = counted_index(workbench, published)
    answers = answers_by_table(workbench, tables, published)
    index, released = index_of(answers, "text"), index_of(answers, "released")
    return [
        _view(workbench, claim, published, (index, released, counted), tables)
        for claim in published.claims
    ]


def claims_page(published: Published, views: Sequence[ClaimView]) -> dict[str, Any]:
    """The content of the page."""
    return {
        "groups": [
            {"about": system, "views": [view for view in views if view.claim.system == name]}
            for name, system in published.systems.items()
        ],
        "summary": summary(views),
        "looks": LOOKS,
        "least_seeds": LOOKS[0],
        "level": f"{100 * POCOCK:.2f}",
    }


def summary(views: Iterable[ClaimView]) -> dict[str, Any]:
    """Counts: all claims, those by the printed numbers, by our runs, and those that are counted."""
    views = list(views)
    printed = Counter(view.printed.word for view in views)
    compact = Counter(view.compact.judged.word for view in views if view.compact)
    counts = Counter(view.ours.word for view in views if not view.ours.counted)
    return {
        "total": len(views),
        "printed": {word: printed[word] for word in PRINTED_WORDS},
        "ours": {word: counts[word] for word in WORDS},
        "counted": sum(view.ours.counted for view in views),
        "compact": {word: compact[word] for word in WORDS},
        "no_compact": sum(view.compact is None for view in views),
    }


def findings_of(views: Iterable[ClaimView]) -> dict[str, dict[str, Any]]:
    """By system: how many claims have each word at scale compact, and a plot of their mean leads.

    ``no_test`` of the ``total`` can't be tested there.

    Claims differ in their units, so a lead beyond the claimed one is drawn in half widths of its
    interval: a bar that does not touch the middle differs significantly from what is claimed.
    """
    found: dict[str, dict[str, Any]] = {}
    views = list(views)
    for system in dict.fromkeys(view.claim.system for view in views):
        those = [view for view in views if view.claim.system == system]
        found_in = [(view.claim, view.compact) for view in those if view.compact]
        judged = [(claim, each.judged, each.unit) for claim, each in found_in]
        counts = Counter(each.word for _, each, _ in judged)
        bars = []
        for claim, each, unit in judged:
            interval = interval_of(each.overall) if each.overall else None
            if interval and interval[2] > interval[1]:
                at = (interval[1] - claim.by) / (interval[2] - interval[1])
                at = max(-FARTHEST, min(FARTHEST, at))
                lead = f"{_lead_of(each.overall)} {unit}".strip()
                said = f"{claim.says} {each.word.capitalize()}, {lead}."
                colour, name = COLOURS.get(each.word, INK), claim.label
                place = f"claims.html#{claim.anchor}"
                bars.append(Bar((at - 1, at, at + 1), colour, said, name, place))
        found[system] = {
            "words": {word: counts[word] for word in WORDS if counts[word]},
            "total": len(those),
            "no_test": len(those) - len(judged),
            "plot": verdicts(
                sorted(bars, key=lambda bar: -bar.at[1]), f"{system}: claims in small runs"
            ),
        }
    return found


FARTHEST = 6.0  # half widths; farther leads are drawn there
COLOURS = {  # of a verdict's bar; others are grey
    "holds everywhere": "var(--agrees)",
    "holds": "var(--agrees)",
    "does not hold": "var(--differs)",
}


def _view(
    workbench: Workbench,
    claim: Claim,
    published: Published,
    indexes: tuple[CellIndex, CellIndex, Counted],
    tables: Mapping[tuple[str, str], ComputedTable],
) -> ClaimView:
    index, released, counted = indexes
    pairs = pairs_of(claim, published)
    compared = differences.of_claim(workbench, claim)
    return ClaimView(
        claim,
        judge_printed(claim, pairs, published.systems[claim.system].spread),
        judge_claim(claim, pairs, index, counted),
        judge_claim(claim, pairs, released),
        judge_compact(workbench, claim, tables, margin_of(claim, pairs)),
        tuple(
            (f"{claim.system}/{item}.html", published.label_of(claim.system, item))
            for item in claim.tables
        ),
        tuple(
            (
                each.key,
                differences.shown(each.there),
                differences.shown(each.here),
                differences.shown_ratio(each),
                "all" if len(names) == len(compared) else ", ".join(names),
            )
            for each, names in differences.grouped(compared)
        ),
        tuple(
            dict.fromkeys(
                row
                for name, those in compared.items()
                for row in differences.unsearched(workbench, name, those).items()
            )
        ),
    )
