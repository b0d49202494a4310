"""What a method needs in the league's settings of this repository."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrepro.config.loading import load
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.searches import LEAGUE_SHARE, Searched, validated_name
from fedrepro.config.settings import ArtifactFromData
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.data.dataset import PREPARED
from fedrepro.report.cells.league import Match, reads_test_set
from fedrepro.run.results import find_run, made_of
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError
from fedrepro.workflow import league
from support.places import ROOT
from support.refusals import refused
from support.report_world import write_run


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    (tmp_path / "config").symlink_to(ROOT / "config")
    return load(tmp_path)


def test_a_method_that_needs_what_a_setting_lacks_has_an_obstacle(bench: Workbench) -> None:
    matches = {match.group: match for match in league.chosen_matches(bench, None)}
    assert "inputs.unlabelled: missing" in league.obstacle(bench, matches["label-skew"], "fedgo")
    assert league.obstacle(bench, matches["distillation"], "fedgo") == ""
    assert league.obstacle(bench, matches["label-skew"], "ima+fedprox") == ""
    assert " model" in league.obstacle(bench, matches["label-skew"], "local")
    # FedBN shares all of a model without BatchNorm.
    for method, shares in (("fedper", False), ("fedbn", True)):
        assert (league.obstacle(bench, matches["label-skew"], method) == "") is shares
    assert league.obstacle(bench, matches["domains"], "fedbn") == ""
    # Scores of clients beside it do not matter where the row's metric is of the test set.
    both = replace(matches["domains"], on_test_set=True)
    for method, shares in (("local", False), ("fedper", False), ("fedavg", True)):
        assert league.obstacle(bench, matches["domains"], method) == ""
        assert (league.obstacle(bench, both, method) == "") is shares
    assert matches["label-skew"].on_test_set and not matches["domains"].on_test_set
    for method in ("fedavg", "local"):  # also if each client has a model of its own
        assert "synthetic" in league.obstacle(bench, matches["synthetic"], method)
    for method in ("fedevg", "fedcvae", "fedcgan"):  # one of which trains classifiers, too
        assert league.obstacle(bench, matches["synthetic"], method) == ""
    # A pre-training is ranked by accuracy only if its clients train classifiers of their own.
    for method, trains in (("fedevg", True), ("fedcvae", False), ("fedavg", True)):
        for group in ("label-skew", "domains"):
            said = league.obstacle(bench, matches[group], method)
            assert ("classifier" not in said) is trains


def test_damaged_data_of_one_match_stop_no_other(bench: Workbench) -> None:
    """The catalogue has no size of a reader's own data: what is prepared says what is there."""
    (match,) = league.chosen_matches(bench, "label-skew")[:1]
    name = bench.setting(match.setting).dataset
    bench.datasets[name] = bench.datasets[name].model_copy(update={"size": None})
    folder = bench.root / PREPARED / name
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text("{}")
    assert match in league.chosen_matches(bench, None)
    with refused():
        reads_test_set(bench, match)


def test_no_search_with_what_has_seen_the_validation_samples(bench: Workbench) -> None:
    """What clients train for a method is trained again, without their validation samples."""
    matches = league.chosen_matches(bench, "distillation")
    grid = Searched(method="fedgo", grid={"server_epochs": [1, 2]})
    searches = league.searches_of(bench, matches, "fedgo", grid)
    for run in (run for search in searches for run in search.runs):
        spec = bench.run_spec(run.setting, run.method, run.seed)
        given = spec.inputs["discriminators"]
        assert isinstance(given, RunSpec)
        assert given.setting.partition == spec.setting.partition
        assert given.setting.partition.validation == LEAGUE_SHARE
    assert all(search.runs for search in searches)


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
    assert of_tables["fedevg", "compact_searched_accuracy"] == [
        "fedevg"
    ]  # others have other settings
    table = bench.table("superfed", "compact_beyond", "compact").table
    fixed = [
        column.method for column in table.columns if column.mix not in ("best", "cross_fitted")
    ]
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


def one_of(bench: Workbench, group: str) -> Match:
    return league.chosen_matches(bench, group)[0]


def test_the_matches_of_a_group_and_of_all(bench: Workbench) -> None:
    every = league.chosen_matches(bench, None)
    groups = {match.group for match in every}
    assert len(groups) > 5
    for group in groups:
        of_group = league.chosen_matches(bench, group)
        assert of_group == [match for match in every if match.group == group] != []
    with refused("value", key="--on", value="atacks", near="attacks"):
        league.chosen_matches(bench, "atacks")


