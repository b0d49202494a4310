"""What one sees in a figure: sentences that follow the numbers, whichever way they turn out."""

import re
from pathlib import Path

import numpy as np
import pytest

from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.measures.base import Quantity
from fedrepro.report.drawing.sheet import training_images
from fedrepro.report.pages.figure import figure_page
from fedrepro.report.pages.figures.base import leaders, leaders_by_measure
from fedrepro.report.papers import published
from fedrepro.run.results import read_run
from support.figure_world import (
    SETTINGS,
    WRITERS,
    figure,
    give_runs,
    with_figures,
    write_landscape,
    write_mixtures,
    write_objective,
)
from support.report_world import make_world, write_partition, write_run

KINDS = [
    "figure_2_3", "figure_2_4", "figure_2_5", "figure_regret", "figure_5", "figure_9", "figure_10",
    "figure_11", "figure_12", "figure_13", "figure_14", "figure_15", "figure_16",
]  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return with_figures(tmp_path)


@pytest.mark.parametrize("item", KINDS)
def test_every_kind_says_what_one_sees_with_numbers(bench: Workbench, item: str) -> None:
    target = figure(bench, item)
    empty = figure_page(bench, target, published.Published())["drawn"]
    assert not empty.sees or item == "figure_13"
    give_runs(bench, target, {"mild", "strong", "fedavg", "mild+fedavgm"})
    write_partition(bench, f"ima/{SETTINGS[0]}", target.seeds[0])
    for path in target.analyses:
        WRITERS[target.figure.kind](bench.root / path)
    for run in target.runs:
        if target.figure.kind == "objective":
            write_objective(bench, run)
        if target.figure.kind == "mixtures":
            write_mixtures(bench.root / run.folder, (0.9, 0.4), (0.5, 0.6))
    drawn = figure_page(bench, target, published.Published())["drawn"]
    assert re.search(r"\d", drawn.sees) and drawn.sees.endswith("."), drawn.sees
    assert "nan" not in drawn.sees and "  " not in drawn.sees


def test_the_better_line_is_named_by_the_measure_s_direction() -> None:
    values = {"a": 1.0, "b": 3.0, "c": 2.0}
    assert leaders([("P", values)], higher_is_better=True, unit="%") == (
        "b is best with 3.00 %, a last with 1.00 %."
    )
    assert (
        leaders([("P", values)], higher_is_better=False) == "a is best with 1.00, b last with 3.00."
    )
    assert (
        leaders([("P", {"a": 1.0})], higher_is_better=True)
        == leaders([], higher_is_better=True)
        == ""
    )
    assert leaders([("P", {"a": 1.0, "b": 1.0})], higher_is_better=True) == "All 2 have 1.00."


def test_of_several_panels_wins_are_counted_and_ties_are_shared() -> None:
    places = [("P", {"a": 1.0, "b": 3.0}), ("Q", {"a": 9.0, "b": 3.0}), ("R", {"a": 2.0, "b": 2.0})]
    assert leaders(places, higher_is_better=True, unit="%") == (
        "Of 3 comparisons, the best is b in 1, a in 1, a and b in 1; the clearest lead is a's in "
        "Q, 6.00 points."
    )


def test_measures_are_not_compared_with_each_other() -> None:
    up = Quantity("accuracy", "%", True, lambda record: [])
    down = Quantity("loss", "", False, lambda record: [])
    said = leaders_by_measure([("P", {"a": 1, "b": 2}, up), ("Q", {"a": 1, "b": 2}, down)], "By ")
    assert said == (
        "By accuracy: b is best with 2.00 %, a last with 1.00 %. "
        "By loss: a is best with 1.00, b last with 2.00."
    )


def test_landscapes_share_one_scale(bench: Workbench) -> None:
    """Equal losses are equally dark in every panel, so that flat and steep ones look it."""
    target = figure(bench, "figure_2_4")
    paths = [bench.root / path for path in target.analyses]
    low = [[0.3, 0.2, 0.3], [0.2, 0.1, 0.2], [0.3, 0.2, 0.3]]
    steep = [[9.0, 4.0, 9.0], [4.0, 0.2, 4.0], [9.0, 4.0, 9.0]]
    for path, loss in zip(paths, (low, steep), strict=True):
        write_landscape(path, x=[-1.0, 0.0, 1.0], y=[-1.0, 0.0, 1.0], loss=loss)
    drawn = figure_page(bench, target, published.Published())["drawn"]
    assert drawn.sees == (
        "The loss in the middle is least with mild, 0.1, and greatest with strong, 0.2. Around it, "
        "the loss reaches 9 with strong and no more than 0.3 with mild."
    )
    bars = [re.findall(r">([\d.]+)</text>", panel.svg)[-8:] for panel in drawn.panels]
    assert bars[0] == bars[1]  # the colour bars' numbers


def test_training_images_are_the_first_of_each_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the data set that the run was trained on; without prepared data there are none."""
    bench = load(make_world(tmp_path))
    run = RunKey("ima/fmnist-shards2-demo", "fedavg", 1)
    write_run(bench, run, [0.5])
    record = read_run(tmp_path, run)
    assert training_images(tmp_path, record, 3, 2) is None
    name = record.manifest["run"]["dataset"]
    monkeypatch.chdir(tmp_path)
    assert main(["prepare", name]) == 0
    found = training_images(tmp_path, record, 3, 2)
    assert found is not None and found.shape == (6, 1, 28, 28) and found.dtype == np.uint8
    x, y = (np.load(tmp_path / f"results/data/{name}/train_{part}.npy") for part in "xy")
    for place, image in enumerate(found):
        index = np.flatnonzero(y == place // 2)[place % 2]
        assert np.array_equal(image, x[index])
    assert training_images(tmp_path, record, 3, 10**6) is None  # more than there are
