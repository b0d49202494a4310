"""Figures: every kind from made-up runs, through the experiment file to the page."""

import copy
import json
import math
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedrepro.cli.site import described_methods
from fedrepro.config.config_file import Config
from fedrepro.config.loading import load
from fedrepro.config.metrics import ACCURACY, OverClients
from fedrepro.config.targets import FigureTarget, RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.methods.adaptive_weighting.rule import Observed
from fedrepro.papers.aaggff.regret_of_run import objective_of, regret_as_json, regret_of
from fedrepro.papers.aaggff.replay import replay, rule_of
from fedrepro.report import site
from fedrepro.report.cells.readings import is_of_shared_model
from fedrepro.report.drawing.curves import Line, smoothed
from fedrepro.report.drawing.planes import Grid, contour
from fedrepro.report.pages.figure import figure_page
from fedrepro.report.pages.figures.lines import averaging_begins
from fedrepro.report.papers import published
from fedrepro.run.results import read_run
from fedrepro.support.errors import UserError
from fedrepro.workflow.graph import Graph
from fedrepro.workflow.rendering import of_paper
from support import quick_yaml
from support.figure_world import (
    SETTINGS,
    figure,
    give_runs,
    with_figures,
    write_decomposition,
    write_landscape,
    write_mixtures,
    write_objective,
    write_regret,
    write_through,
)
from support.landed import words
from support.manifests import follow
from support.refusals import refused
from support.report_world import ROOT, make_world, write_partition, write_run
from support.tiny_run import carry_out, run_spec


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return with_figures(tmp_path)


def content(bench: Workbench, target: FigureTarget) -> dict[str, Any]:
    return figure_page(bench, target, published.load(bench.root))


def test_a_heat_map_has_a_cell_for_every_method(bench: Workbench) -> None:
    target = figure(bench, "figure_2_3")
    assert [run.method for run in target.runs][:3] == ["fedavg", "mild", "fedavg+fedavgm"]
    give_runs(bench, target, {"fedavg", "mild", "mild+fedavgm"})
    drawn = content(bench, target)["drawn"]
    assert drawn.header == ("Panel", "momentum", "μ 0", "μ 0.01")
    first, second = drawn.rows
    expected = [
        100 * read_run(bench.root, run).rounds["test_accuracy"][-1] for run in target.runs[:2]
    ]
    assert first == ("FedProx", "none", *(f"{value:.2f}" for value in expected))
    assert second[2] == "–" and second[3] != "–"
    (panel,) = drawn.panels  # nothing of the other one has been run
    assert panel.title == "FedProx"
    for number in first[2:]:
        assert f">{number}</text>" in panel.svg


def test_a_grid_must_be_as_large_as_its_axes(bench: Workbench) -> None:
    file = bench.root / "config/experiments/ima.yaml"
    experiment = quick_yaml.parsed(file.read_text(encoding="utf-8"))
    experiment["figures"]["figure_2_3"]["panels"][1]["methods"][0].pop()
    file.write_text(quick_yaml.written(experiment), encoding="utf-8")
    with refused(key="figures.figure_2_3.heat_map", names="2"):
        load(bench.root)


def test_mixtures_are_means_over_clients(bench: Workbench) -> None:
    target = figure(bench, "figure_2_5")
    run = next(run for run in target.runs if run.method == "strong")
    folder = write_run(bench, run, [0.5] * 20)
    write_mixtures(folder, (0.9, 0.4), (0.5, 0.6), (math.nan, math.nan))
    drawn = content(bench, target)["drawn"]
    (row,) = drawn.rows
    assert row[2:] == ("strong", "70.00", "70.00", "0.0", "50.00")
    (panel,) = drawn.panels
    assert re.search(r">[^<]*\bweight\b", panel.svg)
    assert "var(--series-2)" in panel.svg  # its own style, though the first method is missing


def test_mixtures_are_means_over_seeds(bench: Workbench) -> None:
    target = replace(figure(bench, "figure_2_5"), seeds=(1, 2))
    run = next(run for run in target.runs if run.method == "strong")
    for seed, start in ((1, 0.9), (2, 0.7)):
        folder = write_run(bench, replace(run, seed=seed), [0.5] * 20)
        write_mixtures(folder, (start, 0.4))
    (row,) = content(bench, target)["drawn"].rows
    assert (row[3], row[-1]) == ("80.00", "40.00")


