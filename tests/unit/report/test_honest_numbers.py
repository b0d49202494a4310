"""Numbers of reports that look like another: of other rounds, seeds, units or digits."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.measures.clients import STATISTICS
from fedrepro.report.cells import tables
from fedrepro.report.cells.cell import ComputedTable, comparable
from fedrepro.report.cells.league import league_of
from fedrepro.report.cells.search import on_validation
from fedrepro.report.pages.downloads import as_csv, in_latex
from fedrepro.report.pages.figures import bars, heat_map, lines, trend
from fedrepro.report.pages.table import texts_of
from fedrepro.report.papers import published
from fedrepro.report.papers.published import Published
from fedrepro.run.results import find_run
from fedrepro.support.printing import decimals_for
from support.refusals import refused
from support.report_world import copy_inputs, write_run
from support.search_world import EXPERIMENT, settle

SETTING = {**EXPERIMENT["settings"]["s"], "rounds": 6}
COLUMNS = [{"label": "A", "method": "fedavg"}, {"label": "P", "method": "fedprox"}]
RISING = [0.1, 0.3, 0.5, 0.55, 0.7, 0.8]
TOP = """
from fedrepro.measures.base import Measure
class Top(Measure):
    words, unit, per, higher_is_better = "top", "%", "run", True
    def of_run(self, record):
        return max(record.rounds["test_accuracy"])
