"""Compute a table's cells from its runs, and write them as JSON (their types are in `cell.py`)."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fedrepro.config.metrics import MetricKind
from fedrepro.config.tables import ColumnOfTable, Summary, full_name
from fedrepro.config.targets import Cell, RunKey, TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.measures.base import Quantity
from fedrepro.provenance.identity import (
    Difference,
    Identity,
    class_of,
    in_words,
    made_on,
    may_average,
    other_numbers,
)
from fedrepro.report.cells.cell import (
    NOT_RUN,
    CellRun,
    ComputedTable,
    Result,
    TableCell,
    TableColumn,
    TableRow,
    cut,
    fewer,
    last,
    seeds_in_words,
    series_of,
)
from fedrepro.report.cells.cell_verdict import (
    Spreads,
    borrowed_spreads,
    other_unit,
    paired_spreads,
    verdict_of,
)
from fedrepro.report.cells.readings import Readings
from fedrepro.report.papers.estimate import Estimate
from fedrepro.report.papers.published import PrintedCell, Published, load
from fedrepro.report.papers.verdict import Verdict
from fedrepro.run.replayed import identity_of_record
from fedrepro.run.results import RunRecord, find_run, seals_of
from fedrepro.run.standing import differences_now
from fedrepro.support import checksummed_json
from fedrepro.support.grouping import grouped
from fedrepro.support.scoped_cache import ScopedCache, read_once

_computed = ScopedCache[tuple[str, str, str], ComputedTable]()
_compared = ScopedCache[tuple[Path, RunKey], tuple[list[Difference], str]]()


def compute(workbench: Workbench, target: TableTarget, published: Published) -> ComputedTable:
    """Compute all cells of a table at a scale. Runs that are missing are holes, not errors.

    Raises:
        UserError: if a run's files are damaged or a printed cell is named ambiguously.
    """
    key = target.system, target.item, target.scale
    return _computed.of(key, lambda: _compute(workbench, target, published))


def compute_all(workbench: Workbench) -> Readings:
    """All tables beside the printed cells, each at scale paper or compact, computed afresh.

    Raises:
        UserError: as :func:`compute`.
    """
    published = load(workbench.root)
    targets = workbench.tables("paper").items()
    computed = {key: compute(workbench, target, published) for key, target in targets}
    return Readings(workbench, published, computed)


def _compute(workbench: Workbench, target: TableTarget, published: Published) -> ComputedTable:
    table = target.table
    # At scale demo the cells that are judged are those of scale paper; else they are the same.
    judged = workbench.table(target.system, target.item, "paper")
    rows = []
    for row in table.rows:
        quantity = table.metric_of(row).quantity
        setting = full_name(target.system, row.setting)
        demo = full_name(target.system, row.demo) if row.demo else None
        rows.append(TableRow(row.label, quantity.words, quantity.unit, setting, demo))
    results = [
        _results(workbench, cell, judged_cell)
        for cell, judged_cell in zip(target.cells, judged.cells, strict=True)
    ]
    printed = [printed_cell(target, cell, published) for cell in target.cells]
    ours = [result for result, _ in results]
    paired = paired_spreads(workbench, printed, ours, published)
    borrowed = borrowed_spreads(workbench, target, printed, ours)
    spreads = [(paired.get(index), borrowed.get(index)) for index in range(len(ours))]
    beside = zip(printed, results, spreads, strict=True)
    return ComputedTable(
        system=target.system,
        item=target.item,
        scale=target.scale,
        title=table.title,
        published_table=table.published.table if table.published else None,
        summary=table.summary,
        rows=tuple(rows),
        columns=tuple(map(_column, table.columns)),
        cells=tuple(
            _cell(workbench, target, published, index, *each) for index, each in enumerate(beside)
        ),
    )


def _column(column: ColumnOfTable) -> TableColumn:
    quantity = column.metric.quantity if column.metric else None
    return TableColumn(column.label, *((quantity.words, quantity.unit) if quantity else ()))


def write(
    workbench: Workbench, target: TableTarget, published: Published, definition: str = ""
) -> Path:
    """Compute a table and write ``results/tables/<scale>/<system>/<item>.json``.

    Args:
        definition: the hash of its definition, which the workflow asks the file for; "": none.
    """
    runs = {*target.runs, *workbench.table(target.system, target.item, "paper").runs}
    with read_once():
        seals = seals_of(workbench.root, sorted(runs, key=lambda run: run.name))
        content = compute(workbench, target, published).as_values()
    content |= {"of": seals} | ({"definition": definition} if definition else {})
    content["lacks"] = sorted({run.name for run in target.runs} - seals.keys())
    what = checksummed_json.of_results(target.path)
    checksummed_json.write(workbench.root / target.path, content, what)
    return target.path


def printed_cell(target: TableTarget, cell: Cell, published: Published) -> PrintedCell | None:
    """The printed cell that a cell of an experiment file answers, if it names one."""
    if target.table.published is None or cell.column.published is None or not cell.row.published:
        return None
    named = cell.column.published
    of_column = {"method": named} if isinstance(named, str) else named
    wanted = {**cell.row.published, **of_column}
    if "method" in of_column:
        wanted["method"] = of_column["method"] + cell.row.published.get("method", "")
    return published.find(target.system, target.table.published.table, wanted)


def _results(workbench: Workbench, cell: Cell, judged_cell: Cell) -> tuple[Result, Result | None]:
    """The result in the row's own setting, which is judged, and that in its demo setting, if any.

    Without a demo setting, the seeds of scale paper count beside the cell's own.

    Args:
        cell: at the scale of the table.
        judged_cell: the same at scale paper.
    """
    if (cell.setting, cell.methods) != (judged_cell.setting, judged_cell.methods):
        return result_in(workbench, judged_cell), result_in(workbench, cell)
    seeds = tuple(sorted({*cell.seeds, *judged_cell.seeds}))
    return result_in(workbench, replace(judged_cell, seeds=seeds)), None


def _cell(
    workbench: Workbench,
    target: TableTarget,
    published: Published,
    index: int,
    printed: PrintedCell | None,
    results: tuple[Result, Result | None],
    spreads: Spreads,
) -> TableCell:
    cell, (result, demo) = target.cells[index], results
    other_kind = cell.metric.quantity.incomparable
    other_data = workbench.surrogate_for(result.setting) or ""
    incomparable = f"Trained on a surrogate for {other_data}." if other_data else ""
    unlike = other_unit(printed, cell.metric.quantity) if printed else ""
    verdict = verdict_of(published, printed, result, spreads, other_kind or incomparable)
    if unlike and verdict:  # nor do claims, whose amounts are in the printed unit, count ours
        verdict = Verdict("not comparable", unlike)
    difference = None
    if printed and printed.mean is not None and result.mean is not None and verdict:
        difference = None if other_kind or unlike else result.mean - printed.mean
    row, column = divmod(index, len(target.table.columns))
    return TableCell(
        row=row,
        column=column,
        printed=printed.number if printed else None,
        result=result,
        demo=demo,
        selection=_selection(cell),
        difference=difference,
        verdict=verdict,
        surrogate_for=other_data,
    )


def _selection(cell: Cell) -> str:
    """The selections on test data, in words."""
    selections = [cell.metric.quantity.selection] if cell.metric.quantity.selection else []
    if len(cell.methods) > 1:
        selections.append(
            f"the best of {len(cell.methods)} methods is selected by this number itself"
        )
    return "; ".join(selections)


def result_in(workbench: Workbench, cell: Cell) -> Result:
    """The number of a cell over its seeds, in the cell's setting."""
    rounds = cell.metric.of_both
    if rounds is None:
        return _of_methods(workbench, cell, cell.methods, cell.metric)
    both = (cell.methods, cell.rivals)
    return _speed_up(*(_of_methods(workbench, cell, methods, rounds) for methods in both))