def test_a_landscape_is_drawn_with_contours(bench: Workbench) -> None:
    target = figure(bench, "figure_2_4")
    first = target.analyses[0]
    path = bench.root / first
    write_landscape(path)
    drawn = content(bench, target)["drawn"]
    assert [(row[0], *row[2:]) for row in drawn.rows] == [("mild", "0.1", "0.1", "2.1")]
    assert drawn.panels[0].svg.count('class="contour"') == 8
    write_landscape(path, y=[-1.0, 1.0])
    with refused("damaged", file="seed1.json"):
        content(bench, target)


def test_a_plane_has_contours_marks_and_a_colour_bar(bench: Workbench) -> None:
    """Both panels share one scale; a file that is not whole is told, one that is missing not."""
    target = figure(bench, "figure_11")
    first, second = (bench.root / path for path in target.analyses)
    assert first.name == "2.1-2.2-2.3_41x2000.json" and {run.seed for run in target.runs} == {1}
    write_through(first)
    write_through(second, loss=[[7.3] * 4] * 4)
    drawn = content(bench, target)["drawn"]
    assert len(drawn.panels) == 4  # loss and error of each
    plane = drawn.panels[0].svg
    for word in ("client 3", "average", "IMA", "loss", ">8.1<", ">0.1<"):
        assert word in plane, word
    assert plane.count('class="contour"') > 6 and "crispEdges" in plane
    assert "var(--surface-high)" in plane and "var(--surface-low)" in plane
    assert not re.search(r'(fill|stroke)="#', plane)  # light and dark have their own colours
    assert drawn.rows[4][1:] == ("IMA, round 2", "0.566", "0.25", "0.26", "10.00")
    assert {"4", "40", "float32"} <= {*re.findall(r"\w+", drawn.caption)}
    sizes = {float(size) for size in re.findall(r'font-size="([\d.]+)px"', plane)}
    assert min(sizes) >= 13
    second.unlink()
    assert len(content(bench, target)["drawn"].panels) == 2
    for changes in ({"x": [0.0, 1.0]}, {"marks": [{"name": "a"}]}, {"accuracy": 1}):
        write_through(first, **changes)
        with refused("damaged", file="2000.json"):
            content(bench, target)


def test_segments_are_lines_with_their_ends_marked(bench: Workbench) -> None:
    target = figure(bench, "figure_12")
    (path,) = target.analyses
    write_through(bench.root / path)
    loss, error = content(bench, target)["drawn"].panels
    assert "0: client 3, 1: client 5" in loss.svg and "loss 0.1 at client 3" in loss.svg
    assert error.title.endswith("error, %") and "50 %" in error.svg
    dashed = re.findall(r'<line[^>]*stroke-dasharray="4,3"', loss.svg)
    assert len(dashed) == 2  # at both models


def test_terms_are_drawn_by_round(bench: Workbench) -> None:
    target = figure(bench, "figure_13")
    (path,) = target.analyses
    assert path.name == "seeds1-2_2000.json" and {run.seed for run in target.runs} == {1, 2}
    assert content(bench, target)["drawn"].panels == []
    write_decomposition(bench.root / path)
    page = content(bench, target)
    assert page["seeds"]["demo"] == (1, 2)
    drawn = page["drawn"]
    assert drawn.rows[0][1:] == ("1", "0.5", "1e-05", "–")
    assert drawn.rows[1][1:] == ("4", "0.125", "4e-05", "2")
    setting = SETTINGS[0].upper()
    parts = [re.findall(rf"{setting}|bias|variance|slope", panel.title) for panel in drawn.panels]
    assert parts == [[setting, "bias", "variance"], [setting, "slope"]]
    assert re.search(r"\b1, 2\b.*\b40\b", drawn.caption)
    write_decomposition(bench.root / path, rounds=[{"round": 1}])
    with refused("damaged", file="2000.json"):
        content(bench, target)


