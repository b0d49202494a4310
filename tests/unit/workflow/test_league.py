"""What a method needs in the league's settings of this repository."""

from pathlib import Path

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
    assert "given.unlabelled: missing" in league.obstacle(bench, matches["label-skew"], "fedgo")
    assert league.obstacle(bench, matches["distillation"], "fedgo") == ""
    assert league.obstacle(bench, matches["label-skew"], "ima+fedprox") == ""
    assert "share no model" in league.obstacle(bench, matches["label-skew"], "local")
    # FedBN shares all of a model without BatchNorm.
    for method, shares in (("fedper", False), ("fedbn", True)):
        assert (league.obstacle(bench, matches["label-skew"], method) == "") is shares
    assert league.obstacle(bench, matches["domains"], "fedbn") == ""
    assert "no synthetic set" in league.obstacle(bench, matches["synthetic"], "fedavg")
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
