"""Whatever the measure, the better run is the better one.

The loss of a made-up run falls as its accuracy rises, so everything that selects, counts or frames
must name the same runs by either.
"""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from fedrepro.config.loading import load
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import search, tables
from fedrepro.report.cells.cell import best_of
from fedrepro.report.pages.compare import compare_pages
from fedrepro.report.pages.figure import figure_page
from fedrepro.report.papers import published
from support.places import ROOT
from support.report_world import copy_inputs, write_run
from support.search_world import settle

METHODS = {"poor": (0.5, 0.6), "best": (0.9, 0.8), "fair": (0.7, 0.7)}
GRID = {"poor": 0.0, "best": 0.1, "fair": 1.0}


def bench_of(root: Path, metric: str) -> Workbench:
    """A table, a heat map and a search over the same three variants of FedProx."""
    copy_inputs(root)
    columns = [{"label": name, "method": name} for name in METHODS]
    table = {
        "title": "A table",
        "metric": metric,
        "rows": [{"label": "S", "setting": "s"}],
        "columns": [*columns, {"label": "one of them", "method": list(METHODS)}],
    }
    heat = {
        "kind": "heat_map",
        "title": "Heat",
        "setting": "s",
        "metric": metric,
        "x": {"label": "mu", "values": [1, 2]},
        "y": {"label": "nu", "values": [1, 2]},
        "panels": [{"label": "P", "methods": [["poor", "fair"], ["best", "poor"]]}],
    }
    trend = {
        "kind": "trend",
        "title": "Trend",
        "metric": metric,
        "lines": list(METHODS),
        "panels": [
            {
                "label": "P",
                "x": "mu",
                "points": [{"at": 1, "setting": "s", "demo": "s", "methods": list(METHODS)}],
            }
        ],
    }
    bars = {
        "kind": "bars",
        "title": "Bars",
        "metric": metric,
        "rows": [{"label": "S", "setting": "s"}],
        "columns": columns,
    }
    methods = {name: {"variant_of": "fedprox", "mu": mu + 2} for name, mu in GRID.items()}
    settle(
        root,
        {"metric": metric, "methods": [{"method": "fedprox", "grid": {"mu": [*GRID.values()]}}]},
        tables={"table_1": table},
        figures={"heat": heat, "trend": trend, "bars": bars},
        methods={**methods, "fedprox": {"mu": 1.0}},
        seeds={"demo": [1, 2], "paper": [1, 2]},
    )
    return load(root)


def write(bench: Workbench, run: Any, accuracy: float) -> None:
    kept = {
        "validation_accuracy": [0.5, accuracy],
        "validation_loss": [1.0, -math.log(accuracy)],
    }
    write_run(bench, run, [0.5, accuracy], more=kept)


@pytest.fixture(params=["accuracy", "loss"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Workbench:
    bench = bench_of(tmp_path, request.param)
    for run in bench.table("own", "table_1").runs:
        write(bench, run, METHODS[run.method][run.seed - 1])
    return bench


def test_a_cell_of_several_methods_shows_the_best(bench: Workbench) -> None:
    target = bench.table("own", "table_1")
    *_, cell = tables.compute(bench, target, published.Published()).cells
    assert cell.result.chosen == "best" and set(cell.result.tried) == set(METHODS)


def test_the_better_method_wins(bench: Workbench) -> None:
    table = tables.compute(bench, bench.table("own", "table_1"), published.Published())
    pages = compare_pages(bench, {("own", "table_1"): table})
    won = {
        (name, each.other): each.won("paper")
        for name, page in pages.items()
        for each in page["rivalries"]
        if {name, each.other} <= {*METHODS}
    }
    better = ["best", "fair", "poor"]
    assert won == {
        (one, other): int(better.index(one) < better.index(other))
        for one in better
        for other in better
        if one != other
    }


def test_a_heat_map_frames_the_best_cell(bench: Workbench) -> None:
    target = bench.target("own", "heat")
    assert isinstance(target, FigureTarget)
    (panel,) = figure_page(bench, target, published.load(bench.root))["drawn"].panels
    cells = re.findall(r'<path d="(M[^"]*z)" fill="var\(--surface-high\)"', panel.svg)
    frames = re.findall(r'<path d="(M[^"]*z)" fill="none"', panel.svg)
    assert len(cells) == 4 and frames == [cells[2]]


@pytest.mark.parametrize("item", ["trend", "bars"])
def test_numbers_behind_a_figure_are_in_their_columns(bench: Workbench, item: str) -> None:
    target = bench.target("own", item)
    assert isinstance(target, FigureTarget)
    drawn = figure_page(bench, target, published.load(bench.root))["drawn"]
    loss = target.figure.metric.name == "loss"
    for row in drawn.rows:
        line = dict(zip(drawn.header, row, strict=True))
        ends = [-math.log(end) if loss else 100 * end for end in METHODS[line["Method"]]]
        wanted = sum(ends) / 2, min(ends), max(ends)
        found = (line["Mean"], line["Lowest"], line["Highest"])
        assert found == tuple(f"{each:.2f}" for each in wanted)
        assert line["Seeds"] == "2"
    assert len(drawn.rows) == len(METHODS)


@pytest.mark.parametrize("better", ["more", "less"])
def test_a_claimed_effect_is_over_the_best_rival(better: str) -> None:
    papers = published.load(ROOT)
    seen = 0
    for cell in papers.cells:
        system = papers.systems[cell.system]
        plain = not any(name.startswith("+") for name in system.proposes)
        if cell.kind.better != better or cell.method not in system.proposes or not plain:
            continue
        rivals = [
            each.mean
            for each in papers.cells
            if each.row == cell.row and each.mean is not None
            and each.method not in {*system.proposes, *system.references}
        ]  # fmt: skip
        if cell.mean is None or len(set(rivals)) < 2:
            continue
        best = min(rivals) if better == "less" else max(rivals)
        assert papers.effect(cell) == pytest.approx(abs(cell.mean - best))
        seen += 1
        if seen == 5:
            return
    assert seen


def test_equal_cells_are_framed_alike_and_empty_ones_never() -> None:
    values = {(0, 0): 1.0, (1, 0): 2.0, (1, 1): 1.0}
    assert best_of(values, higher_is_better=False) == {(0, 0), (1, 1)}
    assert best_of(values, higher_is_better=True) == {(1, 0)}
    assert best_of({}, higher_is_better=True) == set()


def test_a_search_selects_the_best(bench: Workbench) -> None:
    target = bench.search("own", "grid", "demo")
    for run in target.runs:
        name = next(name for name, mu in GRID.items() if run.method == f"fedprox_mu{mu}")
        write(bench, run, METHODS[name][run.seed - 1])
    (found,) = search.compute(bench, target)
    selected = [found.tried[place or 0].candidate.values["mu"]
                for place in (found.selected, found.test_selected)]  # fmt: skip
    assert selected == [GRID["best"]] * 2
