"""The league on made-up numbers: ranks, critical differences, what counts, and its page."""

import copy
import csv
import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import stats

from fedrepro.cli import ranking
from fedrepro.config.loading import load
from fedrepro.config.searches import Searched
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import tables
from fedrepro.report.cells.cell import ComputedTable
from fedrepro.report.cells.league import ALL, Choice, League, league_of, matches_of
from fedrepro.report.pages.league import as_json, as_latex, in_words, write_league
from fedrepro.report.pages.method import in_league
from fedrepro.report.pages.templates import Renderer
from fedrepro.report.papers import published
from fedrepro.report.papers.published import Published
from fedrepro.report.papers.ranks import MeanRanks
from fedrepro.report.site import write_site
from fedrepro.run.results import find_run, made_of
from fedrepro.support import checksummed_json
from fedrepro.workflow import league as plays
from support.refusals import refused
from support.report_world import copy_inputs, write_run
from support.search_world import settle

SEEDS = (1, 2, 3, 4, 5)
COMPACT = {
    "settings": {
        "compact-a": {"extends": "s"},
        "compact-b": {"extends": "s", "epochs": 2},
        "compact-made": {"extends": "s", "evaluator": {"model": "logistic", "epochs": 1}},
    },
    "tables": {
        "compact_made": {
            "title": "Synthetic sets",
            "metric": {"quality": "accuracy"},
            "rows": [
                {"label": "Accuracy", "setting": "compact-made", "league": "made"},
                {
                    "label": "Distance",
                    "setting": "compact-made",
                    "league": "made",
                    "metric": {"quality": "stand_in"},
                },
            ],
            "columns": [
                {"label": "EVG", "method": "fedevg"},
                {"label": "GAN", "method": "fedcgan"},
                {"label": "VAE", "method": "fedcvae"},
            ],
        },
        "compact_accuracy": {
            "title": "Accuracy",
            "metric": "accuracy",
            "rows": [
                {"label": "A", "setting": "compact-a", "league": "skew"},
                {"label": "A's loss", "setting": "compact-a", "metric": "loss", "league": "skew"},
                {"label": "B", "setting": "compact-b", "league": "skew"},
                {"label": "B again", "setting": "compact-b", "league": "other"},
            ],
            "columns": [
                {"label": "Averaging", "method": "fedavg"},
                {"label": "FedProx", "method": "fedprox"},
                {"label": "The better", "method": ["fednova", "scaffold"]},
                {"label": "Nova", "method": "fednova"},
                {"label": "Central", "method": "central"},
            ],
        },
    },
}


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    settle(tmp_path, seeds={"demo": [1], "compact": list(SEEDS), "paper": [1]})
    file = tmp_path / "config/compact/own.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(COMPACT), encoding="utf-8")
    copy_inputs(tmp_path)
    return load(tmp_path)


def give(
    bench: Workbench, setting: str, method: str, values: Mapping[int, float], **changes: Any
) -> None:
    """Runs that end with these accuracies, in percent; their losses fall with it."""
    for seed, value in values.items():
        run = RunKey(f"own/{setting}", method, seed)
        write_run(bench, run, [0.5, value / 100], **changes)


def around(mean: float, spread: float = 1.0) -> dict[int, float]:
    """Five numbers with this mean."""
    return {seed: mean + spread * (seed - 3) for seed in SEEDS}


def judged(bench: Workbench, method: str, values: Mapping[int, float]) -> None:
    """Synthetic sets with these accuracies, in percent; their distances fall with it."""
    for seed, value in values.items():
        run = RunKey("own/compact-made", method, seed)
        path = run.analysis("quality")
        content = {
            "of": made_of([find_run(bench.root, run)]),
            "classes": 2,
            "numbers": {"accuracy": value / 100, "stand_in": 200 - value},
        }
        (bench.root / path).parent.mkdir(parents=True, exist_ok=True)
        checksummed_json.write(bench.root / path, content, checksummed_json.of_results(path))


def computed(bench: Workbench) -> dict[tuple[str, str], ComputedTable]:
    names = ("compact_accuracy", "compact_made")
    targets = [bench.table("own", name, "compact") for name in names]
    return {(each.system, each.item): tables.compute(bench, each, Published()) for each in targets}


def found(bench: Workbench, **more: Any) -> League:
    return league_of(bench, computed(bench), **more)


