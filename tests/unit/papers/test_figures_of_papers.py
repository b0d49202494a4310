"""The rows, bands and sentences of papers' figures, reckoned with numpy from what they draw."""

import math
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedrepro.config.loading import load
from fedrepro.config.targets import FigureTarget
from fedrepro.config.workbench import Workbench
from fedrepro.papers.aaggff import figure_objective, figure_regret
from fedrepro.papers.fedevg import figure_shares
from fedrepro.papers.ima import figure_averaging
from fedrepro.papers.superfed import figure_mixtures
from fedrepro.report.pages.figures.base import Drawn
from support.figure_world import SETTINGS, add_figures, write_decomposition, write_regret
from support.manifests import follow
from support.report_world import make_world, write_run


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    root = make_world(tmp_path_factory.mktemp("figures"), rows=1, columns=1)
    add_figures(root)
    return load(root)


def target_of(world: Workbench, item: str, seeds: tuple[int, ...]) -> FigureTarget:
    target = world.target("ima", item, "demo")
    assert isinstance(target, FigureTarget)
    return replace(target, seeds=seeds)


def drawn_by(module: Any, world: Workbench, target: FigureTarget) -> Drawn:
    drawn: Drawn = module.draw(world, target, target.figure)
    return drawn


def numbers_in(text: str) -> list[float]:
    return [float(each) for each in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])", text)]


def test_a_mixture_is_the_mean_over_clients_and_seeds_with_their_spread(world: Workbench) -> None:
    target = target_of(world, "figure_2_5", (1, 2))
    random = np.random.default_rng(3)
    weights, setting = [0.0, 0.1, 0.2, 0.5, 1.0], f"ima/{SETTINGS[0]}"
    scores = {seed: random.uniform(0, 1, size=(3, 5)) for seed in (1, 2)}
    scores[1][:, 2] = [0.99, 1.0, 0.7]  # the best, not at an end; its band ends at 100 %
    scores[2][:, 2] = 1.0
    scores[1][:, 3] = scores[2][:, 3] = [0.0, 0.0, 0.3]  # its band ends at 0
    for seed, table in scores.items():
        run = replace(target.runs[0], setting=setting, method="strong", seed=seed)
        folder = write_run(world, run, [0.5] * 3)
        rows = [
            {"client": client, "weight": weight, "accuracy": table[client, at]}
            for at, weight in enumerate(weights)
            for client in range(3)
        ]
        rows.append({"client": 3, "weight": 0.0, "accuracy": math.nan})  # without test samples
        pd.DataFrame(rows).to_parquet(folder / "mixtures.parquet")
        follow(folder, "mixtures.parquet")
    every = 100 * np.concatenate([*scores.values()])
    column = next(each for each in target.figure.columns if each.label == "strong")
    line = figure_mixtures._mixture(world, target, SETTINGS[0], column)
    assert line is not None and [weight for weight, _ in line.points] == weights
    means, spreads = every.mean(0), every.std(0)
    assert [value for _, value in line.points] == pytest.approx(means)
    assert [*line.low] == pytest.approx(np.maximum(means - spreads, 0))
    assert [*line.high] == pytest.approx(np.minimum(means + spreads, 100))
    assert line.low[3] == 0 and line.high[2] == 100 and max(line.high[1], line.high[4]) < 100
    drawn = drawn_by(figure_mixtures, world, target)
    (row,) = [row for row in drawn.rows if row[2] == "strong"]
    best = int(means.argmax())
    assert best == 2 and row[1] == SETTINGS[0]
    assert row[3:] == (f"{means[0]:.2f}", f"{means[2]:.2f}", "0.2", f"{means[-1]:.2f}")
    said = re.search(
        r"weight ([\d.]+) with ([\d.]+) %, ([\d.]+) above weight 0 and ([\d.]+) above 1", drawn.sees
    )
    assert said and [float(each) for each in said.groups()] == pytest.approx(
        [0.2, means[2], means[2] - means[0], means[2] - means[-1]], abs=0.006
    )