def test_variants_and_plug_ins_are_known_and_other_names_are_not(bench: Workbench) -> None:
    variants = {name for each in bench.experiments.values() for name in each.methods}
    own = variants - {*league.part_files(bench.plugins)}
    assert own
    for name in own:
        league.refuse_unknown(bench, [], f"ima+{name}")
    for name in ("fedprx", "ima+fedprx", "fedprx+fedavg"):
        with pytest.raises(UserError, match="METHOD: 'fedprx':"):
            league.refuse_unknown(bench, [], name)


def searched(bench: Workbench, match: Match, **grid: list[Any]) -> league.Search:
    asked = Searched(method="fedprox", grid={key.replace("__", "."): grid[key] for key in grid})
    (search,) = league.searches_of(bench, [match], "fedprox", asked)
    return search


@pytest.mark.parametrize(
    ("key", "value"), [("rounds", 7), ("participation", 0.5), ("model", "logistic")]
)
def test_what_all_methods_of_a_setting_have_alike_cannot_be_searched(
    bench: Workbench, key: str, value: Any
) -> None:
    match = one_of(bench, "label-skew")
    with pytest.raises(UserError, match=f"--grid: '?{key}"):
        searched(bench, match, **{key: [value]})
    for fine in ({"lr": [0.1]}, {"epochs": [2]}, {"batch_size": [7]}, {"lr_decay": [0.5]}):
        assert len(searched(bench, match, **fine).candidates) == 1