def _of_methods(
    workbench: Workbench, cell: Cell, methods: Sequence[str], metric: MetricKind
) -> Result:
    runs = {method: cell.runs(method) for method in methods}
    result = result_of(workbench, cell.setting, runs, metric.quantity, cell.summary)
    rounds = workbench.setting(cell.setting).rounds

    def counting(run: CellRun) -> CellRun:
        if run.value is not None or not metric.quantity.reaches:
            return run
        record = find_run(workbench.root, result.run_of(run))
        return replace(run, unreached=metric.unreached(record, rounds))

    return replace(result, runs=tuple(map(counting, result.runs)))


def _speed_up(own: Result, rival: Result) -> Result:
    """The ratio of the rival's rounds to ours, seed by seed, each for its best method.

    Claims also count the ratio of a run that never reached the target: the seeds in which only the
    wrapper arrives are those that it helps most.
    """
    theirs = {run.seed: run for run in rival.runs_of_the_chosen or rival.runs}
    counted = rival.counted_by_seed()

    def divided(run: CellRun) -> CellRun:
        other, mine = theirs.get(run.seed), run.counted
        both = counted[run.seed] / mine if mine and run.seed in counted else None
        if run.value is None or run.method != own.chosen:
            return replace(run, value=None, unreached=both)
        if other is None or other.value is None:
            why = other.why if other else "not run"
            return replace(run, value=None, why=f"without the wrapper {why}", unreached=both)
        changed = tuple(sorted({*run.changed, *other.changed}))
        code = run.code or other.code
        value, data = other.value / run.value, run.data or other.data
        return replace(run, value=value, changed=changed, code=code, data=data)

    runs = tuple(map(divided, own.runs))
    values = [run.value for run in runs if run.value is not None]
    ours = Estimate.of(values) if values else None
    troubles = _troubles([[run for run in runs if run.method == own.chosen]])
    return replace(own, runs=runs, **_number(ours, troubles, own.hole or NOT_RUN))


