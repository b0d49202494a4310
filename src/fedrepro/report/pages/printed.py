"""Pages of printed tables that need no runs: the printed numbers, with ours if we compute them."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from fedrepro.config.targets import ComputedTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import computed
from fedrepro.report.pages.about import about
from fedrepro.report.papers.published import PrintedCell, Published, label_of, split_part
from fedrepro.support.grouping import grouped


def printed_page(published: Published, system: str, item: str) -> dict[str, Any]:
    """The content of the page of a published table that no experiment file covers."""
    cells = published.tables[system, item]
    printed = cells[0].table if cells else item.removeprefix("table_")
    words = published.words.get((system, item), ())
    return {
        "grids": _grids(cells),
        "words": words,
        "word_columns": list(dict.fromkeys(word.metric for word in words)),
        "word_rows": list(dict.fromkeys(word.setting for word in words)),
        "printed": len(cells),
        "doubted": [cell for cell in cells if cell.doubt],
        **about(published, system, item, printed),
    }


def computed_page(
    workbench: Workbench, target: ComputedTarget, published: Published
) -> dict[str, Any]:
    """The content of the page of a table that needs no runs.

    ``parts`` are the pages of tables of the same system whose runs give the rest of the table.
    """
    cells = computed.compute(workbench, target, published)
    words = computed.compute_words(workbench, target, published)
    by_printed = {cell.printed: cell for cell in cells}
    printed = list(by_printed)
    if target.spec.heading and printed:
        of_methods = target.spec.of_methods
        grid = _grid_of_methods(printed) if of_methods else _grid(printed, lambda cell: cell.metric)
        grids = [{"metric": target.spec.heading, **grid}]
    else:
        grids = _grids(printed)
    for grid in grids:
        grid["rows"] = [
            (key, {column: by_printed[cell] for column, cell in row.items()})
            for key, row in grid["rows"]
        ]
    verdicts: list[str] = [cell.verdict.word for cell in cells if cell.verdict]
    verdicts += [word.verdict for word in words if word.verdict]
    table = printed[0].table if printed else ""
    return {
        "title": target.spec.title,
        "grids": grids,
        "wordings": {(word.printed.setting, word.printed.metric): word for word in words},
        "word_rows": list(dict.fromkeys(word.printed.setting for word in words)),
        "word_columns": list(dict.fromkeys(word.printed.metric for word in words)),
        "parts": [
            (f"{item}.html", label_of(item, table))
            for system, item in workbench.targets()
            if system == target.system and split_part(item)[0] == target.item != item
        ],
        "records": [],
        "counts": {
            "printed": len(cells) + len(words),
            "computed": len(verdicts),
            "agree": verdicts.count("agrees"),
            "differ": verdicts.count("differs"),
        },
        "differing": [cell for cell in cells if cell.verdict and cell.verdict.word == "differs"],
        "left_open": sum(cell.verdict is None for cell in cells),
        "doubted": [cell for cell in printed if cell.doubt],
        **about(published, target.system, target.item, table),
    }


def _grids(cells: Sequence[PrintedCell]) -> list[dict[str, Any]]:
    """A grid for each metric."""
    return [
        {"metric": group[0].metric_in_words, **_grid(group)}
        for group in grouped(cells, lambda cell: cell.metric).values()
    ]


def _grid_of_methods(cells: Sequence[PrintedCell]) -> dict[str, Any]:
    """Heads of methods and metrics; if each row has its own metric, that is the row's head."""
    rows = {(cell.method, cell.setting) for cell in cells}
    if len(rows) < len(cells):
        grid = _grid(cells, lambda cell: cell.metric_in_words, lambda cell: cell.method)
        return grid | {"head": "Method"}
    grid = _grid(cells, lambda _: "Value", lambda cell: cell.metric_in_words)
    return grid | {"head": "What"}


def _grid(
    cells: Sequence[PrintedCell],
    column_of: Callable[[PrintedCell], str] = lambda cell: cell.method,
    row_of: Callable[[PrintedCell], str] = lambda cell: cell.dataset,
) -> dict[str, Any]:
    """Cells as rows of (``row_of`` them, setting) and columns, by default of methods."""
    columns = list(dict.fromkeys(column_of(cell) for cell in cells))
    settings = {cell.setting: re.split(r"\s*[,;]\s*", cell.setting) for cell in cells}
    shared = [
        part
        for part in next(iter(settings.values()))
        if len(settings) > 1 and all(part in parts for parts in settings.values())
    ]
    rows: dict[tuple[str, str], dict[str, PrintedCell]] = {}
    for cell in cells:
        own = ", ".join(part for part in settings[cell.setting] if part not in shared)
        rows.setdefault((row_of(cell), own), {})[column_of(cell)] = cell
    return {"head": "Data", "columns": columns, "rows": list(rows.items()), "shared": shared}