@pytest.mark.parametrize("given", ["at the server", "the same seed", "another seed"])
def test_what_was_trained_on_the_server_s_samples_saw_no_validation_sample(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    match = one_of(bench, "label-skew")
    spec = bench.run_spec(validated_name(match.setting, LEAGUE_SHARE), "fedavg", 1)
    source = {
        "at the server": replace(spec, setting=bench.setting("fedgo/compact-gan"), seed=7),
        "the same seed": spec,
        "another seed": replace(spec, seed=7),
    }[given]
    of_data = ArtifactFromData(dataset="mnist")
    whole = replace(
        spec, inputs={"data": of_data, "generator": replace(spec, inputs={"x": source})}
    )
    monkeypatch.setattr(Workbench, "run_spec", lambda *about: whole)
    search = searched(bench, match, mu=[0.5, 2.0])
    seen = given == "another seed"
    assert len(search.candidates) == (0 if seen else 2)
    assert ("generator" in search.why) == seen


def test_validation_samples_with_another_use_are_not_searched_on(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    match = one_of(bench, "label-skew")
    assert searched(bench, match, mu=[0.5]).why == ""
    plain = bench.setting(match.setting)
    kept = plain.model_copy(
        update={"partition": plain.partition.model_copy(update={"validation": 0.1})}
    )
    known = {**bench.settings, match.setting: kept}
    monkeypatch.setattr(Workbench, "setting", lambda _, name: known[name])
    assert "another use" in searched(bench, match, mu=[0.5]).why


def test_the_setting_as_it_is_has_no_suffix_and_others_theirs(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So runs that are there count; the value is the setting's own or the method's."""
    match = one_of(bench, "label-skew")
    rate = bench.setting(match.setting).optimizer.lr
    search = searched(bench, match, lr=[rate, 2 * rate])
    for best in (0, 1):
        scores = [0.5, 0.5]
        scores[best] = 0.6
        monkeypatch.setattr(league, "_scores", lambda *_, scores=scores: scores)
        (choice,) = league.choose(bench, [search])
        assert bool(choice.suffix) == bool(best)
        spec = bench.run_spec(match.setting + choice.suffix, choice.method, 1)
        assert spec.setting.optimizer.lr == (1 + best) * rate
        assert spec.setting.partition == bench.setting(match.setting).partition


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("higher_is_better", [False, True])
def test_where_less_is_better_the_least_is_chosen(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, higher_is_better: bool, alike: bool
) -> None:
    """With a choice for all methods: of a setting, and of those that have candidates."""
    first, *_, other = league.chosen_matches(bench, "availability")
    assert first.setting != other.setting
    matches = [
        replace(each, quantity=replace(each.quantity, higher_is_better=higher_is_better))
        for each in (first, other)
    ]
    grid = Searched(method="fedprox", grid={"mu": [0.5, 2.0]})
    searches = league.searches_of(bench, matches, "fedprox", grid)
    without = replace(searches[0], method="feddyn", candidates={}, why="none")
    assert [search.match.setting for search in searches] == [first.setting, other.setting]
    scores: dict[int, list[Any]] = {
        id(searches[0]): [0.3, 0.4], id(searches[1]): [0.9, 0.1], id(without): [],
    }  # fmt: skip
    monkeypatch.setattr(league, "_scores", lambda _, search: scores[id(search)])
    one, nothing, two = league.choose(bench, [searches[0], without, searches[1]], alike)
    assert (one.chosen, two.chosen) == (
        ({"mu": 2.0}, {"mu": 0.5})[:: 1 if higher_is_better else -1]
    )
    assert (nothing.chosen, nothing.why, nothing.candidates) == (None, "none", 0)
    assert (one.tried, one.candidates) == (two.tried, two.candidates) == (2, 2)


def test_scores_are_those_of_validation_samples_and_of_today_s_runs(bench: Workbench) -> None:
    """Never a test score, nor that of a run of other settings; a divergence has none."""
    match = one_of(bench, "label-skew")
    search = searched(bench, match, mu=[0.25, 0.5, 0.75, 1.5])
    (tried, other, failed, missing), measured = search.runs, {}
    rounds = bench.setting(match.setting).rounds
    for run, kept, changes in (
        (tried, 0.75, {}), (other, 0.5, {"rounds": 1}), (failed, 0.25, {"status": "diverged"}),
    ):  # fmt: skip
        more = {"validation_loss": [1.0] * rounds, "validation_accuracy": [kept] * rounds}
        write_run(bench, run, [0.9] * rounds, more=more, **changes)
        measured[run] = league.is_there(bench, run)
    assert measured == {tried: True, other: False, failed: True}
    assert not league.is_there(bench, missing)
    assert not league.is_there(bench, tried, judged=True)  # its set is not evaluated
    assert league.is_there(bench, failed, judged=True)
    (choice,) = league.choose(bench, [search])
    assert (choice.candidates, choice.tried) == (4, 1)
    assert (choice.chosen, choice.score) == ({"mu": 0.25}, pytest.approx(75.0))


def test_rivals_search_the_setting_s_keys_alone(bench: Workbench) -> None:
    """The method's own hyperparameters are its own, whatever else has a key of that name."""
    match = one_of(bench, "availability")
    rivals = league.rivals_of(bench, match)
    grid = Searched(method="fedprox", grid={"lr": [0.01, 0.02], "mu": [0.5, 1.0, 2.0]})
    searches = league.searches_of(bench, [match], "fedprox", grid, rivals=True)
    assert [each.method for each in searches] == list(dict.fromkeys(["fedprox", *rivals]))
    assert [len(each.candidates) for each in searches] == [6] + [2] * (len(searches) - 1)
    for search in searches:
        assert {RunKey(run.setting, run.method, run.seed) for run in search.runs} == {*search.runs}
        assert {run.seed for run in search.runs} == {match.seeds[0]}
    # Of any part: fedfa's momentum is not the clients'.
    grid = Searched(method="ima+fedfa", grid={"lr": [0.01, 0.02], "momentum": [0.5, 0.6, 0.7]})
    own, *others = league.searches_of(bench, [match], "ima+fedfa", grid, rivals=True)
    assert (len(own.candidates), {len(each.candidates) for each in others}) == (6, {2})
    alone = Searched(method="fedprox", grid={"mu": [0.5]})
    with pytest.raises(UserError, match="--grid: 'mu':"):
        league.searches_of(bench, [match], "fedprox", alone, rivals=True)


def test_candidates_that_make_synthetic_sets_are_scored_on_validation_samples(
    bench: Workbench,
) -> None:
    """By `validation_accuracy` of their evaluation, not by the accuracy on test samples."""
    (match, *_) = league.chosen_matches(bench, "synthetic")
    grid = Searched(method="fedevg", grid={"chain_steps": [1, 2, 3]})
    (search,) = league.searches_of(bench, [match], "fedevg", grid)
    first, second, unjudged = search.runs
    curve = [0.5] * bench.setting(match.setting).rounds
    for run, numbers in (
        (first, {"accuracy": 0.9, "validation_accuracy": 0.25}),
        (second, {"accuracy": 0.1, "validation_accuracy": 0.5}),
    ):
        write_run(bench, run, curve)
        record = find_run(bench.root, run)
        what = run.analysis("quality")
        content = {"of": made_of([record]), "numbers": numbers, "classes": 10}
        checksummed_json.write(bench.root / what, content, checksummed_json.of_results(what))
    write_run(bench, unjudged, curve)
    (choice,) = league.choose(bench, [search])
    assert (choice.candidates, choice.tried) == (3, 2)
    assert (choice.chosen, choice.score) == ({"chain_steps": 2}, pytest.approx(50.0))