def by_label(league: League) -> dict[str, Any]:
    return {each.match.label: each for each in league.played}


def test_few_settings_decide_nothing_and_it_says_so(bench: Workbench) -> None:
    for method, mean in (("fedavg", 60), ("fedprox", 70), ("fednova", 80)):
        for setting in ("compact-a", "compact-b"):
            give(bench, setting, method, around(mean))
    standing = found(bench).standings[0]
    assert standing.mean_ranks
    assert standing.mean_ranks.critical > 2
    assert "nothing" in in_words(standing, None)
    many = MeanRanks({"own": 1.0, "FedAvg": 2.0}, 30, 0.36)
    words = in_words(type(standing)("skew", (), many), "own")
    assert re.search(r"\b0\.36: FedAvg\b", words)


def test_ranks_leads_and_best_other(bench: Workbench) -> None:
    give(bench, "compact-a", "fedavg", around(60, 2.0))
    give(bench, "compact-a", "fedprox", around(70, 2.0))
    give(bench, "compact-a", "fednova", {seed: 65.0 + (seed % 2) for seed in SEEDS})
    played = by_label(found(bench, own="fedprox"))
    first, loss = played["A"], played["A's loss"]
    assert first.ranks == {"fedprox": 1.0, "Nova": 2.0, "FedAvg": 3.0}
    assert first.best_other.name == "Nova"
    lead = first.lead("fedprox", "FedAvg")
    assert lead.lead == pytest.approx(10.0)
    assert first.lead("Nova", "FedAvg").low < 5.6 < first.lead("Nova", "FedAvg").high
    # A lower loss is better, and a lead is positive where a method is better.
    assert loss.ranks["fedprox"] == 1.0
    assert loss.lead("fedprox", "FedAvg").lead > 0
    assert first.entry("fedprox").estimate.std == pytest.approx(2.0 * math.sqrt(2.5))


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("label", ["ditto", "FedAvg"])
def test_a_column_with_the_name_of_another_method_is_told_apart(
    tmp_path: Path, label: str, order: int
) -> None:
    """Its numbers are not the other's: a rank is by a method's own."""
    compact = copy.deepcopy(COMPACT)
    columns = compact["tables"]["compact_accuracy"]["columns"]
    columns[1]["label"] = label
    compact["tables"]["compact_accuracy"]["columns"] = columns[::order]
    settle(tmp_path, seeds={"demo": [1], "compact": list(SEEDS), "paper": [1]})
    file = tmp_path / "config/compact/own.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(compact), encoding="utf-8")
    copy_inputs(tmp_path)
    bench = load(tmp_path)
    own = "ditto"
    give(bench, "compact-a", "fedavg", around(60))
    give(bench, "compact-a", "fedprox", around(50))
    give(bench, "compact-a", own, around(70))
    first = by_label(found(bench, own=own))["A"]
    assert first.ranks[own] == 1 and first.ranks["FedAvg"] == 2
    assert sorted(first.ranks.values()) == [1, 2, 3]
    assert first.lead(own, "FedAvg").lead == pytest.approx(10)
    assert in_league(bench, [first])["fedprox"].stands[0].rank == 3


def test_what_does_not_count(bench: Workbench) -> None:
    give(bench, "compact-a", "fedavg", around(60))
    give(bench, "compact-a", "fedprox", {1: 90.0, 2: 91.0})
    give(bench, "compact-a", "fednova", around(99), epochs=7)
    give(bench, "compact-a", "central", around(99))
    first = by_label(found(bench))["A"]
    assert list(first.scores) == ["FedAvg"]
    assert first.ranks == {}  # one method alone has no rank
    assert first.entry("FedProx").why == "2 of 5 seeds"
    assert "epochs" in first.entry("Nova").why
    assert first.entry("Central") is None
    assert "The better" in first.left_out
    assert first.lead("FedProx", "FedAvg") is None
    # With the seeds that it has, it counts.
    assert by_label(found(bench, seeds=2))["A"].ranks == {"FedProx": 1.0, "FedAvg": 2.0}