def test_a_trend_has_a_point_for_every_value(bench: Workbench) -> None:
    target = figure(bench, "figure_14")
    assert len(target.runs) == 4  # the point without a setting at scale demo is left out
    paper = bench.target("ima", "figure_14", "paper")
    assert {run.method for run in paper.runs} == {"fedavg", "mild", "strong"}
    give_runs(bench, target, {"mild", "strong"})
    drawn = content(bench, target)["drawn"]
    assert [row[1] for row in drawn.rows] == ["0.1", "0.1", "0.5", "0.5"]
    best = 100 * read_run(bench.root, target.runs[0]).rounds["test_accuracy"][-1]
    assert drawn.rows[0][4] == f"{best:.2f}"
    (panel,) = drawn.panels
    assert ">α</text>" in panel.svg and "single" in drawn.caption
    assert "1 of 3 points" in drawn.caption


def test_what_new_kinds_refuse(bench: Workbench) -> None:
    file = bench.root / "config/experiments/ima.yaml"
    whole = quick_yaml.parsed(file.read_text(encoding="utf-8"))

    def refused(item: str, change: Callable[[Any], None]) -> str:
        experiment = copy.deepcopy(whole)
        change(experiment["figures"][item])
        file.write_text(quick_yaml.written(experiment), encoding="utf-8")
        with pytest.raises(UserError) as error:
            load(bench.root)
        return str(error.value)

    said = refused("figure_11", lambda spec: spec["panels"][0]["through"].pop())
    assert re.search(r"\b3\b.*'FMNIST-SHARDS2-DEMO'", said)
    said = refused("figure_14", lambda spec: spec["lines"].pop())
    assert re.search(r"\b1\b.* 0\.1 .*'Data'", said)
    said = refused("figure_14", lambda spec: spec["panels"][0]["points"][0].update(setting="no"))
    assert "figure_14" in said and "no" in said


def test_averages_are_drawn_by_number_and_by_similarity(bench: Workbench) -> None:
    target = figure(bench, "figure_15")
    assert content(bench, target)["drawn"].panels == []
    (path,) = target.analyses
    write_decomposition(bench.root / path)
    drawn = content(bench, target)["drawn"]
    first, last, alike = drawn.panels
    assert first.title.startswith("After round 1,") and "60.00 to 40.00" in first.svg
    assert "60.00 to 10.00" in last.svg and "averaged clients" in last.svg
    assert "linear CKA" in alike.svg and "10.00 to 10.00" in alike.svg  # round 1 has none
    assert [row[1:] for row in drawn.rows] == [
        ("1", "–", "60.00", "40.00"), ("4", "0.500", "60.00", "10.00")
    ]  # fmt: skip
    for rounds in ([], [{"round": 1, "cka": None, "error": "much", "errors_by_number": [1.0]}]):
        write_decomposition(bench.root / path, rounds=rounds)
        with refused("damaged", file="2000.json"):
            content(bench, target)


def test_the_objective_is_drawn_by_round(bench: Workbench) -> None:
    """A method without losses has no line, nor a run in which a round is missing."""
    target = figure(bench, "figure_16")
    give_runs(bench, target, {"mild", "strong"})
    assert content(bench, target)["drawn"].panels == []
    for run, path in zip(target.runs, target.analyses, strict=True):
        if run.method == "strong" and run.setting.endswith(SETTINGS[0]):
            rounds = bench.setting(run.setting).rounds
            write_objective(bench, run)
        else:
            write_regret(bench.root / path, round=[1], objective=[2.5])
    drawn = content(bench, target)["drawn"]
    (panel,) = drawn.panels
    end = f"{2.5 * rounds:.4g}"
    assert panel.title == SETTINGS[0].upper() and f"strong {end}" in panel.svg
    seeds = str(len(target.seeds))
    assert drawn.rows == [(SETTINGS[0], "strong", str(rounds), end, end, end, seeds)]
    assert "var(--series-2)" in panel.svg  # its own style, though the first method is missing
    write_regret(bench.root / path, round=[1], objective=["much"])
    with refused("damaged", file=".json"):
        content(bench, target)


