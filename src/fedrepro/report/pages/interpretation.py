"""The section "What follows" of a table: verdicts by reading, sentences with numbers, claims.

Claims have the verdict of scale compact too, whose results are in the repository.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

from fedrepro.config.targets import TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import ComputedTable
from fedrepro.report.cells.claims import index_of, judge_claim, judge_compact, margin_of
from fedrepro.report.cells.findings import Finding
from fedrepro.report.cells.insights import Numbers, printed_numbers, sentence
from fedrepro.report.cells.readings import READINGS, Both, Readings
from fedrepro.report.cells.tables import compute
from fedrepro.report.papers.claim import CompactTest
from fedrepro.report.papers.pairs import printed_pairs
from fedrepro.report.papers.published import Published, natural
from fedrepro.report.papers.verdict import WORDS
from fedrepro.support.grouping import grouped

# Those that the released reading resolves come first.
DIFFERING = (
    "differ in the text's reading and do not in the released code's",
    "differ in the text's reading and in what is computed of the released code's",
    "differ in the text's reading, and the released code's is not computed",
    "differ in the text's reading, which the released code shares",
    "differ in the released code's reading and not in the text's",
    "differ in the released code's reading, and the text's is not computed",
)


def what_follows(
    workbench: Workbench, target: TableTarget, table: ComputedTable, published: Published
) -> dict[str, Any]:
    """The content of the section.

    Other tables that it needs are computed from the available runs: reference results are in the
    repository, and a page does not wait for other tables' runs.

    Raises:
        UserError: if a sentence names an unknown cell.
    """

    @cache
    def find(item: str) -> ComputedTable:
        asked = workbench.table(target.system, item, "paper")
        return table if item == target.item else compute(workbench, asked, published)

    def numbers_in(item: str) -> Numbers:
        return printed_numbers(find(item))

    experiment = workbench.experiments[target.system]
    claims = published.claims_on(target.system, target.item)
    tested = (claim.compact for claim in claims if isinstance(claim.compact, CompactTest))
    small = {
        (target.system, item): compute(
            workbench, workbench.table(target.system, item, "compact"), published
        )
        for item in sorted({test.table for test in tested} & experiment.compact.keys())
    }
    asked = {item for claim in claims for item in claim.tables} | {target.item}
    printed = {
        spec.published.table
        for item, spec in experiment.tables.items()
        if item in asked and spec.published
    }
    bearing = {
        (target.system, item): find(item)
        for item, spec in experiment.tables.items()
        if item in asked or (spec.published and spec.published.table in printed)
    }
    by_table = Readings(workbench, published, bearing).by_table
    own = {cell.answered.name for cell in table.cells if cell.answered}
    here = by_table.get((target.system, table.published_table or ""), {})
    cells = [both for name, both in here.items() if name in own]
    said = (
        sentence(insight, numbers_in)
        for insight in published.insights_on(target.system, target.item)
    )
    indices = {which: index_of(by_table, which) for which in READINGS}
    findings: dict[str, dict[str, Finding | None]] = {}
    for claim in claims:
        pairs = printed_pairs(claim, published)
        findings[claim.name] = {
            **{which: judge_claim(claim, pairs, index) for which, index in indices.items()},
            "compact": judge_compact(
                workbench, claim, small, margin_of(claim, pairs, compact=True)
            ),
        }
    return {
        "of": len(own),
        "readings": _readings(cells),
        "differences": _differences(cells),
        "sentences": [text for text in said if text],
        "claims": findings,
    }


def _readings(cells: Sequence[Both]) -> list[SimpleNamespace]:
    """How many printed cells have a number in each reading, and the counts of their verdicts."""
    answers = {
        "In the text's reading": [both.text for both in cells if both.text],
        "In the released code's reading, at least in part,": [
            both.released for both in cells if both.released
        ],
    }
    return [
        SimpleNamespace(
            name=name,
            computed=len(readings),
            words={word: sum(answer.word == word for answer in readings) for word in WORDS},
        )
        for name, readings in answers.items()
        if readings
    ]


def _differences(cells: Sequence[Both]) -> list[SimpleNamespace]:
    """The cells that differ in a reading, with the discrepancies between the readings."""
    groups = grouped(cells, _how_it_differs)
    return [
        SimpleNamespace(what=what, cells=groups[what], items=_items(groups[what]))
        for what in DIFFERING
        if what in groups
    ]


def _how_it_differs(both: Both) -> str:
    """How a cell differs from print, of :data:`DIFFERING`; "" if it differs in no reading."""
    text, released = both.text, both.released
    if text and text.word == "differs":
        if released:
            return DIFFERING[1 if released.word == "differs" else 0]
        return DIFFERING[2 if text.items else 3]
    if released and released.word == "differs":
        return DIFFERING[4 if text else 5]
    return ""


def _items(cells: Iterable[Both]) -> tuple[str, ...]:
    answers = (both.released or both.text for both in cells)
    numbers = {number for answer in answers if answer for number in answer.items}
    return tuple(sorted(numbers, key=natural))
