"""Count the published cells and figures that have a target, are computed, and agree."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from fedrepro.config.targets import ComputedTarget, FigureTarget, TableTarget
from fedrepro.config.values import SCALES, Scale
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import computed, tables
from fedrepro.report.cells.cell import TableCell
from fedrepro.report.cells.readings import Readings, released_in
from fedrepro.report.papers import published as papers
from fedrepro.report.papers.published import Name, PrintedFigure, Published, State
from fedrepro.report.papers.verdict import Verdict
from fedrepro.run.results import find_run
from fedrepro.support.scoped_cache import read_once

# Trained cells first, then counted or calculated ones.
TRAINED = {
    "agrees": "agree", "undecided": "undecided", "differs": "differ",
    "not comparable": "not_comparable",
}  # fmt: skip
ARITHMETIC = {"agrees": "arithmetic_agree", "differs": "arithmetic_differ"}
COUNTS = ("printed", "targets", "computed", *TRAINED.values(), *ARITHMETIC.values())
STATES = tuple(state.replace(" ", "_") for state in get_args(State))
FIGURE_COUNTS = ("printed", *STATES, *(f"computed_{scale}" for scale in SCALES))
ALL, RELEASED, ANY = "all", "released", "any"


def coverage(workbench: Workbench) -> list[dict[str, Any]]:
    """A row for each published table; after each system's tables, its sum and its other readings.

    Keys: system, table (an item such as table_2_3, "all", "released" or "any") and :data:`COUNTS`;
    the last rows sum over all systems. A cell has a target if a row and a column of an experiment
    file name it. It is ``computed`` if the published setting gives it a number today: this computes
    the tables afresh. "released" counts printed cells for which some table requests the released
    code's settings, methods or scoring; of several such numbers, the one closest to the released
    code counts. "any" counts each printed cell once that has a number of ours in some table,
    whatever its reading, and judges none.
    """
    with read_once():
        readings = tables.compute_all(workbench)
        further = {RELEASED: count_released(readings), ANY: count_any(readings)}
        return rows_of(count(readings), readings.published, further)


def missing_studies(workbench: Workbench) -> list[str]:
    """The studies whose results are missing and which give printed cells without a run."""
    wanted = {
        target.study
        for target in workbench.targets("paper").values()
        if isinstance(target, ComputedTarget) and target.study
    }
    return sorted(file.stem for file in wanted if not (workbench.root / file).exists())


def figures(workbench: Workbench) -> list[dict[str, Any]]:
    """A row for each system's printed figures with data, and one for all.

    Keys: system, table ("figures"), printed, one for each state of a figure, and the numbers that
    are computed at each scale.
    """
    published = papers.load(workbench.root)
    counts = {system: Counter[str]() for system in published.systems}
    for figure in published.figures:
        there = (f"computed_{at}" for at in SCALES if _there(workbench, figure, at))
        counts[figure.system].update(["printed", figure.state.replace(" ", "_"), *there])
    rows = [*counts.items(), (ALL, sum(counts.values(), Counter()))]
    return [_row(system, "figures", counted, FIGURE_COUNTS) for system, counted in rows]


def _there(workbench: Workbench, figure: PrintedFigure, scale: Scale) -> bool:
    """Return True if all that a figure is drawn from has been made."""
    target = workbench.targets(scale).get((figure.system, figure.item))
    if not isinstance(target, FigureTarget):
        return False
    runs = (find_run(workbench.root, run) for run in target.runs)
    return are_inputs_made(workbench, target) and all(run.state == "finished" for run in runs)


def are_inputs_made(workbench: Workbench, target: FigureTarget) -> bool:
    """Return True if the files beside runs that a figure is drawn from exist."""
    files = [*target.analyses, *([target.study] if target.study else [])]
    for name in target.figure.shared_out(target.scale):
        setting = workbench.setting(f"{target.system}/{name}")
        files.append(setting.partition_path(target.seeds[0]).with_suffix(".json"))
    return all((workbench.root / path).exists() for path in files)


def count(readings: Readings) -> dict[tuple[str, str], Counter[str]]:
    """Counts by (system, item); tables that are not computed have targets only."""
    workbench, published, computed_tables = readings.workbench, readings.published, readings.tables
    counts = {key: Counter(printed=len(cells)) for key, cells in published.tables.items()}
    targets = workbench.targets("paper")
    for key, target in targets.items():
        if isinstance(target, ComputedTarget):
            for counted_cell in computed.compute(workbench, target, published):
                counts[key].update(counts_of(counted_cell.value is not None, counted_cell.verdict))
        if not isinstance(target, TableTarget):
            continue
        # A part of a table whose other cells need no runs counts as that table.
        printed_key = key[0], papers.split_part(key[1])[0]
        owner = printed_key if isinstance(targets.get(printed_key), ComputedTarget) else key
        if key in computed_tables:
            first = first_answers(computed_tables[key].cells)
            answers = [count_of(cell) for cell in first if cell.answered]
        else:
            own = (cell for cell in target.cells if not workbench.surrogate_for(cell.setting))
            printed = (tables.printed_cell(target, cell, published) for cell in own)
            answers = [counts_of(False, None) for _ in {cell.name for cell in printed if cell}]
        counted = counts.setdefault(owner, Counter())
        for each_counts in answers:
            counted.update(each_counts)
        if owner not in published.tables:  # another reading of a part of a printed table
            counted["printed"] = len(answers)
    return counts


def count_released(readings: Readings) -> dict[str, Counter[str]]:
    """Counts of the released reading, by system."""
    asked: dict[tuple[str, str, Name], None] = {}
    for (system, item), table in readings.tables.items():
        target = readings.workbench.table(system, item, "paper")
        if target.table.diagnostic:
            continue
        for wanted, cell in zip(target.cells, table.cells, strict=True):
            if cell.answered and released_in(readings.workbench, wanted):
                asked[system, str(table.published_table), cell.answered.name] = None
    counts: dict[str, Counter[str]] = {}
    for system, published_table, name in asked:
        both = readings.by_table.get((system, published_table), {}).get(name)
        ours = both.released.cell if both and both.released else None
        counted = counts_of(ours is not None, ours.verdict if ours else None)
        counts.setdefault(system, Counter()).update(printed=1, **counted)
    return counts


def count_any(readings: Readings) -> dict[str, Counter[str]]:
    """Printed cells with a target in any table, each once, and those with a number; by system."""
    has_value: dict[tuple[str, ...], bool] = {}
    for (system, _), table in readings.tables.items():
        for cell in table.cells:
            if cell.answered:
                name = system, str(table.published_table), *cell.answered.name
                has_value[name] = has_value.get(name, False) or cell.result.n > 0
    for (system, _), target in readings.workbench.targets("paper").items():
        if isinstance(target, ComputedTarget):
            for counted_cell in computed.compute(readings.workbench, target, readings.published):
                name = system, counted_cell.printed.table, *counted_cell.printed.name
                has_value[name] = has_value.get(name, False) or counted_cell.value is not None
    counts = {system: Counter[str]() for system in readings.published.systems}
    for (system, *_), there in has_value.items():
        counts[system].update(printed=1, **counts_of(there, None))
    return counts


def first_answers(cells: Iterable[TableCell]) -> list[TableCell]:
    """The first of the cells that answer the same printed cell, with data of one kind; all others.

    Further readings of a printed cell must not count again.
    """
    first: dict[object, TableCell] = {}
    for cell in cells:
        name = (cell.printed.name, cell.surrogate_for) if cell.printed else id(cell)
        first.setdefault(name, cell)
    return [*first.values()]


def count_of(cell: TableCell) -> dict[str, int]:
    """The counts of a cell of a table."""
    return counts_of(cell.result.n > 0, cell.verdict)


def counts_of(has_value: bool, verdict: Verdict | None) -> dict[str, int]:
    """The counts of one printed cell with a target.

    Without a number of ours it is not computed, though its verdict may say why not.
    """
    counts = {"targets": 1, "computed": int(has_value)}
    if verdict is None or not has_value:
        return counts
    names = ARITHMETIC if verdict.basis == "arithmetic" else TRAINED
    return counts | {names[verdict.word]: 1}


def rows_of(
    counts: Mapping[tuple[str, str], Counter[str]],
    published: Published,
    readings: Mapping[str, Mapping[str, Counter[str]]],
) -> list[dict[str, Any]]:
    """The counts with their sums, as rows; ``readings`` by their name and system.

    Further readings of printed tables, such as table_2_3_released, follow a system's tables; sums
    leave them out, as they would count cells twice.
    """
    rows = []
    everything = {name: Counter[str]() for name in (ALL, *readings)}
    for system in published.systems:
        owned = [item for owner, item in published.tables if owner == system]
        printed = {item: counts[system, item] for item in owned if counts[system, item]["printed"]}
        again = sorted(counts.keys() - published.tables.keys())
        further = {item: counts[owner, item] for owner, item in again if owner == system}
        sums = {ALL: sum(printed.values(), Counter())}
        sums |= {name: by[system] for name, by in readings.items() if system in by}
        for name, counted in sums.items():
            everything[name] += counted
        parts = (printed, further, sums)
        rows += [_row(system, table, counted) for part in parts for table, counted in part.items()]
    return rows + [_row(ALL, name, counted) for name, counted in everything.items()]


def _row(
    system: str, table: str, counted: Counter[str], names: Iterable[str] = COUNTS
) -> dict[str, Any]:
    return {"system": system, "table": table} | {name: counted[name] for name in names}
