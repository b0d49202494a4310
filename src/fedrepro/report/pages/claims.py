"""The page of the claims: what the printed numbers say of each, and what our runs do."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fedrepro.report.cells.cell import ComputedTable
from fedrepro.report.cells.claims import WORDS, CellIndex, Finding, index_of, judge_claim
from fedrepro.report.papers.claim import Claim
from fedrepro.report.papers.pairs import PrintedFinding, judge_printed, pairs_of
from fedrepro.report.papers.published import Published, label_of


@dataclass(frozen=True)
class ClaimView:
    """A claim with both of its verdicts; ``tables`` are the pages of its tables and their names."""

    claim: Claim
    printed: PrintedFinding
    ours: Finding
    tables: tuple[tuple[str, str], ...]


def claims_page(published: Published, tables: Iterable[ComputedTable]) -> dict[str, Any]:
    """The content of the page, from the tables' JSON."""
    index = index_of(tables)
    views = [_view(claim, published, index) for claim in published.claims]
    return {
        "groups": [
            {"about": system, "views": [view for view in views if view.claim.system == name]}
            for name, system in published.systems.items()
        ],
        "summary": summary(views),
    }


def summary(views: Iterable[ClaimView]) -> dict[str, Any]:
    """How many claims there are, are supported by their own tables, and hold by our runs."""
    views = list(views)
    counts = Counter(view.ours.word for view in views)
    return {
        "total": len(views),
        "supported": sum(view.printed.word == "supports" for view in views),
        "ours": {word: counts[word] for word in WORDS},
    }


def _view(claim: Claim, published: Published, index: CellIndex) -> ClaimView:
    pairs = pairs_of(claim, published)
    labels = {key: cells[0].table for key, cells in published.tables.items() if cells}
    return ClaimView(
        claim,
        judge_printed(claim, pairs),
        judge_claim(claim, pairs, index),
        tuple(
            (f"{claim.system}/{item}.html", label_of(item, labels.get((claim.system, item), "")))
            for item in claim.tables
        ),
    )