def _number(ours: Estimate | None, troubles: str, hole: str = NOT_RUN) -> dict[str, Any]:
    """The fields of a result that have its number or, without one, why it is missing."""
    if ours is None:
        missing = {"n": 0, "mean": None, "std": None, "half_width": None}
        return {**missing, "hole": troubles or hole, "trouble": ""}
    return {**asdict(ours), "hole": None, "trouble": troubles}


def result_of(
    workbench: Workbench,
    setting: str,
    runs_of: Mapping[str, Sequence[RunKey]],
    quantity: Quantity,
    summary: Summary,
) -> Result:
    """The runs of all of a cell's methods by seed, and the number of the best method."""
    methods = tuple(runs_of)
    by_method: dict[str, list[CellRun]] = {}
    estimates: dict[str, Estimate] = {}
    precisions: dict[str, str] = {}
    for method, wanted in runs_of.items():
        records = [find_run(workbench.root, run) for run in wanted]
        runs = [_run(workbench, record, quantity, summary) for record in records]
        across_machines = workbench.config.average_across
        runs = by_method[method] = _averaged_together(records, runs, across_machines)
        pairs = zip(records, runs, strict=True)
        valued = [(record, run.value) for record, run in pairs if run.value is not None]
        if valued:
            estimates[method] = _estimate(quantity, valued, summary)
            used = {record.manifest["run"].get("precision", "") for record, _ in valued}
            precisions[method] = max(used)  # "" only if no run has another one than the default
    current = {method for method in estimates if not any(run.stale for run in by_method[method])}
    if current:
        estimates = {method: estimates[method] for method in methods if method in current}
    # Means over fewer seeds are not comparable: those without a number may be the worst ones.
    most = max((estimate.n for estimate in estimates.values()), default=0)
    complete = [method for method, estimate in estimates.items() if estimate.n == most]
    values = {
        method: {run.seed: run.value for run in by_method[method] if run.value is not None}
        for method in complete
    }
    shared = set.intersection(*map(set, values.values())) if complete else set[int]()
    unequal = len(shared) < most

    def score(method: str) -> float:
        mean, own = estimates[method].mean, values[method]
        return math.fsum(own[seed] for seed in shared) / len(shared) if unequal and shared else mean

    chosen = (max if quantity.higher_is_better else min)(complete, key=score) if complete else None
    shown: Iterable[str] = [chosen] if chosen else methods
    troubles = _troubles(by_method[method] for method in shown)
    if unequal:
        of = f"seeds {', '.join(map(str, sorted(shared)))}" if shared else "seeds that differ"
        troubles = "; ".join(filter(None, (troubles, f"the best method is chosen by {of}")))
    if chosen:
        troubles = "; ".join(filter(None, (troubles, _not_of_today(by_method[chosen]))))
    every = tuple(run for runs in by_method.values() for run in runs)
    return Result(
        setting=setting,
        methods=methods,
        chosen=chosen,
        tried={method: estimate.mean for method, estimate in estimates.items()},
        runs=every,
        **_number(estimates[chosen] if chosen else None, troubles),
        precision=precisions[chosen] if chosen else "",
        apart=not chosen and any(run.state == "left out" for run in every),
    )


def _estimate(
    quantity: Quantity, valued: Sequence[tuple[RunRecord, float]], summary: Summary
) -> Estimate:
    """The number over those of a method's runs that have a value; at least one must."""
    if quantity.together is None:
        return Estimate.of([value for _, value in valued])
    records = [cut(record, summary) for record, _ in valued]
    return Estimate(len(valued), quantity.together(records), None, None)


