"""The page of the claims: whether the printed numbers support each, and whether our runs do."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import ComputedTable
from fedrepro.report.cells.claims import (
    CellIndex,
    Counted,
    Finding,
    counted_index,
    index_of,
    judge_claim,
    released_index,
)
from fedrepro.report.cells.readings import answers_by_table
from fedrepro.report.papers.claim import Claim
from fedrepro.report.papers.leads import LOOKS, POCOCK, WORDS
from fedrepro.report.papers.pairs import PRINTED_WORDS, PrintedFinding, judge_printed, pairs_of
from fedrepro.report.papers.published import Published, label_of


@dataclass(frozen=True)
class ClaimView:
    """A claim with its verdicts.

    Attributes:
        ours: in the text's reading.
        released: in the released code's, as far as it is computed.
        tables: pages and names of its tables.
    """

    claim: Claim
    printed: PrintedFinding
    ours: Finding
    released: Finding
    tables: tuple[tuple[str, str], ...]

    @property
    def facts(self) -> dict[str, str | int]:
        """A row: our mean lead, its verdicts, and the number of comparisons behind them."""
        overall, printed = self.ours.overall, self.ours.printed_lead
        lead = f"{overall.lead:{'+.2f' if abs(overall.lead) < 1e5 else '+.3g'}}" if overall else ""
        if overall and overall.low is not None:
            lead += f" [{overall.low:+.2f}, {overall.high:+.2f}]"
        return {
            "claim": self.claim.anchor,
            "says": self.claim.says,
            "source": self.claim.source,
            "printed": f"{self.printed.word} ({self.printed.held} of {self.printed.of})",
            "lead": lead,
            "printed_lead": f"{printed:+.2f}" if overall and printed is not None else "",
            "ours": _tally(self.ours),
            "needs": self.ours.needs,
            "released": _tally(self.released),
            "seeds": overall.seeds if overall else 0,
        }


def _tally(finding: Finding) -> str:
    """The verdict, and how many of its comparisons have been computed."""
    computed, of = len(finding.computed), len(finding.comparisons)
    how = ", counted" if finding.counted else ""
    return f"{finding.word} ({computed} of {of}{how})" if computed else finding.word


def views_of(
    workbench: Workbench, published: Published, tables: Mapping[tuple[str, str], ComputedTable]
) -> list[ClaimView]:
    """Test all claims on some tables."""
    index, counted = index_of(tables.values()), counted_index(workbench, published)
    released = released_index(answers_by_table(workbench, tables, published))
    return [_view(claim, published, index, released, counted) for claim in published.claims]


def claims_page(published: Published, views: Sequence[ClaimView]) -> dict[str, Any]:
    """The content of the page."""
    return {
        "groups": [
            {"about": system, "views": [view for view in views if view.claim.system == name]}
            for name, system in published.systems.items()
        ],
        "summary": summary(views),
        "looks": LOOKS,
        "level": f"{100 * POCOCK:.2f}",
    }


def summary(views: Iterable[ClaimView]) -> dict[str, Any]:
    """Counts: all claims, those by the printed numbers, by our runs, and those that are counted."""
    views = list(views)
    printed = Counter(view.printed.word for view in views)
    counts = Counter(view.ours.word for view in views if not view.ours.counted)
    return {
        "total": len(views),
        "printed": {word: printed[word] for word in PRINTED_WORDS},
        "ours": {word: counts[word] for word in WORDS},
        "counted": sum(view.ours.counted for view in views),
    }


def _view(
    claim: Claim,
    published: Published,
    index: CellIndex,
    released: CellIndex,
    counted: Counted,
) -> ClaimView:
    pairs = pairs_of(claim, published)
    labels = {key: cells[0].table for key, cells in published.tables.items() if cells}
    return ClaimView(
        claim,
        judge_printed(claim, pairs, published.systems[claim.system].spread),
        judge_claim(claim, pairs, index, counted),
        judge_claim(claim, pairs, released),
        tuple(
            (f"{claim.system}/{item}.html", label_of(item, labels.get((claim.system, item), "")))
            for item in claim.tables
        ),
    )
