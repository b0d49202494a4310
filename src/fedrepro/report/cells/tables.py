"""A table's cells from its run directories, as JSON that the pages are made of.

A cell has up to two results: ``paper`` comes from the published setting (runs of this machine, or
reference results in reports/reference) and may carry a verdict; ``demo`` comes from the setting
that stands in at scale demo and never does.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fedrepro.config.tables import Summary
from fedrepro.config.targets import Cell, Run, TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.measures import Measure, fewer, last, measure_of
from fedrepro.report.papers.estimate import Estimate
from fedrepro.report.papers.published import PrintedCell, Published
from fedrepro.report.papers.verdict import Verdict, judge
from fedrepro.run.results import RunRecord, read_run
from fedrepro.support.errors import UserError
from fedrepro.support.files import write_atomically

Json = dict[str, Any]


def compute(workbench: Workbench, target: TableTarget, published: Published) -> Json:
    """All cells of a table at a scale. Runs that are missing are holes, not errors.

    Raises:
        UserError: when a run's files are damaged, or a printed cell is named ambiguously.
    """
    table = target.table
    paper = workbench.table(target.system, target.item, "paper")
    rows, columns = list(table.rows), list(table.columns)
    cells = []
    for index, (cell, published_cell) in enumerate(zip(target.cells, paper.cells, strict=True)):
        row, column = divmod(index, len(columns))
        cells.append(
            {"row": row, "column": column}
            | _cell(workbench, target, cell, published_cell, published)
        )
    return {
        "system": target.system,
        "item": target.item,
        "scale": target.scale,
        "title": table.title,
        "published_table": table.published.table if table.published else None,
        "summary": table.summary.model_dump(),
        "rows": [
            {
                "label": row.label,
                "metric": (measure := measure_of(table.metric_of(row))).words,
                "unit": measure.unit,
                "setting": f"{target.system}/{row.setting}",
                "demo": f"{target.system}/{row.demo}" if row.demo else None,
            }
            for row in rows
        ],
        "columns": [{"label": column.label} for column in columns],
        "cells": cells,
    }


def write(workbench: Workbench, target: TableTarget, published: Published) -> Path:
    """Compute a table and write ``results/tables/<scale>/<system>/<item>.json``."""
    path = workbench.root / target.path
    text = json.dumps(
        compute(workbench, target, published), indent=1, ensure_ascii=False, allow_nan=False
    )
    with write_atomically(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    return target.path


def printed_cell(target: TableTarget, cell: Cell, published: Published) -> PrintedCell | None:
    """The printed cell that a cell of an experiment file answers, if it names one."""
    if target.table.published is None or cell.column.published is None or not cell.row.published:
        return None
    wanted = {**cell.row.published, "method": cell.column.published}
    return published.find(target.system, target.table.published.table, wanted)


def value_of(record: RunRecord, measure: Measure, rounds: int) -> float | None:
    """The mean of the last ``rounds`` evaluated rounds, in printed units; None without a number."""
    return last(measure.series(record), rounds) if record.state == "finished" else None


def _cell(
    workbench: Workbench,
    target: TableTarget,
    cell: Cell,
    paper_cell: Cell,
    published: Published,
) -> Json:
    printed = printed_cell(target, cell, published)
    stands_in = (cell.setting, cell.methods) != (paper_cell.setting, paper_cell.methods)
    demo = paper = None
    if stands_in:
        demo = _result(workbench, target, cell)
        paper = _result(workbench, target, paper_cell)
    else:
        seeds = tuple(sorted({*cell.seeds, *paper_cell.seeds}))
        paper = _result(workbench, target, replace(paper_cell, seeds=seeds))
    verdict = _verdict(published, printed, paper)
    difference = None
    if printed and printed.mean is not None and paper["n"] and verdict:
        difference = paper["mean"] - printed.mean
    return {
        "printed": _printed(printed),
        "paper": paper,
        "demo": demo,
        "difference": difference,
        "verdict": asdict(verdict) if verdict else None,
    }


def _printed(printed: PrintedCell | None) -> Json | None:
    if printed is None:
        return None
    return {
        key: getattr(printed, key)
        for key in ("dataset", "setting", "method", "metric", "mean", "std", "text", "decimals",
                    "doubt")
    }  # fmt: skip


def _result(workbench: Workbench, target: TableTarget, cell: Cell) -> Json:
    measure = measure_of(target.table.metric_of(cell.row, cell.column))
    runs = {method: cell.runs(method) for method in cell.methods}
    return result_of(workbench, cell.setting, runs, measure, target.table.summary)


def result_of(
    workbench: Workbench,
    setting: str,
    runs_of: Mapping[str, Sequence[Run]],
    measure: Measure,
    summary: Summary,
) -> Json:
    """The runs of all of a cell's methods, by seed, and the number of the best of them."""
    methods = tuple(runs_of)
    by_method = {
        method: [_run(workbench, run, measure, summary.rounds) for run in runs]
        for method, runs in runs_of.items()
    }
    estimates = {
        method: Estimate.of(values)
        for method, runs in by_method.items()
        if (values := [run["value"] for run in runs if run["value"] is not None])
    }
    best = max if measure.rising else min
    chosen = best(estimates, key=lambda method: estimates[method].mean) if estimates else None
    shown: Iterable[str] = [chosen] if chosen else methods
    troubles = _troubles(by_method[method] for method in shown)
    result: Json = {
        "setting": setting,
        "methods": list(methods),
        "chosen": chosen,
        "tried": {method: estimates[method].mean for method in estimates},
        "runs": [run for runs in by_method.values() for run in runs],
        "hole": None if chosen else troubles or "not run",
        "trouble": troubles if chosen else "",
        "n": 0,
        "mean": None,
        "std": None,
        "half_width": None,
    }
    return result | (asdict(estimates[chosen]) if chosen else {})