def test_numbers_of_other_code_do_not_count(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(bench, "compact-a", "fedavg", around(60))
    give(bench, "compact-a", "fedprox", around(70))
    monkeypatch.setattr("fedrepro.provenance.numerics.of_run", lambda spec: {"engine": "other"})
    first = by_label(found(bench))["A"]
    assert first.ranks == {}
    assert "code" in first.entry("FedAvg").why


def test_a_method_that_diverges_is_last(bench: Workbench) -> None:
    give(bench, "compact-a", "fedavg", around(60))
    give(bench, "compact-a", "fedprox", {1: 90.0, 2: 91.0, 3: 92.0, 4: 93.0})
    give(bench, "compact-a", "fedprox", {5: 20.0}, status="diverged")
    first = by_label(found(bench))["A"]
    assert first.ranks == {"FedAvg": 1.0, "FedProx": 2.0}
    assert first.best_other.name == "FedAvg"
    assert first.lead("FedProx", "FedAvg") is None


def test_standings_by_group_and_over_all(bench: Workbench) -> None:
    for method, a, b in (("fedavg", 60, 70), ("fedprox", 70, 60), ("fednova", 65, 65)):
        give(bench, "compact-a", method, around(a))
        give(bench, "compact-b", method, around(b))
    league = found(bench)
    standing = {each.group: each.mean_ranks for each in league.standings}
    assert list(standing) == ["skew", "other", ALL]
    assert standing["skew"].means == {"FedAvg": 2.0, "FedProx": 2.0, "Nova": 2.0}
    assert standing["skew"].settings == 2
    assert standing["other"].means == {"FedAvg": 1.0, "Nova": 2.0, "FedProx": 3.0}
    assert standing["other"].settings == 1
    assert standing[ALL].settings == 2  # a setting in two groups is one setting
    assert len(league.ranked) == 4
    assert league.preliminary == ""
    assert found(bench, seeds=4).preliminary == "preliminary: 4 seeds"
    first, *others = league.standings
    few = replace(first, matches=(replace(first.matches[0], seeds=(1, 2)), *first.matches[1:]))
    assert replace(league, standings=(few, *others)).preliminary == "preliminary: 2 seeds"
    alone = replace(league.played[0], seeds=(1,))  # a match that is in no standing
    assert replace(league, played=(*league.played, alone)).preliminary == ""


def test_a_match_without_the_own_method_does_not_count(bench: Workbench) -> None:
    for method in ("fedavg", "fednova"):
        give(bench, "compact-a", method, around(60))
        give(bench, "compact-b", method, around(60))
    give(bench, "compact-a", "fedprox", around(70))
    league = found(bench, own="fedprox")
    assert [each.match.label for each in league.ranked] == ["A", "A's loss"]
    assert league.standings[0].mean_ranks.means == {"fedprox": 1.0, "FedAvg": 2.5, "Nova": 2.5}


def test_a_row_s_wrapper_is_around_every_method(bench: Workbench) -> None:
    """Also around FedAvg, over which leads are, and around the reader's own method."""
    table = COMPACT["tables"]["compact_accuracy"]
    row = {"label": "W", "setting": "compact-a", "wrapper": "ima", "league": "skew"}
    best = {
        "label": "Best round",
        "method": "fednova",
        "metric": {"of": "accuracy", "mix": "best", "over_clients": "average"},
    }
    columns = [*table["columns"][:2], *table["columns"][3:4], best]
    wrapped = {**table, "rows": [row], "columns": columns}
    experiment = bench.root / "config/compact/own.yaml"
    content = {**COMPACT, "tables": {**COMPACT["tables"], "compact_accuracy": wrapped}}
    experiment.write_text(yaml.safe_dump(content), encoding="utf-8")
    bench = load(bench.root)
    for method, mean in (("fedavg", 60), ("fedprox", 70), ("fednova", 65)):
        give(bench, "compact-a", f"ima+{method}", around(mean))
        give(bench, "compact-a", method, around(130 - mean))
    for own, name in (("fedprox", "fedprox"), (None, "FedProx")):
        match = by_label(found(bench, own=own))["W"]
        assert match.ranks == {name: 1.0, "Nova": 2.0, "FedAvg": 3.0}
        assert match.lead(name).lead == pytest.approx(10)
        assert [*match.left_out] == ["Best round"]


def test_a_page_without_any_result(bench: Workbench) -> None:
    league = found(bench)
    assert league.standings == () and league.ranked == []
    page = written(bench, league)
    assert 'class="ranks"' not in page and "fedrepro rank my_method" in page


def written(bench: Workbench, league: League) -> str:
    renderer = Renderer(bench.root)
    page = write_league(renderer, bench, league, published.load(bench.root).references)
    return (bench.root / page).read_text(encoding="utf-8")


def test_page_csv_latex_and_json_have_the_same_numbers(bench: Workbench) -> None:
    for method, mean in (("fedavg", 60), ("fednova", 65), ("fedprox", 70)):
        for setting in ("compact-a", "compact-b"):
            give(bench, setting, method, around(mean))
    choice = Choice("own/compact-a", "fedprox_mu0.1", 3, 2, {"mu": 0.1}, 71.5)
    refused = {"own/compact-b: B again": "it can't <run>"}
    matches = [match for match in matches_of(bench) if match.title not in refused]
    league = found(bench, own="fedprox", matches=matches)
    league = replace(league, unable=refused, searched=(choice,))
    page = written(bench, league)
    text = re.sub(r"<[^>]+>|\s+", " ", page)
    assert "it can&#39;t &lt;run&gt;" in text
    assert "2 of 3 candidates" in text
    assert "70.00" in text and "+10.00" in text
    assert page.count('class="ranks"') == 1
    # The same lead with every seed has no interval; that of the losses differs.
    assert page.count('class="strip"') == 1
    assert re.search(rf"\bheart\b[^.]*{', '.join(map(str, SEEDS))}", text)
    with (bench.root / "reports/site/league.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["match"] == "A"]
    assert {row["method"]: row["rank"] for row in rows} == {
        "fedprox": "1.0", "FedAvg": "3.0", "Nova": "2.0"
    }  # fmt: skip
    assert [row["method"] for row in rows if row["own"] == "true"] == ["fedprox"]
    assert {row["mean"] for row in rows} == {"60.0", "65.0", "70.0"}
    latex = as_latex(league)
    assert "\\textbf{fedprox} & 70.00 $\\pm$ 1.96 &" in latex
    assert latex.count("\\begin{tabular}") == latex.count("\\end{tabular}") == 2  # skew, made
    as_values = as_json(league)
    assert as_values["matches"][0]["methods"][0]["lead_over_fedavg"]["lead"] == pytest.approx(10)


def test_an_interval_is_drawn_for_each_setting_that_has_one(bench: Workbench) -> None:
    give(bench, "compact-a", "fedavg", around(60))
    give(bench, "compact-a", "fedprox", around(70, 2.0))
    page = written(bench, found(bench, own="fedprox"))
    assert page.count('class="strip"') == 2


def test_the_site_has_it_and_links_it(bench: Workbench) -> None:
    give(bench, "compact-a", "fedavg", around(60))
    give(bench, "compact-a", "fednova", around(70))
    papers = published.load(bench.root)
    tables.write(bench, bench.table("own", "compact_accuracy"), papers)
    folder = (bench.root / write_site(bench, papers, [])).parent
    page = (folder / "league.html").read_text(encoding="utf-8")
    assert "<h1>The league</h1>" in page
    assert "70.00" in page
    assert (folder / "league.csv").exists() and (folder / "league.tex").exists()
    assert 'href="methods/fednova.html">fednova</a>, <a href="https://' in page
    assert 'href="methods/fednova.bib"' in page
    (row,) = re.findall(r"<tr>.*?</tr>", page.partition('id="settings"')[2], re.DOTALL)[1:2]
    for wanted in ('data-label="Clients">', 'data-label="Rounds">', "70.00"):
        assert wanted in row
    for name in ("index.html", "claims.html", "cost.html"):
        assert 'href="league.html"' in (folder / name).read_text(encoding="utf-8")


def test_a_site_without_a_league_does_not_link_it(tmp_path: Path) -> None:
    copy_inputs(settle(tmp_path))
    folder = (tmp_path / write_site(load(tmp_path), Published(), [])).parent
    assert not (folder / "league.html").exists()
    for name in ("index.html", "claims.html"):
        assert "league.html" not in (folder / name).read_text(encoding="utf-8")


def test_titles_of_all_matches_differ() -> None:
    bench = load(Path(__file__).parents[3])
    titles = [match.title for match in matches_of(bench)]
    assert len(set(titles)) == len(titles) > 3
    assert all(len(match.seeds) >= 5 for match in matches_of(bench))


def test_only_settings_of_scale_compact_are_in_it(bench: Workbench) -> None:
    names = {"own/compact-a", "own/compact-b", "own/compact-made"}
    assert {match.setting for match in matches_of(bench)} == names


# --- less is better, judged sets, and what old code did -------------------------------------------
LABELS = {"fedavg": "FedAvg", "fedprox": "FedProx", "fednova": "Nova"}
SETS = {"fedevg": "EVG", "fedcgan": "GAN", "fedcvae": "VAE"}


@pytest.mark.parametrize("order", [*itertools.permutations((60, 70, 80))])
@pytest.mark.parametrize("own", ["fedprox", None])
def test_a_measure_that_falls_ranks_as_one_that_rises(
    bench: Workbench, order: tuple[int, ...], own: str | None
) -> None:
    """Losses fall as accuracies rise: every rank, best method and sign of a lead is the same."""
    for method, mean in zip(LABELS, order, strict=True):
        give(bench, "compact-a", method, around(mean, 1.0 + mean % 7))
    names = {**LABELS, "fedprox": own or "FedProx"}
    played = by_label(found(bench, own=own))
    place = sorted(order, reverse=True)
    wanted = {
        names[method]: 1.0 + place.index(mean) for method, mean in zip(LABELS, order, strict=True)
    }
    for label in ("A", "A's loss"):
        match = played[label]
        assert match.ranks == wanted, label
        others = {name: rank for name, rank in wanted.items() if name != own}
        assert match.best_other.name == min(others, key=others.__getitem__)
        for one, other in itertools.permutations(wanted, 2):
            lead = match.lead(one, other)
            assert (lead.lead > 0) == (wanted[one] < wanted[other])
            assert lead.lead == pytest.approx(-match.lead(other, one).lead)
    (standing,) = found(bench, own=own).standings
    assert standing.mean_ranks.means == dict(sorted(wanted.items(), key=lambda each: each[1]))


def test_synthetic_sets_are_ranked_by_what_judged_them(bench: Workbench) -> None:
    """By accuracy upwards and by distance downwards; one that nobody judged yet has no number."""
    for method, mean in zip(SETS, (60, 80, 70), strict=True):
        give(bench, "compact-made", method, around(10))
        judged(bench, method, around(mean, 2.0))
    played = by_label(found(bench))
    for label in ("Accuracy", "Distance"):
        match = played[label]
        assert match.match.judged
        assert match.ranks == {"GAN": 1.0, "VAE": 2.0, "EVG": 3.0}
        assert match.best_other.name == "GAN"
        assert match.lead("GAN", "EVG").lead == pytest.approx(20)
    assert played["Accuracy"].entry("GAN").estimate.mean == pytest.approx(80)
    assert played["Distance"].entry("GAN").estimate.mean == pytest.approx(120)
    assert not played["A"].match.judged


def test_a_set_that_is_not_judged_has_no_number_and_is_due(bench: Workbench) -> None:
    for method in SETS:
        give(bench, "compact-made", method, around(10))
    judged(bench, "fedevg", around(60))
    judged(bench, "fedcgan", {1: 70.0, 2: 70.0})
    match = by_label(found(bench))["Accuracy"]
    assert match.ranks == {} and list(match.scores) == ["EVG"]
    assert re.findall(r"\d+", match.entry("GAN").why)[:3] == ["2", "5", "3"]
    assert re.findall(r"\d+", match.entry("VAE").why)[:1] == ["1"]
    for method, seed, there in (("fedevg", 5, True), ("fedcgan", 2, True), ("fedcgan", 3, False)):
        run = RunKey("own/compact-made", method, seed)
        assert plays.is_there(bench, run, judged=True) == there
        assert plays.is_there(bench, run, judged=False)


@pytest.mark.parametrize("other", [{"epochs": 7}, "code"])
def test_a_divergence_of_other_code_or_configuration_is_none(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, other: Any
) -> None:
    """It says nothing of today's method: no last rank, and the run is due again."""
    give(bench, "compact-a", "fedavg", around(60))
    give(bench, "compact-a", "fednova", around(50))
    give(bench, "compact-a", "fedprox", {1: 90.0, 2: 91.0, 3: 92.0, 4: 93.0})
    run = RunKey("own/compact-a", "fedprox", 5)
    changes = other if other != "code" else {}
    with monkeypatch.context() as patched:
        if other == "code":
            patched.setattr("fedrepro.provenance.numerics.of_run", lambda spec: {"engine": "other"})
        write_run(bench, run, [0.5, 0.2], status="diverged", **changes)
    for label in ("A", "A's loss"):
        match = by_label(found(bench))[label]
        entry = match.entry("FedProx")
        assert not entry.diverged and entry.why.startswith("4 of 5 seeds")
        assert match.ranks == {"FedAvg": 1.0, "Nova": 2.0}
    assert not plays.is_there(bench, run)
    assert plays.is_there(bench, RunKey("own/compact-a", "fedprox", 4))


def test_a_divergence_is_last_by_a_falling_measure_too(bench: Workbench) -> None:
    """However small its loss was before; only the seeds that are compared count."""
    give(bench, "compact-a", "fedavg", around(60))
    give(bench, "compact-a", "fednova", around(50))
    give(bench, "compact-a", "fedprox", {1: 90.0, 2: 91.0, 3: 92.0, 4: 93.0})
    give(bench, "compact-a", "fedprox", {5: 99.0}, status="diverged")
    for label in ("A", "A's loss"):
        match = by_label(found(bench))[label]
        assert match.entry("FedProx").diverged
        assert match.ranks == {"FedAvg": 1.0, "Nova": 2.0, "FedProx": 3.0}
        assert match.best_other.name == "FedAvg"
        fewer = by_label(found(bench, seeds=4))[label]
        assert fewer.ranks == {"FedProx": 1.0, "FedAvg": 2.0, "Nova": 3.0}
    assert plays.is_there(bench, RunKey("own/compact-a", "fedprox", 5), judged=True)


@pytest.mark.parametrize("label", ["A", "A's loss"])
def test_a_search_chooses_the_best_on_validation(bench: Workbench, label: str) -> None:
    """By more accuracy or less loss; a candidate of other code or that diverged is not tried."""
    match = next(each for each in matches_of(bench) if each.label == label)
    grid = Searched(method="fedprox", grid={"mu": [0.01, 0.1, 0.5, 0.9]})
    (search,) = plays.searches_of(bench, [match], "fedprox", grid)
    scores = {0.01: 0.6, 0.1: 0.8, 0.5: 0.99, 0.9: 0.98}
    for run, (mu, kept) in zip(search.runs, scores.items(), strict=True):
        assert bench.run_spec(run.setting, run.method, 1).hyperparameters["fedprox"]["mu"] == mu
        more = {"validation_accuracy": [0.1, kept], "validation_loss": [9.0, -math.log(kept)]}
        status = "diverged" if mu == 0.9 else "finished"
        # The test scores say the opposite.
        write_run(bench, run, [0.5, 1 - kept / 2], more=more, status=status,
                  **({"epochs": 7} if mu == 0.5 else {}))  # fmt: skip
    assert [plays.is_there(bench, run) for run in search.runs] == [True, True, False, True]
    (choice,) = plays.choose(bench, [search])
    assert choice.chosen == {"mu": 0.1} and choice.method == "fedprox_mu0.1"
    assert (choice.candidates, choice.tried) == (4, 2)
    assert choice.score == pytest.approx(80 if label == "A" else -math.log(0.8))


@pytest.mark.parametrize(
    ("alike", "chosen"),
    [
        (False, {"fedprox": 1.0, "fedavg": 0.01, "fednova": 0.1}),
        (True, {"fedprox": 0.01, "fedavg": 0.01, "fednova": 0.01}),
    ],
)
def test_all_methods_search_the_same_rates(
    bench: Workbench, alike: bool, chosen: dict[str, float]
) -> None:
    """Each for itself, or with one choice for all; their numbers are those of the chosen runs."""
    (match, *_) = (each for each in matches_of(bench) if each.label == "A")
    grid = Searched(method="fedprox", grid={"lr": [0.01, 0.1, 1.0]})
    searches = plays.searches_of(bench, [match], "fedprox", grid, rivals=True)
    assert [search.method for search in searches] == ["fedprox", "fedavg", "fednova"]
    scores = {"fedprox": [0.8, 0.2, 0.9], "fedavg": [0.8, 0.5, 0.1], "fednova": [0.5, 0.6, 0.3]}
    for search in searches:
        assert len(search.runs) == 3  # the same budget
        for run, kept in zip(search.runs, scores[search.method], strict=True):
            more = {"validation_accuracy": [0.1, kept], "validation_loss": [9.0, 1.0]}
            write_run(bench, run, [0.5, 1 - kept / 2], more=more)
    choices = plays.choose(bench, searches, alike)
    assert {choice.method: choice.chosen for choice in choices} == {
        method: {"lr" if method == "fedprox" else "optimizer.lr": rate}
        for method, rate in chosen.items()
    }
    places = {
        (search.match.setting, search.method): (choice.setting + choice.suffix, choice.method)
        for search, choice in zip(searches, choices, strict=True)
    }
    for number, (method, rate) in enumerate(chosen.items()):
        suffix = f"_optimizer.lr{rate}" if rate != 0.1 else ""  # which the setting has
        assert places["own/compact-a", method] == (f"own/compact-a{suffix}", method)
        give(bench, f"compact-a{suffix}", method, around(60 + number))
    (played,) = found(bench, matches=[match], own="fedprox", methods=places).played
    means = {entry.name: entry.estimate.mean for entry in played.entries if entry.estimate}
    assert means == {"fedprox": 60, "FedAvg": 61, "Nova": 62}


@pytest.mark.parametrize("key", ["rounds", "participation", "partition.test_fraction", "dataset"])
def test_a_search_changes_no_condition_that_methods_share(bench: Workbench, key: str) -> None:
    (match, *_) = (each for each in matches_of(bench) if each.label == "A")
    value: Any = {"dataset": "berka", "rounds": 9}.get(key, 0.5)
    with refused("value", key="--grid", value=key):
        plays.searches_of(bench, [match], "fedprox", Searched(method="x", grid={key: [value]}))


def test_only_keys_of_the_setting_are_searched_by_all(bench: Workbench) -> None:
    (match, *_) = (each for each in matches_of(bench) if each.label == "A")
    grid = Searched(method="fedprox", grid={"mu": [0.1]})
    with refused(key="--grid", value="mu"):
        plays.searches_of(bench, [match], "fedprox", grid, rivals=True)


# --- one league in four renderings ----------------------------------------------------------------
def test_terminal_json_and_csv_tell_the_same_of_every_method(bench: Workbench) -> None:
    """And what they tell is what was given, reckoned with numpy and scipy."""
    given = {
        ("compact-a", "fedavg"): around(60, 2.0), ("compact-a", "fedprox"): around(70, 0.5),
        ("compact-a", "fednova"): {1: 64.0, 2: 66.0, 3: 65.0, 4: 67.0},
        ("compact-b", "fedavg"): around(80, 1.5), ("compact-b", "fedprox"): around(75, -1.0),
        ("compact-b", "fednova"): around(82),
    }  # fmt: skip
    for (setting, method), values in given.items():
        give(bench, setting, method, values)
    league = found(bench, own="fedprox")
    written(bench, league)
    told = as_json(league)
    with (bench.root / "reports/site/league.csv").open(encoding="utf-8") as file:
        lines = {(row["setting"], row["match"], row["method"]): row for row in csv.DictReader(file)}
    methods = {"fedprox": "fedprox", "FedAvg": "fedavg", "Nova": "fednova"}
    seen = 0
    for match, played in zip(told["matches"], league.played, strict=True):
        setting, _, label = match["match"].partition(": ")
        if setting == "own/compact-made":
            continue
        assert match["setting"] == setting and match["seeds"] == [*SEEDS]
        short, loss = setting.removeprefix("own/"), "loss" in label
        assert match["higher_is_better"] == (not loss)
        numbers = {
            name: {
                seed: -math.log(value / 100) if loss else value
                for seed, value in given[short, method].items()
            }
            for name, method in methods.items()
        }
        whole = {name: [*by.values()] for name, by in numbers.items() if len(by) == len(SEEDS)}
        sign = -1 if loss else 1
        order = stats.rankdata([-sign * np.mean(values) for values in whole.values()])
        ranks = dict(zip(whole, order, strict=True))
        own = next(each for each in match["methods"] if each["name"] == "fedprox")
        for each in match["methods"]:
            name, line = each["name"], lines[setting, label, each["name"]]
            assert {int(seed): value for seed, value in each["values"].items()} == pytest.approx(
                numbers[name]
            )
            assert (line["own"] == "true") == (name == "fedprox")
            assert (
                line["seeds"] == str(len(numbers[name])) and line["why_not_ranked"] == each["why"]
            )
            assert bool(each["why"]) == (name not in whole)
            assert each["rank"] == ranks.get(name)
            assert line["rank"] == ("" if each["rank"] is None else str(each["rank"]))
            lead = each["lead_over_fedavg"]
            assert (lead is None) == (name in ("FedAvg",) or name not in whole)
            for key, column in (("lead", "lead_over_fedavg"), ("low", "low"), ("high", "high")):
                assert line[column] == ("" if lead is None else str(lead[key]))
            if name in whole:
                assert float(line["mean"]) == pytest.approx(np.mean(whole[name]))
                assert float(line["std"]) == pytest.approx(np.std(whole[name], ddof=1))
            if lead:
                gains = sign * (np.array(whole[name]) - np.array(whole["FedAvg"]))
                # Three looks at this level are one test at 5 %.
                half = stats.t.ppf(1 - 0.0221 / 2, 4) * np.std(gains, ddof=1) / math.sqrt(5)
                ends = (np.mean(gains) - half, np.mean(gains), np.mean(gains) + half)
                assert (lead["low"], lead["lead"], lead["high"]) == pytest.approx(ends)
            seen += 1
        others = {name: rank for name, rank in ranks.items() if name != "fedprox"}
        best = min(others, key=others.__getitem__)

        def shown(name: str, whole: Mapping[str, list[float]] = whole) -> str:
            half = stats.t.ppf(0.975, 4) * np.std(whole[name], ddof=1) / math.sqrt(5)
            return f"{np.mean(whole[name]):.2f} ± {half:.2f}"

        lead = own["lead_over_fedavg"]
        title, *cells = ranking._row(league, played)
        assert title.startswith(match["match"])
        assert bool(title.removeprefix(match["match"])) == loss  # says that lower is better
        assert tuple(cells) == (
            shown("fedprox"),
            shown("FedAvg"),
            f"{shown(best)} {best}",
            f"{lead['lead']:+.2f} [{lead['low']:+.2f}, {lead['high']:+.2f}]",
            f"{ranks['fedprox']:g} of {len(ranks)}",
            "5",
        )
    assert seen == 12
    # Demsar's table of q: 1.960 for two methods, in two settings and in one of them.
    critical = {each["group"]: each["critical_difference"] for each in told["standings"]}
    settings = {each["group"]: each["settings"] for each in told["standings"]}
    assert settings == {"skew": 2, "other": 1, ALL: 2}
    assert critical["skew"] == pytest.approx(1.960 * math.sqrt(2 * 3 / (6 * 2)), abs=1e-3)
    assert critical["other"] == pytest.approx(2.343 * math.sqrt(3 * 4 / 6), abs=1e-3)


def test_remarks_name_every_choice_every_gap_and_every_refusal(bench: Workbench) -> None:
    """Below the table of `fedrepro rank`, a line each; nothing is said of what there is not."""
    give(bench, "compact-a", "fedavg", around(60))
    give(bench, "compact-a", "fedprox", around(70))
    plain = list(ranking._remarks(found(bench, own="fedprox")))
    choices = [
        Choice("own/compact-a", "fedprox_mu0.1", 5, 3, {"mu": 0.1}, 71.5),
        Choice("own/compact-b", "fedprox", 4, 0, None, None, "there is no score"),
    ]
    unable = {"own/compact-b: B again": "it cannot"}
    for search, who in (("own", ""), ("each", " fedprox_mu0.1"), ("alike", " fedprox_mu0.1")):
        matches = [match for match in matches_of(bench) if match.title not in unable]
        league = found(bench, own="fedprox", matches=matches)
        league = replace(league, searched=tuple(choices), unable=unable, search=search)
        lines = [line for line in ranking._remarks(league) if not line.startswith("No rank")]
        more = [line for line in lines if line not in plain]
        chosen, none = more[:2]
        assert chosen.startswith(f"own/compact-a{who}: mu=0.1, ") and "3 of 5 candidates" in chosen
        assert ("all methods together" in chosen) == (search == "alike")
        assert none.startswith("own/compact-b") and none.endswith("there is no score.")
        assert "B again: it cannot" in more[2] and len(more) == (3 if search == "own" else 4)
    means = next(line for line in plain if line.startswith("Mean ranks, skew"))
    assert means.endswith(": fedprox 1.00; FedAvg 2.00.")
    titles = "own/compact-b: B; own/compact-b: B again"
    alone = [line for line in plain if line.startswith("No rank in ")]
    assert len(alone) == 1 and titles in alone[0] and "compact-a" not in alone[0]
    few = list(ranking._remarks(found(bench, own="fedprox", seeds=4)))
    assert [line for line in few if "4 seeds" in line] and not [
        line for line in plain if line.startswith("Preliminary")
    ]
