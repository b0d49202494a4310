"""What a method needs in the league's settings of this repository."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrepro.config.loading import load
from fedrepro.config.searches import LEAGUE_SHARE, Searched
from fedrepro.config.workbench import Workbench
from fedrepro.workflow import league
from support.places import ROOT


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    (tmp_path / "config").symlink_to(ROOT / "config")
    return load(tmp_path)


def test_a_method_that_needs_what_a_setting_lacks_has_an_obstacle(bench: Workbench) -> None:
    matches = {match.group: match for match in league.chosen_matches(bench, None)}
    assert "inputs.unlabelled: missing" in league.obstacle(bench, matches["label-skew"], "fedgo")
    assert league.obstacle(bench, matches["distillation"], "fedgo") == ""
    assert league.obstacle(bench, matches["label-skew"], "ima+fedprox") == ""
    assert "share no model" in league.obstacle(bench, matches["label-skew"], "local")
    # FedBN shares all of a model without BatchNorm.
    for method, shares in (("fedper", False), ("fedbn", True)):
        assert (league.obstacle(bench, matches["label-skew"], method) == "") is shares
    assert league.obstacle(bench, matches["domains"], "fedbn") == ""
    assert "no synthetic set" in league.obstacle(bench, matches["synthetic"], "fedavg")
    for method in ("fedevg", "fedcvae", "fedcgan"):  # one of which trains classifiers, too
        assert league.obstacle(bench, matches["synthetic"], method) == ""
    # A pre-training is ranked by accuracy only if its clients train classifiers of their own.
    for method, trains in (("fedevg", True), ("fedcvae", False), ("fedavg", True)):
        for group in ("label-skew", "domains"):
            said = league.obstacle(bench, matches[group], method)
            assert ("trains no classifier" not in said) is trains


def test_no_search_with_what_has_seen_the_validation_samples(bench: Workbench) -> None:
    matches = league.chosen_matches(bench, "distillation")
    grid = Searched(method="fedgo", grid={"server_epochs": [1, 2]})
    searches = league.searches_of(bench, matches, "fedgo", grid)
    assert all(not search.candidates for search in searches)
    assert "discriminators" in searches[0].why


def test_candidates_differ_in_the_grid_and_keep_validation_samples(bench: Workbench) -> None:
    matches = league.chosen_matches(bench, "fair-silos")
    grid = Searched(method="ima+fedprox", grid={"fedprox.mu": [0.1, 1.0], "ima.period": [5]})
    searches = league.searches_of(bench, matches, "ima+fedprox", grid)
    assert len(searches) == len({match.setting for match in matches}) < len(matches)
    for search in searches:
        assert len(search.runs) == 2
        for run, mu in zip(search.runs, (0.1, 1.0), strict=True):
            spec = bench.run_spec(run.setting, run.method, run.seed)
            assert spec.setting.partition.validation == LEAGUE_SHARE
            assert spec.hyperparameters["fedprox"]["mu"] == mu
            assert spec.hyperparameters["ima"]["period"] == 5
        plain = bench.setting(search.match.setting)
        assert not plain.partition.validation


def test_a_candidate_with_a_word_is_known_to_every_process(bench: Workbench) -> None:
    """Its run is named by its values, and whoever trains it reads them from the name."""
    (match, *_) = league.chosen_matches(bench, "label-skew")
    grid = Searched(method="ima+fedprox", grid={"scheme": ["cyclic", "constant"]})
    (search,) = league.searches_of(bench, [match], "ima+fedprox", grid)
    schemes = [
        load(bench.root).run_spec(run.setting, run.method, 1).hyperparameters["ima"]["scheme"]
        for run in search.runs
    ]
    assert schemes == ["cyclic", "constant"]


def test_rivals_are_the_row_s_methods_in_its_setting_that_choose_by_no_test_sample(
    bench: Workbench,
) -> None:
    of_tables = {
        (match.system, match.item): league.rivals_of(bench, match)
        for match in league.chosen_matches(bench, None)
    }
    assert all("central" not in rivals for rivals in of_tables.values())
    assert of_tables["fedgo", "compact_accuracy"][0] == "fedavg"  # after central
    assert of_tables["fedevg", "compact_accuracy"] == ["fedevg"]  # others have other settings
    table = bench.table("superfed", "compact_beyond", "compact").table
    fixed = [column.method for column in table.columns if column.mix != "best"]
    assert len(fixed) < len(table.columns)
    assert of_tables["superfed", "compact_beyond"] == [name for name in fixed if name != "central"]


@pytest.mark.parametrize("alike", [False, True])
def test_each_method_takes_its_best_candidate_or_all_the_best_on_average(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, alike: bool
) -> None:
    """Among those that have a score; with a choice for all, those that each method has."""
    (match, *_) = league.chosen_matches(bench, "availability")
    grid = Searched(method="fedprox", grid={"lr": [0.01, 0.02, 0.04, 0.08]})
    searches = league.searches_of(bench, [match], "fedprox", grid, rivals=True)
    scores: dict[int, list[Any]] = {}
    monkeypatch.setattr(league, "_scores", lambda _, search: scores[id(search)])
    for seed in range(6):
        rnd = random.Random(seed)
        missing = [0.0, 0.1, 0.3][seed % 3]
        scores |= {
            id(each): [None if rnd.random() < missing else rnd.random() for _ in each.candidates]
            for each in searches
        }
        known = np.array([scores[id(each)] for each in searches], float)  # NaN for None
        assert known.shape == (5, 4)
        deciding = np.broadcast_to(known.mean(0), known.shape) if alike else known
        for search, choice, own, by in zip(
            searches, league.choose(bench, searches, alike), known, deciding, strict=True
        ):
            assert (choice.candidates, choice.method) == (4, search.method)
            if np.isnan(by).all():
                assert (choice.tried, choice.chosen) == (0, None) and "no candidate" in choice.why
                continue
            best = int(np.nanargmax(by))
            assert choice.tried == np.isfinite(own).sum()
            assert choice.chosen == [*search.candidates.values()][best]
            assert choice.score == own[best]
