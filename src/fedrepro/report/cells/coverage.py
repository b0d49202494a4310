"""Of the published cells: how many have a target, are computed at scale paper, agree."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fedrepro.config.targets import ComputedTarget, TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import computed, tables
from fedrepro.report.cells.cell import ComputedTable, Printed
from fedrepro.report.papers import published as papers
from fedrepro.report.papers.published import Published
from fedrepro.report.papers.verdict import Verdict

# Of trained cells, then of those that are counted or calculated.
TRAINED = {
    "agrees": "agree", "weak": "weak", "differs": "differ", "not comparable": "not_comparable"
}  # fmt: skip
ARITHMETIC = {"agrees": "arithmetic_agree", "differs": "arithmetic_differ"}
COUNTS = ("printed", "targets", "computed", *TRAINED.values(), *ARITHMETIC.values())
ALL = "all"


def coverage(workbench: Workbench) -> list[dict[str, Any]]:
    """A row for each published table, after each system a row for it, and one for all.

    Keys: system, table (an item such as table_2_3, or "all") and :data:`COUNTS`. A cell with a
    target is one that an experiment file's row and column name; ``computed`` ones have a number
    from the published setting, today: tables are computed, not read.
    """
    published = papers.load(workbench.root)
    found = {
        key: tables.compute(workbench, target, published)
        for key, target in workbench.tables("paper").items()
    }
    return rows_of(count(workbench, published, found), published)


def count(
    workbench: Workbench,
    published: Published,
    found: Mapping[tuple[str, str], ComputedTable],
) -> dict[tuple[str, str], Counter[str]]:
    """Counts by (system, item); a table that was not ``found`` has targets only."""
    counts = {key: Counter(printed=len(cells)) for key, cells in published.tables.items()}
    targets = workbench.targets("paper")
    for key, target in targets.items():
        if isinstance(target, ComputedTarget):
            for each in computed.compute(workbench, target, published):
                counts[key].update(counts_of(each.value is not None, each.verdict))
        if not isinstance(target, TableTarget):
            continue
        # A part of a table of which the rest is computed counts with it.
        whole = key[0], papers.split_part(key[1])[0]
        owner = whole if isinstance(targets.get(whole), ComputedTarget) else key
        # Of columns that answer the same printed cell the first one counts.
        answers: dict[tuple[str, ...], dict[str, int]] = {}
        for cell in found[key].cells if key in found else ():
            if cell.printed:
                counted_once = counts_of(cell.paper.n > 0, cell.verdict)
                answers.setdefault(cell.printed.name, counted_once)
        if key not in found:
            printed = (tables.printed_cell(target, cell, published) for cell in target.cells)
            answers = {Printed.of(cell).name: counts_of(False, None) for cell in printed if cell}
        counted = counts.setdefault(owner, Counter())
        for each_counts in answers.values():
            counted.update(each_counts)
        if owner not in published.tables:  # another reading of a part of a printed table
            counted["printed"] = len(answers)
    return counts


def counts_of(has_value: bool, verdict: Verdict | None) -> dict[str, int]:
    """What one printed cell with a target adds to the counts."""
    counts = {"targets": 1, "computed": int(has_value)}
    if verdict is None:
        return counts
    names = ARITHMETIC if verdict.basis == "arithmetic" else TRAINED
    return counts | {names[verdict.word]: 1}


def rows_of(
    counts: Mapping[tuple[str, str], Counter[str]], published: Published
) -> list[dict[str, Any]]:
    """The counts with their sums, as rows.

    Further readings of printed tables, such as table_2_3_released, come after a system's own; their
    cells are in no sum, which would count them twice.
    """
    rows = []
    everything: Counter[str] = Counter()
    for system in published.systems:
        whole: Counter[str] = Counter()
        for owner, item in published.tables:
            counted = counts[owner, item]
            if owner == system and counted["printed"]:
                rows.append(_row(system, item, counted))
                whole += counted
        further = sorted(counts.keys() - published.tables.keys())
        rows += [
            _row(system, item, counts[owner, item]) for owner, item in further if owner == system
        ]
        rows.append(_row(system, ALL, whole))
        everything += whole
    rows.append(_row(ALL, ALL, everything))
    return rows


def _row(system: str, table: str, counted: Counter[str]) -> dict[str, Any]:
    return {"system": system, "table": table} | {name: counted[name] for name in COUNTS}