def test_a_line_of_several_methods_has_the_runs_of_each_at_its_scale(world: Workbench) -> None:
    """Such as one for each data set; those that have not finished are no part of it."""
    target = target_of(world, "figure_2_5", (7,))
    setting, weights = f"ima/{SETTINGS[1]}", [0.0, 1.0]
    both: Any = SimpleNamespace(
        label="both",
        methods_at=lambda scale: ("mild", "strong") if scale == target.scale else ("strong",),
    )
    figure: Any = SimpleNamespace(panels=target.figure.panels[1:], columns=[both])
    rounds = world.setting(setting).rounds
    numbers = list(range(1, rounds + 1))
    for method, scores in {"mild": [0.2, 0.4], "strong": [0.6, 0.8]}.items():
        run = replace(target.runs[0], setting=setting, method=method, seed=7)
        folder = write_run(world, run, [0.5] * rounds)
        table = {"client": [0, 0], "weight": weights, "accuracy": scores}
        pd.DataFrame(table).to_parquet(folder / "mixtures.parquet")
        follow(folder, "mixtures.parquet")
        objective = [10 * scores[0] * number / rounds for number in numbers]
        path = world.root / run.analysis("regrets")
        write_regret(path, round=numbers, objective=objective)
    line = figure_mixtures._mixture(world, target, SETTINGS[1], both)
    assert line is not None
    assert line.points == [(0.0, pytest.approx(40)), (1.0, pytest.approx(60))]
    (row,) = figure_objective.draw(world, target, figure).rows
    assert row[1:] == ("both", str(rounds), "4", "2", "6", "2")
    shutil.rmtree(folder)
    write_run(world, run, [0.5] * rounds, status="diverged")
    (row,) = figure_objective.draw(world, target, figure).rows
    assert row[1:] == ("both", str(rounds), "2", "2", "2", "1")


def test_regret_is_the_mean_over_seeds_and_its_excesses_are_summed(world: Workbench) -> None:
    target = target_of(world, "figure_regret", (1, 2))
    regrets = {1: [0.5, 2.5, None, 3.0], 2: [1.5, 2.0, 4.5, 5.0]}
    bounds = {1: [1.0, 2.0, 3.0, 4.0], 2: [1.0, 2.0, 4.0, 8.0]}
    for seed, clients in ((1, 5), (2, 7)):
        run = next(run for run in target.runs if run.setting.endswith(SETTINGS[0]))
        path = world.root / replace(run, seed=seed).analysis("regrets")
        write_regret(path, clients=clients, regret=regrets[seed], bound=bounds[seed])
    drawn = drawn_by(figure_regret, world, target)
    (row,) = drawn.rows
    # Above in round 2 of the first seed; in rounds 1 and 3 of the second, not where they are equal.
    assert row == (SETTINGS[0], "7", "4", "4", "6", "3")
    (panel,) = drawn.panels
    assert panel.title.endswith(", 7 clients")
    assert numbers_in(drawn.sees)[-2:] == pytest.approx([100 * 4 / 6, 3], rel=1e-2)


def test_the_objective_has_its_mean_and_its_ends_over_seeds(world: Workbench) -> None:
    target = target_of(world, "figure_16", (1, 2, 3))
    ends = {("mild", 1): 9.0, ("mild", 2): 3.0, ("mild", 3): 4.5, ("strong", 1): 2.0}
    setting = f"ima/{SETTINGS[1]}"
    rounds = world.setting(setting).rounds
    numbers = list(range(1, rounds + 1))
    for (method, seed), end in ends.items():
        run = replace(target.runs[0], setting=setting, method=method, seed=seed)
        write_run(world, run, [0.5] * rounds)
        objective = [end * number / rounds for number in numbers]
        path = world.root / run.analysis("regrets")
        write_regret(path, round=numbers, objective=objective)
    drawn = drawn_by(figure_objective, world, target)
    assert [row[1:] for row in drawn.rows if row[0] == SETTINGS[1]] == [
        ("mild", str(rounds), "5.5", "3", "9", "3"), ("strong", str(rounds), "2", "2", "2", "1")
    ]  # fmt: skip
    assert re.match(r"strong\b.*\b2\.00", drawn.sees)  # smaller is better


