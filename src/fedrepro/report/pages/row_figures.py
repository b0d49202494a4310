"""A row's figures: learning curves side by side, and samples per client and class."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

from fedrepro.config.metrics import MetricKind
from fedrepro.config.tables import Summary
from fedrepro.config.targets import TableTarget
from fedrepro.config.values import Scale
from fedrepro.config.workbench import Workbench
from fedrepro.measures.base import Quantity
from fedrepro.report.cells.cell import Result, TableCell, until
from fedrepro.report.drawing import curves
from fedrepro.report.drawing.curves import Line, Points
from fedrepro.report.pages.figures.base import curves_of, key_of, panel_of
from fedrepro.report.pages.figures.partitions import draw_partition


def panels_of(target: TableTarget) -> list[list[tuple[int, str]]]:
    """Group columns into panels: a method and its wrapped version share one.

    Returns:
        For each panel (column, name of the line); the first is the plain method.
    """
    names = [column.methods_at("paper") for column in target.table.columns]
    plain = {methods: index for index, methods in enumerate(names)}
    wrapped: dict[int, list[tuple[int, str]]] = {}
    for index, methods in enumerate(names):
        heads = {method.partition("+")[0] for method in methods}
        rests = tuple(method.partition("+")[2] for method in methods)
        if len(heads) == 1 and rests in plain:
            wrapper = heads.pop()
            name = f"with {wrapper.upper() if len(wrapper) < 5 else wrapper}"
            wrapped.setdefault(plain[rests], []).append((index, name))
    if wrapped:
        with_wrapper = {index for pairs in wrapped.values() for index, _ in pairs}
        return [
            [(index, "alone"), *wrapped.get(index, [])]
            for index in range(len(names))
            if index not in with_wrapper
        ]
    labels = [column.label for column in target.table.columns]
    if len(labels) == 1:
        return [[(0, labels[0])]]
    return [[(0, labels[0]), (index, "this method")] for index in range(1, len(labels))]


def scene_of(
    workbench: Workbench,
    target: TableTarget,
    cells: Sequence[TableCell],
    scale: Scale,
) -> SimpleNamespace | None:
    """A row's figures, or None if nothing was run at this scale.

    Of its ``curves``, ``rounds`` says how many evaluated rounds each point is the mean of, as in
    the cells; ``cut``, whether the panels share an axis that ignores the first fifth of the
    rounds; ``raw``, whether lines of one seed have their rounds beneath.
    """
    pairs, columns = panels_of(target), target.table.columns
    both = {cell.column: cell.result if scale == "paper" else cell.demo for cell in cells}
    results = {column: result for column, result in both.items() if result}
    if not any(run.page or run.value is not None for cell in results.values() for run in cell.runs):
        return None
    setting = next(iter(results.values())).setting
    row = target.table.rows[cells[0].row]
    metric = target.table.metric_of(row)
    quantity = metric.curve.quantity
    panels: list[tuple[str, list[Line]]] = []
    seeds = 0
    for pair in pairs:
        lines = []
        for column, name in pair:
            printed = next((cell.printed for cell in cells if cell.column == column), None)
            has_level = printed and scale == "paper" and not metric.quantity.of_a_run
            level = printed.mean if printed and has_level else None
            drawn = target.table.metric_of(row, target.table.columns[column])
            # A number of a whole run is of its rounds as they are.
            summary = Summary(rounds=1) if drawn.quantity.of_a_run else target.table.summary
            found_in = partial(_series, workbench, results.get(column), summary.up_to)
            runs, drawn_lines = _lines(found_in, drawn.curve, name, level, summary.rounds)
            seeds = max(seeds, runs)
            lines += drawn_lines
        # Landed results of scale compact have clients' scores of the last round only.
        if any(len(line.points) > 1 for line in lines):
            panels.append((columns[_titled(pair)].label, lines))
    names = list(dict.fromkeys(name for pair in pairs for _, name in pair))
    marked = {line.name for _, lines in panels for line in lines} - {*names}
    names += sorted(marked)
    limits = curves.bounds([lines for _, lines in panels]) if quantity.same_axes else None
    shown = SimpleNamespace(
        panels=[
            panel_of(title, lines, quantity, setting, names=names, limits=limits)
            for title, lines in panels
        ],
        key=key_of(names),
        seeds=seeds,
        levels=any(line.level is not None for _, lines in panels for line in lines),
        rounds=1 if metric.quantity.of_a_run else target.table.summary.rounds,
        cut=limits is not None,
        raw=any(line.raw for _, lines in panels for line in lines),
    )
    return SimpleNamespace(
        setting=setting,
        metric=quantity.words,
        curves=shown if panels else None,
        heat_map=_heat_map(workbench, setting, results),
    )


def _series(
    workbench: Workbench, result: Result | None, up_to: int | None, quantity: Quantity
) -> list[Points]:
    """The rounds of each run that cells can take."""
    return [until(list(points), up_to) for points in curves_of(workbench.root, result, quantity)]


def _lines(
    found_in: Callable[[Quantity], list[Points]],
    metric: MetricKind,
    name: str,
    level: float | None,
    rounds: int,
) -> tuple[int, list[Line]]:
    """The number of runs, and the curve of a cell's metric: of the number that cells would take.

    A mixture of clients' models that was chosen after the last round has one number, not a curve:
    it is a mark beside the curve at the method's own mixture.
    """
    runs = found_in(metric.quantity)
    fixed = metric.at_mix("fixed")
    line = _line(name, runs, rounds, level)
    if line is None or len(line.points) > 1 or fixed == metric:
        return len(runs), [line] if line else []
    curve, mixture = _line(name, found_in(fixed.quantity), rounds), metric.quantity.mixture
    return len(runs), [*([curve] if curve else []), replace(line, name=f"{name}, {mixture}")]


def _line(
    name: str, runs: Sequence[Points], rounds: int, level: float | None = None
) -> Line | None:
    """The mean of the last rounds after each round, as on a run's page; several seeds with a band.

    The mean of seeds is taken last, because the band is of the seeds' numbers.
    """
    if len(runs) == 1:
        line = curves.average(name, runs, level)
        return curves.smoothed(line, rounds) if line else None
    return curves.average(name, [curves.averaged(points, rounds) for points in runs], level)


def _titled(pair: Sequence[tuple[int, str]]) -> int:
    """The column that names a panel: the plain method, or the one compared with the first."""
    return pair[0][0] if pair[0][1] == "alone" else pair[-1][0]


def _heat_map(
    workbench: Workbench, setting: str, results: Mapping[int, Result]
) -> SimpleNamespace | None:
    """The partition of the first seed that was run, if its histogram exists."""
    runs = (run for result in results.values() for run in result.runs)
    seeds, its = sorted({run.seed for run in runs if run.page}), workbench.setting(setting)
    paths = (its.partition_path(seed).with_suffix(".json") for seed in seeds)
    return next(filter(None, (draw_partition(workbench.root, path) for path in paths)), None)