"""
TINY = TOP.replace('"%"', '""').replace("max(", "1e-5 * max(")
BROKEN = TOP.replace("test_accuracy", "nothing")


def bench_of(
    root: Path, rows: Sequence[Mapping[str, Any]] = ({},), columns: Sequence[Any] = (), **more: Any
) -> Workbench:
    """A workbench with one table ``t``, at scale paper and with three seeds."""
    table = {
        "title": "T",
        "rows": [{"label": f"row {at}", "setting": "s", **row} for at, row in enumerate(rows)],
        "columns": [*(columns or COLUMNS)],
        **more.pop("table", {}),
    }
    compact = more.pop("compact", None)
    seeds = {"demo": [1], "compact": [1, 2, 3, 4, 5], "paper": [1, 2, 3]}
    settle(root, settings={"s": SETTING}, search={}, seeds=seeds, tables={"t": table}, **more)
    config = root / "config/config.yaml"
    about = yaml.safe_load(config.read_text(encoding="utf-8"))
    about |= {"scale": "paper", "plugins": {"measures": "measures"}}
    config.write_text(yaml.safe_dump(about), encoding="utf-8")
    (root / "measures").mkdir(exist_ok=True)
    for name, text in {"top": TOP, "tiny": TINY, "broken": BROKEN}.items():
        (root / f"measures/{name}.py").write_text(text, encoding="utf-8")
    if compact:
        (root / "config/compact").mkdir(exist_ok=True)
        (root / "config/compact/own.yaml").write_text(yaml.safe_dump(compact), encoding="utf-8")
    return load(root)


def give(bench: Workbench, method: str, *curves: Sequence[float], **about: Any) -> None:
    """A run of each seed with these accuracies."""
    for seed, curve in enumerate(curves, 1):
        write_run(bench, RunKey("own/s", method, seed), [*curve], **about)


def computed(bench: Workbench, papers: Published | None = None) -> ComputedTable:
    return tables.compute(bench, bench.table("own", "t", "paper"), papers or Published())


WHOLE = [
    {"metric": {"reached_in_steps_of": 5}},
    {"metric": {"least": "loss"}},
    {"metric": "top"},
    {"metric": {"rounds_to": 60}},
]


def test_a_number_of_a_whole_run_is_of_the_rounds_that_the_table_takes(tmp_path: Path) -> None:
    """They had none, or were of all rounds of those seeds whose best one was early enough."""
    bench = bench_of(tmp_path, WHOLE, COLUMNS[:1], table={"summary": {"rounds": 2, "up_to": 4}})
    give(bench, "fedavg", RISING, RISING, [0.1, 0.3, 0.65, 0.55, 0.7, 0.9])
    reached, least, top, to = (cell.result for cell in computed(bench).cells)
    assert (reached.n, reached.mean) == (3, 55.0)
    runs = [find_run(tmp_path, RunKey("own/s", "fedavg", seed)) for seed in (1, 2, 3)]
    losses = [run.rounds["test_loss"] for run in runs]
    means = [sum(each[at] for each in losses) / 3 for at in range(4)]
    assert least.mean == pytest.approx(min(means)) and least.n == 3
    assert top.mean == pytest.approx((55 + 55 + 65) / 3)
    assert (to.n, to.mean) == (1, 3.0)
    # A number of a whole run is a mean of no rounds.
    assert reached.trouble == least.trouble == top.trouble == ""


def test_the_best_of_a_row_has_as_many_seeds_as_the_others(tmp_path: Path) -> None:
    """A method that diverges, or misses the target, with its worst seeds was the best."""
    columns = [*COLUMNS, {"label": "N", "method": "fednova"}]
    columns.append({"label": "The best", "method": ["fednova", "fedavg"]})
    figures = {
        "fb": {"kind": "bars", "title": "B", "rows": [{"label": "r", "setting": "s"}]},
        "fl": {"kind": "lines", "title": "L", "rows": [{"label": "r", "setting": "s"}]},
    }
    figures = {name: each | {"columns": columns[:3]} for name, each in figures.items()}
    grid = {"label": "g", "methods": [["fedavg", "fednova"]]}
    axes = {"x": {"label": "mu", "values": [1, 2]}, "y": {"label": "e", "values": [1]}}
    figures["fh"] = {"kind": "heat_map", "title": "H", "setting": "s", "panels": [grid], **axes}
    point = {"at": 1, "setting": "s", "methods": ["fedavg", "fednova"]}
    panel = {"label": "p", "x": "alpha", "points": [point]}
    figures["ft"] = {"kind": "trend", "title": "T", "lines": ["A", "N"], "panels": [panel]}
    bench = bench_of(tmp_path, [{}, {"metric": {"rounds_to": 60}}], columns, figures=figures)
    give(bench, "fedavg", RISING, RISING, RISING)
    give(bench, "fedprox", [0.6] * 6, [0.5] * 6, [0.5] * 6)
    give(bench, "fednova", [0.99] * 6, [0.98] * 6)
    write_run(bench, RunKey("own/s", "fednova", 3), [0.1], status="diverged")
    table = computed(bench)
    assert [cell.result.n for cell in table.cells] == [3, 3, 2, 3, 3, 1, 2, 3]
    assert table.cells[3].result.chosen == table.cells[7].result.chosen == "fedavg"
    latex = texts_of(bench.table("own", "t", "paper"), table, Published())[".tex"]
    assert r"row 0, \% & \textbf{80.00" in latex and "98.50" in latex
    assert r"\textbf{98.50" not in latex and r"\textbf{1.00" not in latex
    assert latex.count("(2/3)") == 3 and latex.count("(1/3)") == 1  # and what it means
    drawing = {"fb": bars, "fl": lines, "fh": heat_map, "ft": trend}
    for name, kind in drawing.items():
        target: Any = bench.target("own", name, "paper")
        sees = kind.draw(bench, target, target.figure).sees
        assert "N is best" not in sees and "2 is best" not in sees and "98.50" not in sees


def test_a_column_with_its_own_metric_says_so_in_every_file(tmp_path: Path) -> None:
    """Rounds stood as a percentage of accuracy in CSV and LaTeX."""
    own = {"label": "R", "method": "fedprox", "metric": {"rounds_to": 50}}
    bench = bench_of(tmp_path, [{}], [*COLUMNS[:1], own])
    give(bench, "fedavg", RISING, RISING, RISING)
    give(bench, "fedprox", RISING, RISING, RISING)
    table = computed(bench)
    first, second = csv.DictReader(io.StringIO(as_csv(table)))
    assert (first["metric"], first["unit"]) == ("accuracy", "%")
    assert (second["metric"], second["unit"]) == ("rounds until the accuracy is 50 %", "rounds")
    latex = texts_of(bench.table("own", "t", "paper"), table, Published())[".tex"]
    assert r"R: rounds until the accuracy is 50 \%, rounds" in latex
    assert r"row 0, \% & 80.00 $\pm$ 0.00 & 3.00 $\pm$ 0.00 \\" in latex  # nothing is printed


def test_small_numbers_can_be_told_apart(tmp_path: Path) -> None:
    """All were 0.00, and all were the best."""
    bench = bench_of(tmp_path, [{"metric": "tiny"}])
    give(bench, "fedavg", RISING, RISING, RISING)
    give(bench, "fedprox", [0.5] * 6, [0.5] * 6, [0.5] * 6)
    latex = texts_of(bench.table("own", "t", "paper"), computed(bench), Published())[".tex"]
    assert r"row 0 & \textbf{0.00000800 $\pm$ 0.00000000} & 0.00000500" in latex
    assert [decimals_for(each) for each in ([], [None, 0.0], [1e-16], [0.1], [-5.0, 1e-5])] == [
        2
    ] * 5
    assert [decimals_for(each) for each in ([0.05], [-0.0012, 0.0])] == [4, 5]


def test_latex_takes_no_label_for_the_option_of_a_line_break() -> None:
    assert in_latex("[0.1] *") == "{[}0.1] {*}"
    assert in_latex("a<b>|") == r"a\textless{}b\textgreater{}\textbar{}"


@pytest.mark.parametrize("metric", [{"rounds_to": 60, "speed_up": True}, {"least": "loss"}])
def test_a_row_of_the_league_has_a_number_of_each_run(tmp_path: Path, metric: Any) -> None:
    """A speed-up ranked the reader's method by its rounds, among ratios."""
    row = {"label": "r", "setting": "s", "league": "g", "wrapper": "ima", "metric": metric}
    table = {"title": "C", "rows": [row], "columns": COLUMNS}
    with refused("value", key="tables.c.rows.r.league"):
        bench_of(tmp_path, compact={"tables": {"c": table}})