def test_errors_of_averages_are_shown_after_the_first_the_middle_and_the_last_round(
    world: Workbench,
) -> None:
    target = target_of(world, "figure_15", (1, 2))
    rounds = [
        {"round": number, "cka": cka, "error": 50.0 / number,
         "errors_by_number": [60.0 - number, 50.0, 40.0 - number]}
        for number, cka in ((1, 0.9), (2, None), (4, 0.2), (6, 0.5), (9, 0.7))
    ]  # fmt: skip
    (path,) = target_of(world, "figure_15", (1, 2)).analyses
    write_decomposition(world.root / path, rounds=rounds)
    drawn = drawn_by(figure_averaging, world, target)
    titles = [panel.title for panel in drawn.panels]
    shown = [int(re.search(r"round (\d+)", title)[1]) for title in titles[:-1]]
    assert shown == [1, 4, 9] and "similarity" in titles[-1]
    for number, panel in zip(shown, drawn.panels, strict=False):
        assert f"{60 - number:.2f} to {40 - number:.2f}" in panel.svg
    # By similarity, from the least to the greatest: 0.2 in round 4, 0.9 in round 1.
    assert "12.50 to 50.00" in drawn.panels[-1].svg
    assert [row[1:] for row in drawn.rows] == [
        (str(each["round"]), "–" if each["cka"] is None else f"{each['cka']:.3f}",
         f"{each['errors_by_number'][0]:.2f}", f"{each['error']:.2f}")
        for each in rounds
    ]  # fmt: skip
    assert numbers_in(drawn.sees)[-3:] == pytest.approx([9, 51, 5.56], abs=0.01)


def test_rounds_are_shown_that_all_settings_kept() -> None:
    """Of an even number the later one in the middle."""
    kept: list[Any] = [
        [SimpleNamespace(round=number) for number in numbers]
        for numbers in ((1, 2, 4, 6), (9, 6, 4, 2, 1), (1, 2, 3, 4, 6))
    ]
    assert figure_averaging._shown(kept) == [1, 4, 6]
    assert figure_averaging._shown(kept[1:2]) == [1, 4, 9]
    assert figure_averaging._shown([]) == [] and figure_averaging._shown([kept[0], []]) == []


def test_shares_are_means_over_seeds_and_the_largest_distance_is_told() -> None:
    case = {
        "weights": [0.5, 0.3, 0.2], "followed": [0.6, 0.25, 0.15], "p": [0.012, 0.5],
        "sampled": [[0.62, 0.28, 0.1], [0.56, 0.26, 0.18]],
    }  # fmt: skip
    drawn = Drawn("", ())
    figure_shares._add(drawn, "unequal", case)
    assert drawn.rows == [
        ("unequal", "client 1", "50.0", "60.0", "59.0"),
        ("unequal", "client 2", "30.0", "25.0", "27.0"),
        ("unequal", "client 3", "20.0", "15.0", "14.0"),
    ]
    assert numbers_in(drawn.sees) == [9.0]
    assert drawn.caption.endswith("p = 0.01, 0.50.")
    far = {
        **case,
        "weights": [0.7, 0.1, 0.2],
        "sampled": [[0.4, 0.4, 0.2], [0.4, 0.4, 0.2], [0.1, 0.7, 0.2]],
    }
    other = Drawn("", ())
    figure_shares._add(other, "unequal", far)
    assert [row[-1] for row in other.rows] == ["30.0", "50.0", "20.0"]
    assert numbers_in(other.sees) == [40.0]
    less = {**far, "weights": [0.8, 0.2, 0.2], "sampled": [[0.3, 0.4, 0.3]]}
    figure_shares._add(other, "less", less)
    assert numbers_in(other.sees)[-1] == 50.0  # a share that is too small by so much
    (panel,) = drawn.panels
    spans = re.findall(
        r'd="M([\d.]+),[\d.]+H([\d.]+)" stroke="[^"]*" stroke-width="1.6"', panel.svg
    )
    long = [float(right) - float(left) for left, right in spans]
    assert long[::2] == [0, 0, 0]  # a weight has no ends
    assert (
        long[1] / 6 == pytest.approx(long[3] / 2, rel=0.05) == pytest.approx(long[5] / 8, rel=0.05)
    )
