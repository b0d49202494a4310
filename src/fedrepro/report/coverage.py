"""Of the published cells: how many have a target, are computed at scale paper, agree."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fedrepro.config import Workbench
from fedrepro.report import published as papers
from fedrepro.report import tables
from fedrepro.report.published import Published

COUNTS = ("printed", "targets", "computed", "agree", "differ", "not_comparable")
ALL = "all"
_WORDS = {"agrees": "agree", "differs": "differ", "not comparable": "not_comparable"}


def coverage(workbench: Workbench) -> list[dict[str, Any]]:
    """A row for each published table, after each system a row for it, and one for all.

    Keys: system, table (an item such as table_2_3, or "all") and :data:`COUNTS`. A cell with a
    target is one that an experiment file's row and column name; ``computed`` ones have a number
    from the published setting.
    """
    published = papers.load(workbench.root)
    return rows_of(count(workbench, published), published)


def count(workbench: Workbench, published: Published) -> dict[tuple[str, str], Counter[str]]:
    """Counts by (system, item)."""
    configured = workbench.tables("paper")
    found = {key: Counter(printed=len(cells)) for key, cells in published.tables.items()}
    for key, target in configured.items():
        counted = found.setdefault(key, Counter())
        seen = set()
        for cell in tables.compute(workbench, target, published)["cells"]:
            printed = cell["printed"]
            if printed is None:
                continue
            name = tuple(printed[field] for field in papers.KEYS)
            if name not in seen:
                seen.add(name)
                counted.update(_of_cell(cell))
    return found


def _of_cell(cell: Mapping[str, Any]) -> dict[str, int]:
    found = {"targets": 1, "computed": int(cell["paper"]["n"] > 0)}
    if cell["verdict"]:
        found[_WORDS[cell["verdict"]["word"]]] = 1
    return found


def rows_of(
    counts: Mapping[tuple[str, str], Counter[str]], published: Published
) -> list[dict[str, Any]]:
    """The counts with their sums, as rows."""
    rows = []
    everything: Counter[str] = Counter()
    for system in published.systems:
        whole: Counter[str] = Counter()
        for (owner, item), counted in counts.items():
            if owner == system and counted["printed"]:
                rows.append(_row(system, item, counted))
                whole += counted
        rows.append(_row(system, ALL, whole))
        everything += whole
    rows.append(_row(ALL, ALL, everything))
    return rows


def _row(system: str, table: str, counted: Counter[str]) -> dict[str, Any]:
    return {"system": system, "table": table} | {name: counted[name] for name in COUNTS}