def test_the_league_ranks_no_column_of_another_number(tmp_path: Path) -> None:
    columns = [
        {"label": "FedAvg", "method": "fedavg"},
        *COLUMNS[1:],
        {"label": "R", "method": "fedprox", "metric": {"rounds_to": 50}},
    ]
    rows = [{"label": "r", "setting": "s", "league": "g"}]
    own = {"title": "D", "rows": rows, "columns": columns, "seeds": {"compact": [2, 3]}}
    both = {"c": {"title": "C", "rows": rows, "columns": columns}, "d": own}
    bench = bench_of(tmp_path, compact={"tables": both})
    give(bench, "fedavg", *[RISING] * 5)
    give(bench, "fedprox", *[[*RISING[:5], 0.9]] * 5)
    targets = {("own", item): bench.table("own", item, "compact") for item in both}
    made = {key: tables.compute(bench, each, Published()) for key, each in targets.items()}
    first, second = league_of(bench, made).played
    assert first.ranks == second.ranks == {"P": 1.0, "FedAvg": 2.0}
    assert [*first.left_out] == ["R"]
    assert second.seeds == (2, 3)  # those that its table has


@pytest.mark.parametrize("metric", [{"megabytes_to": 60}, {"reached_in_steps_of": 5}])
def test_a_choice_on_validation_samples_reads_no_test_score(tmp_path: Path, metric: Any) -> None:
    """The first was a traceback, the second read test scores."""
    bench = bench_of(tmp_path, [{"metric": metric}])
    kept = {"validation_accuracy": [0.1, 0.2, 0.3, 0.4, 0.5, 0.65], "validation_loss": [1.0] * 6}
    give(bench, "fedavg", RISING, more=kept)
    cell = bench.table("own", "t", "paper").cells[0]
    runs = {"fedavg": cell.runs("fedavg")[:1]}
    quantity = on_validation(cell.metric.quantity)
    result = tables.result_of(bench, "own/s", runs, quantity, cell.summary)
    assert result.mean == (12.0 if "megabytes_to" in metric else 65.0)


def test_a_measure_of_a_run_that_fails_is_named_in_one_line(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, [{"metric": "broken"}])
    give(bench, "fedavg", RISING)
    with refused(key="of_run"):
        computed(bench)