def _compare(workbench: Workbench, record: RunRecord) -> tuple[list[Difference], str]:
    """The differences that change a run's numbers, and the machine that it was made on."""
    if not record.manifest:
        return [], ""
    differing = other_numbers(differences_now(workbench, record))
    return differing, made_on(identity_of_record(record))


def _run(workbench: Workbench, record: RunRecord, quantity: Quantity, summary: Summary) -> CellRun:
    run, series, short = record.run, series_of(record, quantity, summary), ""
    value = last(series, summary.rounds)
    differing, machine = _compared.of((record.root, run), lambda: _compare(workbench, record))
    keys = {other.key.partition(".")[0] for other in differing if other.about == "configuration"}

    def told(about: str) -> str:
        return in_words(other for other in differing if other.about == about)

    if record.state == "finished":
        ended = "; it stopped: " if record.manifest.get("stopped") else ""
        within = f" in the first {summary.up_to} rounds" if summary.up_to else ""
        without = f"{quantity.without or f'has no {quantity.words}'}{within}"
        without += f"{ended}{record.manifest.get('stopped', '')}"
        mean_of = "" if quantity.of_a_run else fewer(series, summary.rounds)
        notes = (mean_of, quantity.remark(record))
        short = without if value is None else "; ".join(filter(None, notes))
    return CellRun(
        method=run.method,
        seed=run.seed,
        state=record.state,
        why=record.why or short,
        value=value,
        reference=record.reference,
        changed=tuple(sorted(keys)),
        folder=record.folder.as_posix(),
        page=record.page.as_posix() if record.manifest and not record.landed else None,
        code=told("code"),
        data=told("data"),
        made_on=machine,
        arithmetic="" if record.reference else told("arithmetic"),
    )


def _averaged_together(
    records: Sequence[RunRecord], runs: Sequence[CellRun], across_machines: bool
) -> list[CellRun]:
    """A method's runs, without the numbers that must not be averaged with the others.

    Those of another configuration or code are left out while a seed is current. Where none is, all
    must be of one configuration and code; and all of the same data and class of arithmetic.
    """
    valued = [run for run in runs if run.value is not None]
    if not all(run.stale for run in valued):
        runs = [_left_out(run, run.stale) if run.stale else run for run in runs]
    identities = {
        run.seed: identity_of_record(record)
        for record, run in zip(records, runs, strict=True)
        if run.value is not None
    }
    same_arithmetic = len({identity.arithmetic for identity in identities.values()}) == 1
    data = {seed: identity.data.get("content_sha256") for seed, identity in identities.items()}
    apart: dict[int, str] = {}
    if not may_average(identities.values(), across_machines=across_machines):
        apart = {
            seed: f"has arithmetic {class_of(identity, across_machines=not same_arithmetic)!r}"
            for seed, identity in identities.items()
        }
    elif len({*data.values()} - {None}) > 1:
        apart = {seed: f"has data {str(sha256)[:8]}" for seed, sha256 in data.items()}
    elif all(run.stale for run in valued) and len(set(map(_but_seed, identities.values()))) > 1:
        apart = {run.seed: run.stale for run in valued}
    return [_left_out(run, apart[run.seed]) if run.seed in apart else run for run in runs]


def _but_seed(identity: Identity) -> str:
    """Configuration and code of a result, as text that is the same for all of its seeds."""
    configuration = {**identity.configuration, "seed": None}
    return json.dumps([configuration, identity.numerics], sort_keys=True)


def _left_out(run: CellRun, why: str) -> CellRun:
    """A run without its number, which is not averaged with those of its other seeds."""
    if run.value is None:
        return run
    return replace(run, state="left out", value=None, why=f"{why}: not averaged with others")


def _troubles(groups: Iterable[Sequence[CellRun]]) -> str:
    """The errors, in words, of runs that have started."""
    groups = list(groups)
    bad = [run for runs in groups for run in runs if run.why and run.state != "not run"]
    if not bad:
        return ""
    several = sum(len(runs) for runs in groups) > 1
    one_method = len(groups) == 1
    lines = []
    for run in bad:
        name = f"seed {run.seed} " if one_method else f"{run.method}, seed {run.seed}: "
        lines.append(f"{name if several else ''}{run.why}")
    return "; ".join(lines)


def _not_of_today(runs: Sequence[CellRun]) -> str:
    """The numbers that are not of today's configuration and code, and why."""
    stale = (run for run in runs if run.value is not None and not run.reference and run.stale)
    by_reason = grouped(stale, lambda run: run.stale)
    return "; ".join(
        f"{seeds_in_words([run.seed for run in group])} {why}" for why, group in by_reason.items()
    )