def decided(**changes: Any) -> Any:
    """A run of two rounds of AAggFF-S with two clients."""
    run = {"composition": "aaggff_s+fedavg", "hyperparameters": {}}
    table = {"round": [1, 1, 2, 2], "client": [0, 1, 0, 1], "weight": [0.1, 0.9] * 2}
    table |= {"loss": [2.0, 6.0, 3.0, 5.0]} | changes
    return SimpleNamespace(manifest={"clients": 2, "run": run}, decisions=table)


def test_the_objective_has_the_decision_before_the_round() -> None:
    """Not the coefficients of the aggregation: in the first round everyone's is 1 / K."""
    after_one, after_two = objective_of(decided())
    assert after_one == 4
    # The client with the larger loss has more than half in the second round, which weighs 3 and 5.
    assert 4 < after_two - after_one < 5
    first = Observed(0, 2, np.arange(2), np.array([2.0, 6.0]), np.ones(2))
    played = replay(rule_of("aaggff_s"), 2, [first])
    assert played.decision is not None
    assert after_two - after_one == pytest.approx(played.decision @ [3.0, 5.0])


def test_a_round_with_a_loss_that_is_not_finite_adds_nothing() -> None:
    """And the figure shows no line, as the round is missing."""
    assert objective_of(decided(loss=[2.0, 6.0, 3.0, math.inf])) == [4.0]


def test_a_column_may_have_a_setting_of_its_own(bench: Workbench) -> None:
    """In bars and lines, as in tables: where * is the row's."""
    file = bench.root / "config/experiments/ima.yaml"
    experiment = quick_yaml.parsed(file.read_text(encoding="utf-8"))
    for item in ("figure_9", "figure_10"):
        spec = experiment["figures"][item]
        spec |= {"rows": spec["rows"][:1], "column_settings": {"strong": SETTINGS[1]}}
    file.write_text(quick_yaml.written(experiment), encoding="utf-8")
    changed = load(bench.root)
    for item in ("figure_9", "figure_10"):
        target = figure(changed, item)
        assert {(run.setting, run.method) for run in target.runs} == {
            (f"ima/{SETTINGS[0]}", "mild"), (f"ima/{SETTINGS[1]}", "strong")
        }  # fmt: skip
        give_runs(changed, target, {"mild", "strong"})
        rows = content(changed, target)["drawn"].rows
        assert [(row[1], row[2]) for row in rows] == [
            (SETTINGS[0], "mild"), (SETTINGS[1], "strong")
        ]  # fmt: skip
    experiment["figures"]["figure_9"]["column_settings"] = {"strong": "no"}
    file.write_text(quick_yaml.written(experiment), encoding="utf-8")
    with pytest.raises(UserError, match=r"figure_9.*no"):
        load(bench.root)


def test_smoothed_lines_stand_over_the_raw_ones(bench: Workbench) -> None:
    """The mean of the last rounds; where a moving average begins is marked."""
    file = bench.root / "config/experiments/ima.yaml"
    experiment = quick_yaml.parsed(file.read_text(encoding="utf-8"))
    spec = experiment["figures"]["figure_9"]
    spec |= {"smooth": 3, "columns": [{"label": "IMA", "method": "ima+mild"}]}
    for name in SETTINGS:
        experiment["settings"][name]["methods"] = {"ima": {"start": 0.75}}
    file.write_text(quick_yaml.written(experiment), encoding="utf-8")
    bench = load(bench.root)
    target = figure(bench, "figure_9")
    give_runs(bench, target, {"ima+mild"})
    drawn = content(bench, target)["drawn"]
    assert re.search(r"\b3\b", drawn.caption) and "t_s" in drawn.caption
    words = re.sub(r"<[^>]*>", "", drawn.panels[0].svg)
    assert "ts" in words  # where it begins
    lines = re.findall(r' d="M([\d.,L]+)" fill="none"', drawn.panels[0].svg)
    rounds = len(read_run(bench.root, target.runs[0]).rounds["round"])
    smooth, raw = (line for line in lines if line.count("L") == rounds - 1)
    assert smooth != raw  # both are drawn
    values = [100 * each for each in read_run(bench.root, target.runs[0]).rounds["test_accuracy"]]
    assert drawn.rows[0][-1] == f"{values[-1]:.2f}"
    line = Line("IMA", list(enumerate(values)))
    found = smoothed(line, 3)
    assert found.raw == line.points
    assert [value for _, value in found.points[:3]] == pytest.approx(
        [values[0], sum(values[:2]) / 2, sum(values[:3]) / 3]
    )
    setting = target.runs[0].setting
    rounds = bench.setting(setting).rounds
    assert averaging_begins(bench, setting, ["ima+mild"]) == [int(0.75 * rounds) + 1]
    assert averaging_begins(bench, setting, ["mild"]) == []