def _run(workbench: Workbench, run: Run, measure: Measure, rounds: int) -> Json:
    record = find_run(workbench.root, run)
    changed = _changed(workbench, record) if record.manifest else []
    value = value_of(record, measure, rounds)
    short = "" if value is None else fewer(measure.series(record), rounds)
    return {
        "method": run.method,
        "seed": run.seed,
        "state": record.state,
        "why": record.why or short,
        "value": value,
        "landed": record.landed,
        "changed": changed,
        "folder": record.folder.as_posix(),
        "page": record.page.as_posix() if record.manifest else None,
    }


def find_run(root: Path, run: Run) -> RunRecord:
    """A run of this machine, or else the committed reference result."""
    record = read_run(root, run)
    landed = record if record.manifest else read_run(root, run, landed=True)
    return landed if landed.manifest else record


def _changed(workbench: Workbench, record: RunRecord) -> list[str]:
    """Keys in which a run's configuration differs from today's."""
    run = record.run
    today = workbench.run_spec(run.setting, run.method, run.seed).description()
    then = record.manifest["run"]
    return sorted(key for key in {*today, *then} if _plain(today.get(key)) != _plain(then.get(key)))


def _plain(value: object) -> object:
    return json.loads(json.dumps(value))


def _troubles(groups: Iterable[Sequence[Mapping[str, Any]]]) -> str:
    """What is wrong, in words, with runs that were at least begun."""
    groups = list(groups)
    bad = [run for runs in groups for run in runs if run["why"] and run["state"] != "not run"]
    if not bad:
        return ""
    several = sum(len(runs) for runs in groups) > 1
    one_method = len(groups) == 1
    lines = []
    for run in bad:
        name = f"seed {run['seed']} " if one_method else f"{run['method']}, seed {run['seed']}: "
        lines.append(f"{name if several else ''}{run['why']}")
    return "; ".join(lines)


def _verdict(
    published: Published, printed: PrintedCell | None, result: Mapping[str, Any]
) -> Verdict | None:
    """None where there is nothing to compare."""
    chosen = [run for run in result["runs"] if run["method"] == result["chosen"]]
    counted = chosen if result["n"] else result["runs"]
    diverged = [run for run in counted if run["state"] == "diverged"]
    if printed is None or not (result["n"] or diverged):
        return None
    changed = sorted({key for run in chosen if run["value"] is not None for key in run["changed"]})
    # One that diverged has been run, and was not the best.
    tried = {run["method"] for run in result["runs"] if run["state"] == "diverged"}
    tried |= {*result["tried"]}
    if diverged:
        return Verdict("not comparable", f"Seed {diverged[0]['seed']} {diverged[0]['why']}.")
    if changed:
        return Verdict(
            "not comparable", f"The configuration has changed since, in {', '.join(changed)}."
        )
    if len(tried) < len(result["methods"]):
        there, wanted = len(tried), len(result["methods"])
        are = "is" if there == 1 else "are"
        return Verdict(
            "not comparable",
            f"The printed number is the best of {wanted}; {there} of them {are} run.",
        )
    ours = Estimate(result["n"], result["mean"], result["std"], result["half_width"])
    return judge(printed, ours, published.systems[printed.system].spread)


def read(root: Path, path: Path) -> Json:
    """A table's JSON.

    Raises:
        UserError: when it is not there or damaged.
    """
    try:
        found: Json = json.loads((root / path).read_text(encoding="utf-8"))
        return found
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such table yet; `fedrepro table` makes it") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: damaged: {error}; delete it and make it again") from None