def test_two_columns_or_lines_with_one_label_are_refused(tmp_path: Path) -> None:
    """A sentence, a page and a rank had the last one's number under the name of both."""
    twice = [*COLUMNS, {"label": "A", "method": "fednova"}]
    with refused("value", key="tables.t.columns"):
        bench_of(tmp_path, [{}], twice)
    point = {"at": 1, "setting": "s", "methods": ["fedavg", "fedprox"]}
    panel = {"label": "p", "x": "alpha", "points": [point]}
    figure = {"kind": "trend", "title": "T", "lines": ["A", "A"], "panels": [panel]}
    with refused("value", key="figures.f.lines"):
        bench_of(tmp_path, figures={"f": figure})


@pytest.mark.parametrize("metric", ["top", {"rounds_to": 60}])
def test_a_number_of_a_whole_run_has_no_learning_curve(tmp_path: Path, metric: Any) -> None:
    """Of the rounds until a target only one seed's was drawn."""
    rows = [{"label": "r", "setting": "s", "metric": metric}]
    figure = {"kind": "lines", "title": "L", "rows": rows, "columns": COLUMNS}
    with refused("value", key="figures.f.rows.r.metric"):
        bench_of(tmp_path, figures={"f": figure})


def test_a_printed_number_is_read_in_its_unit_and_digits(tmp_path: Path) -> None:
    """84 % differed from a printed .85 by 83.15; 3.3e-1 was taken for a number without decimals."""
    printed = {"dataset": "D", "setting": "x", "metric": "acc"}
    rows = [{"published": printed}, {"metric": "loss", "published": {**printed, "metric": "loss"}}]
    columns = [{"label": "A", "method": "fedavg", "published": "FedAvg"}]
    bench = bench_of(tmp_path, rows, columns, table={"published": {"table": "1"}})
    copy_inputs(tmp_path)
    folder = tmp_path / "reports/papers/own"
    folder.mkdir()
    spread, metrics = "{ over: none, source: s }", "{ acc: { unit: fraction }, loss: {} }"
    (folder / "paper.yaml").write_text(
        f"name: O\ntitle: O\nchanges: x\npaper: P\nspread: {spread}\nmetrics: {metrics}\n"
    )
    head = "item,table,dataset,setting,method,metric,mean,std,doubt\n"
    cells = "t,1,D,x,FedAvg,acc,0.85,,\nt,1,D,x,FedAvg,loss,3.3E-1,,\n"
    (folder / "cells.csv").write_text(head + cells)
    with (tmp_path / "reports/papers/systems.yaml").open("a", encoding="utf-8") as file:
        file.write("- own\n")
    give(bench, "fedavg", *([*RISING[:5], end] for end in (0.83, 0.84, 0.85)))
    share, loss = computed(bench, published.load(tmp_path)).cells
    assert share.verdict and share.verdict.word == "not comparable" and share.difference is None
    assert loss.verdict and loss.verdict.word == "differs"
    assert loss.printed and loss.printed.decimals == 2


def test_a_gini_coefficient_of_values_below_0_is_none() -> None:
    """Those of R² cancelled, and were called equal."""
    gini = STATISTICS["gini"]
    assert np.isnan(gini.of(np.array([0.5, -0.6]), None, True))
    assert gini.of(np.array([0.5, 0.5]), None, True) == 0.0


def test_the_best_of_a_row_has_the_same_seeds_as_the_others(tmp_path: Path) -> None:
    """With seeds that differ, as many, the easier seeds made a method the best."""
    columns = [*COLUMNS, {"label": "N", "method": "fednova"}]
    columns.append({"label": "The best", "method": ["fednova", "fedavg"]})
    bench = bench_of(tmp_path, [{"metric": "accuracy"}], columns)
    for method, values in {"fedavg": {1: 0.5, 3: 0.4}, "fednova": {1: 0.45, 2: 0.9}}.items():
        for seed, value in values.items():
            write_run(bench, RunKey("own/s", method, seed), [value] * 6)
    made = computed(bench)
    best = made.cells[-1].result
    assert (best.chosen, best.n) == ("fedavg", 2) and best.trouble
    assert best.mean == pytest.approx(45.0)
    assert comparable({cell.column: cell.result for cell in made.cells if cell.result.n}) == {}
    latex = texts_of(bench.table("own", "t", "paper"), made, Published())[".tex"]
    assert latex.count("(2/3)") == 4 and "textbf" not in latex  # and what it means