def test_a_moving_average_is_over_so_many_points() -> None:
    line = Line("x", [(1, 1.0), (2, 2.0), (3, 6.0), (4, 10.0)])
    assert smoothed(line, 2).points == [(1, 1), (2, 1.5), (3, 4), (4, 8)]


def test_bars_and_lines_name_the_runs_that_are_missing(bench: Workbench) -> None:
    for item in ("figure_9", "figure_10"):
        target = figure(bench, item)
        if item == "figure_9":
            give_runs(bench, target, {"mild"})
        page = content(bench, target)
        assert [panel.title.partition(",")[0] for panel in page["drawn"].panels] == [
            name.upper() for name in SETTINGS
        ]
        assert len(page["drawn"].rows) == 2
        assert [hole.why for hole in page["holes"]] == ["not run", "not run"]
        assert "strong" in page["holes"][0].run.method


def test_partitions_are_drawn_without_runs(bench: Workbench) -> None:
    target = figure(bench, "figure_5")
    assert target.runs == ()
    assert not content(bench, target)["drawn"].panels
    write_partition(bench, f"ima/{SETTINGS[0]}", target.seeds[0])
    drawn = content(bench, target)["drawn"]
    (panel,) = drawn.panels  # the other one has not been shared out
    assert panel.title == SETTINGS[0].upper() and "Samples" in panel.svg
    ((setting, seed, most, words),) = drawn.rows
    assert (setting, seed, most) == (SETTINGS[0], str(target.seeds[0]), "56")
    assert "of 1 to 2 of 10 classes" in words


def test_rows_with_one_stand_in_are_one_panel(bench: Workbench) -> None:
    file = bench.root / "config/experiments/ima.yaml"
    experiment = quick_yaml.parsed(file.read_text(encoding="utf-8"))
    rows = [{"label": name.upper(), "setting": name, "demo": SETTINGS[0]} for name in SETTINGS]
    loss = {"label": "LOSS", "setting": SETTINGS[1], "demo": SETTINGS[0], "metric": "loss"}
    experiment["figures"]["figure_9"]["rows"] = [*rows, loss]
    file.write_text(quick_yaml.written(experiment), encoding="utf-8")
    changed = load(bench.root)
    target = figure(changed, "figure_9")
    give_runs(changed, target, {"mild"})
    one, other = content(changed, target)["drawn"].panels
    labels = "; ".join(name.upper() for name in SETTINGS)
    assert (one.title, other.title) == (f"{labels} ({SETTINGS[0]})", f"LOSS ({SETTINGS[0]})")


def test_pages_of_figures_are_whole(bench: Workbench) -> None:
    """Without runs too; every caption, link and table is there."""
    papers = published.load(bench.root)
    target = figure(bench, "figure_9")
    site.write_page(bench, target, papers)
    text = (bench.root / target.page).read_text(encoding="utf-8")
    drawing = 'aria-label="Test accuracy'
    assert drawing not in text
    give_runs(bench, target, {"mild", "strong"})
    site.write_page(bench, target, papers)
    text = (bench.root / target.page).read_text(encoding="utf-8")
    assert drawing in text
    assert 'class="tag demo"' in text
    for run in target.runs:
        link = f"../runs/{run.setting}/{run.method}/seed{run.seed}.html"
        assert link in text and (bench.root / target.page.parent / link).exists()
    start = bench.root / site.write_site(bench, papers, described_methods(bench.plugins), "demo")
    written = start.read_text(encoding="utf-8")
    assert '<a href="ima/figure_9.html">Figure 9</a>' in written
    assert "4 of 4 runs" in written and "1 of 6 runs" in written


def test_without_the_package_for_png_figures_are_svg(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which one line says; with it there are both, and the page links them."""
    papers, target = published.load(bench.root), figure(bench, "figure_9")
    give_runs(bench, target, {"mild", "strong"})
    folder = (bench.root / target.page).parent
    for installed, kinds in ((False, {".svg"}), (True, {".svg", ".png"})):
        if not installed:
            monkeypatch.setitem(sys.modules, "vl_convert", None)
        site.write_page(bench, target, papers)
        drawn = [path for path in folder.glob("figure_9-*") if path.stat().st_size]
        assert {path.suffix for path in drawn} == kinds
        text = (bench.root / target.page).read_text(encoding="utf-8")
        assert set(re.findall(r'href="(figure_9-[^"]*)"', text)) == {path.name for path in drawn}
        said = capsys.readouterr().err
        assert ("pip install '.[png]'" in said) != installed
        assert said.count("\n") == (not installed)
        monkeypatch.undo()


def test_regret_is_drawn_beside_its_bound(bench: Workbench) -> None:
    target = figure(bench, "figure_regret")
    assert content(bench, target)["drawn"].panels == []
    path = bench.root / target.analyses[0]
    write_regret(path)
    drawn = content(bench, target)["drawn"]
    (row,) = drawn.rows
    assert row == (SETTINGS[0], "5", "4", "3", "4", "1")
    (panel,) = drawn.panels
    assert panel.title.endswith(", 5 clients") and "regret 3, bound 4" in panel.svg
    for changes in ({"bound": [1.0]}, {"regret": ["much"] * 4}, {"clients": None}):
        write_regret(path, **changes)
        with refused("damaged", file="seed1.json"):
            content(bench, target)
    write_regret(path, round=[], regret=[], bound=[])
    assert content(bench, target)["drawn"].panels == []


def test_a_figure_without_its_analysis_says_which_runs_have_finished(bench: Workbench) -> None:
    target = figure(bench, "figure_regret")
    give_runs(bench, target, {run.method for run in target.runs})
    count = len(target.runs)
    assert count > 1
    site.write_page(bench, target, published.load(bench.root))
    text = words((bench.root / target.page).read_text(encoding="utf-8"))
    assert f"{count} of its {count} runs" in text
    assert "None of its runs" not in text and "Runs without a result" not in text


def test_only_a_drawn_figure_is_compared_with_the_printed_one(bench: Workbench) -> None:
    target, papers = figure(bench, "figure_9"), published.load(bench.root)
    for given in (set[str](), {"mild", "strong"}):
        give_runs(bench, target, given)
        site.write_page(bench, target, papers)
        text = (bench.root / target.page).read_text(encoding="utf-8")
        assert ("beside the printed figure" in text) == bool(given)


def test_regret_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command writes is what was found, without NaN; a run that is not there is told."""
    run = RunKey("test/blobs", "aaggff_s+fedavg", 1)
    carry_out(tmp_path / run.folder, run_spec(run.method, participation=1.0))
    bench = Workbench(tmp_path, Config(), {}, {}, {}, {})
    found, made = regret_of(read_run(tmp_path, run)), regret_as_json(bench, run)
    assert found is not None
    assert made["regret"] == found.rounds["regret"].tolist()
    assert len(made["objective"]) == len(made["round"])
    assert (made["clients"], made["linearised"], made["round"][0]) == (6, False, 1)
    monkeypatch.setattr("fedrepro.papers.aaggff.replay._as_in_the_paper", lambda rule: False)
    made = regret_as_json(bench, run)
    assert set(made["bound"]) == {None} and None not in made["regret"]
    json.dumps(made, allow_nan=False)
    (tmp_path / run.folder / "decisions.parquet").unlink()
    with refused(names=("damaged", "decisions.parquet", "missing")):
        regret_as_json(bench, run)
    with refused("missing", file="seed2", names="finished"):
        regret_as_json(bench, replace(run, seed=2))


def test_a_landed_run_has_too_few_losses_for_its_regret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunKey("test/blobs", "aaggff_s+fedavg", 1)
    carry_out(tmp_path / run.folder, run_spec(run.method, participation=1.0))
    bench = Workbench(tmp_path, Config(), {}, {}, {}, {})
    landed = replace(read_run(tmp_path, run), landed="sealed")
    monkeypatch.setattr("fedrepro.papers.aaggff.regret_of_run.find_run", lambda *_: landed)
    with refused(names=("machine", "round")):
        regret_as_json(bench, run)


@pytest.mark.parametrize("composition", ["aaggff_s+fedavg", "ima+aaggff_d+fedavg"])
def test_regret_stays_below_its_bound(tmp_path: Path, composition: str) -> None:
    run = RunKey("test/blobs", composition, 1)
    share = 1.0 if "aaggff_s" in composition else 0.5
    carry_out(tmp_path / run.folder, run_spec(composition, participation=share))
    found = regret_of(read_run(tmp_path, run))
    assert found is not None and len(found.rounds) == 12
    assert (found.rounds["regret"] <= found.rounds["bound"]).all()
    assert found.rounds["regret"].iloc[-1] > 0
    losses = pd.read_parquet(tmp_path / run.folder / "decisions.parquet")
    assert found.clients["loss"].to_numpy() == pytest.approx(losses["loss"].to_numpy(), rel=0)
    assert found.clients["weight"].to_numpy() == pytest.approx(losses["weight"], rel=1e-6)


def test_a_round_that_taught_nothing_is_left_out(tmp_path: Path) -> None:
    run = RunKey("test/blobs", "aaggff_d", 1)
    folder = tmp_path / run.folder
    carry_out(folder, run_spec("aaggff_d"))
    table = pd.read_parquet(folder / "decisions.parquet")
    table.loc[4, "loss"] = np.inf  # of round 2
    table.to_parquet(folder / "decisions.parquet")
    follow(folder, "decisions.parquet")
    found = regret_of(read_run(tmp_path, run))
    assert found is not None
    assert found.rounds["round"].tolist() == [1, *range(3, 13)]


def test_regret_needs_a_rule_with_a_bound(tmp_path: Path) -> None:
    run = RunKey("test/blobs", "term", 1)
    carry_out(tmp_path / run.folder, run_spec("term"))
    with refused(key="method", value="term"):
        regret_of(read_run(tmp_path, run))


def test_contours_of_a_cone_are_circles() -> None:
    grid = list(np.linspace(-1, 1, 41))
    values = [[math.hypot(a, b) for a in grid] for b in grid]
    segments = contour(Grid(grid, grid, values), 0.5)
    radii = [math.hypot(*point) for segment in segments for point in segment]
    assert radii == pytest.approx([0.5] * len(radii), abs=2e-3)
    length = sum(math.dist(*segment) for segment in segments)
    assert length == pytest.approx(math.pi, rel=2e-3)


def test_contours_of_a_saddle_go_around_its_low_corners() -> None:
    """The middle, 0.5, lies above the level: the high corners are joined."""
    cases = (([[1, 0], [0, 1]], {(0, 1), (1, 0)}), ([[0, 1], [1, 0]], {(0, 0), (1, 1)}))
    for values, low in cases:
        segments = contour(Grid([0, 1], [0, 1], values), 0.4)
        middles = [tuple(np.mean(segment, axis=0).round()) for segment in segments]
        assert set(middles) == low and len(middles) == 2
    assert contour(Grid([0, 1], [0, 1], [[0, 1], [math.inf, 1]]), 0.5) == []


def test_the_workflow_knows_what_pages_are_made_from(bench: Workbench) -> None:
    graph = Graph(bench)

    def inputs(item: str) -> list[str]:
        return graph.inputs_of_page(SimpleNamespace(system="ima", item=item))

    run = figure(bench, "figure_2_4").runs[0]
    assert str(run.folder / "manifest.json") in inputs("figure_2_4")
    assert str(run.analysis("landscapes")) in inputs("figure_2_4")
    assert not any("landscapes" in path for path in inputs("figure_9"))
    regrets = [path for path in inputs("figure_regret") if path.startswith("results/regrets/")]
    assert len(regrets) == len(figure(bench, "figure_regret").runs)
    table = bench.table("ima", "table_1", "demo")
    assert str(table.path) in inputs("table_1")
    shares = {
        bench.setting(each.setting).partition_path(table.seeds[0]).with_suffix(".json")
        for each in table.required
    }
    assert {Path(each) for each in inputs("table_1") if "/partitions/" in each} == shares != set()
    assert str(figure(bench, "figure_9").page) in graph.pages()
    assert str(run.folder / "manifest.json") in graph.results()
    definitions = {
        graph.page_definition(SimpleNamespace(system="ima", item=item))
        for item in ("figure_9", "figure_10", "table_1")
    }
    assert len(definitions) == 3


def test_the_site_is_made_from_the_tables(bench: Workbench) -> None:
    assert Graph(bench).tables() == [str(table.path) for table in bench.tables().values()]


def test_a_note_on_one_paper_leaves_the_others_pages_alone(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.root)
    page = SimpleNamespace(system="ima", item="table_1")
    of_paper.cache_clear()
    graph = Graph(bench)
    before = graph.paper(page), graph.papers
    note = Path("reports/papers/fedgo/discrepancies.yaml")
    note.write_text(note.read_text(encoding="utf-8") + "# A note.\n", encoding="utf-8")
    of_paper.cache_clear()
    assert graph.paper(page) == before[0]
    assert Graph(bench).papers != before[1]
    note = Path("reports/papers/ima/notes.csv")
    note.write_text(note.read_text(encoding="utf-8") + "table_1,Another note.\n", encoding="utf-8")
    of_paper.cache_clear()
    assert graph.paper(page) != before[0]


def test_counted_tables_do_not_ask_for_data(tmp_path: Path) -> None:
    root = make_world(tmp_path)
    shutil.copy(ROOT / "config/experiments/aaggff.yaml", root / "config/experiments")
    bench = load(root)
    page = SimpleNamespace(system="aaggff", item="table_a2")
    assert Graph(bench).inputs_of_page(page) == []
    meta = root / "results/data/berka/meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text("{}", encoding="utf-8")
    (path,) = Graph(bench).inputs_of_page(page)
    assert path.startswith("results/partitions/berka/") and path.endswith("/seed2.json")


@pytest.mark.parametrize("item", ["figure_9", "figure_10", "figure_14", "figure_2_3"])
def test_a_number_of_the_shared_model_says_so(bench: Workbench, item: str) -> None:
    """Where clients have models of their own, it is not what the method is for."""
    file = bench.root / "config/experiments/ima.yaml"
    text = file.read_text(encoding="utf-8").replace("mild", "ditto").replace("strong", "local")
    experiment = quick_yaml.parsed(text)
    experiment["methods"] = {}
    file.write_text(quick_yaml.written(experiment), encoding="utf-8")
    bench = load(bench.root)
    target = figure(bench, item)
    give_runs(bench, target, {"ditto", "fedavg"})
    label = "FedProx" if item == "figure_2_3" else "ditto"
    caption = content(bench, target)["drawn"].caption
    assert re.search(rf"\bOf {label}(, local)?: ", caption)


def test_a_number_of_the_shared_model_is_known(bench: Workbench) -> None:
    over = OverClients(of="accuracy", over_clients="average")
    setting = figure(bench, "figure_9").runs[0].setting
    assert is_of_shared_model(bench, ACCURACY, setting, ["ditto"])
    assert not is_of_shared_model(bench, ACCURACY, setting, ["ima+fedavg"])
    assert not is_of_shared_model(bench, over, setting, ["ditto"])


def test_a_figure_that_is_empty_says_what_it_lacks(bench: Workbench) -> None:
    """Its runs at a scale, with the command, or small settings where it has no runs at all."""
    file = bench.root / "config/experiments/ima.yaml"
    experiment = quick_yaml.parsed(file.read_text(encoding="utf-8"))
    for point in experiment["figures"]["figure_14"]["panels"][0]["points"]:
        point.pop("demo", None)
    file.write_text(quick_yaml.written(experiment), encoding="utf-8")
    bench, papers = load(bench.root), published.load(bench.root)
    targets = [figure(bench, item) for item in ("figure_9", "figure_14")]
    for target in targets:
        site.write_page(bench, target, papers)
    runs, small = (
        words((bench.root / target.page).read_text(encoding="utf-8")) for target in targets
    )
    assert "reports/site/ima/figure_9.html --cores all --config scale=demo" in runs
    assert "no point of it has a small setting, demo" in small
