"""Searches: what is selected by which scores, and how their page says so."""

import re
from pathlib import Path

import pytest

from fedrepro.config.loading import load
from fedrepro.config.workbench import Workbench
from fedrepro.report import site
from fedrepro.report.cells.search import MethodSearch, as_far_as_it_went, at_an_end, compute, select
from fedrepro.report.pages.search import search_page
from fedrepro.report.papers import published
from support.report_world import copy_inputs, write_run
from support.search_world import SEARCH, score, settle


def found(bench: Workbench) -> MethodSearch:
    (only,) = compute(bench, bench.search("own", "grid", "demo"))
    return only


def values(one: MethodSearch, place: int | None) -> object:
    return None if place is None else one.tried[place].candidate.values["mu"]


def test_validation_selects_where_test_scores_disagree(tmp_path: Path) -> None:
    bench = load(settle(tmp_path))
    target = bench.search("own", "grid", "demo")
    score(bench, target, "fedprox_mu0.0", [0.80, 0.90], [0.60, 0.70])
    score(bench, target, "fedprox_mu0.1", [0.70, 0.80], [0.75, 0.85])
    score(bench, target, "fedprox_mu1.0", [0.60, 0.70], [0.90, 0.95])
    one = found(bench)
    chosen = (one.published, one.selected, one.test_selected)
    assert [values(one, place) for place in chosen] == [0.1, 0.0, 1.0]
    selected = one.tried[0]
    assert selected.validation.mean == pytest.approx(85)
    assert selected.test.mean == pytest.approx(65)
    assert one.waiting == 0


def test_the_best_mean_over_seeds_counts_not_the_best_seed(tmp_path: Path) -> None:
    bench = load(settle(tmp_path))
    target = bench.search("own", "grid", "demo")
    score(bench, target, "fedprox_mu0.0", [0.99, 0.10], [0.4, 0.4])
    score(bench, target, "fedprox_mu0.1", [0.50, 0.50], [0.5, 0.5])
    score(bench, target, "fedprox_mu1.0", [0.60, 0.58], [0.5, 0.5])
    one = found(bench)
    # Of equal test scores that of the selected one is shown, not the published one's.
    assert [values(one, place) for place in (one.selected, one.test_selected)] == [1.0, 1.0]


def test_less_is_better_of_a_loss(tmp_path: Path) -> None:
    assert select([3.0, 1.0, 2.0], higher_is_better=False, preferred=(0,)) == 1
    assert select([3.0, 1.0, 2.0], higher_is_better=True, preferred=(1,)) == 0


def test_of_equal_scores_the_published_one_then_the_first_counts() -> None:
    assert select([2.0, 3.0, 3.0], higher_is_better=True, preferred=(2,)) == 2
    assert select([2.0, 3.0, 3.0], higher_is_better=True, preferred=(0,)) == 1
    assert select([None, None], higher_is_better=True, preferred=(0,)) is None
    assert select([None, 1.0], higher_is_better=True, preferred=(0,)) == 1


def test_what_lacks_a_seed_or_diverged_is_not_selected(tmp_path: Path) -> None:
    bench = load(settle(tmp_path))
    target = bench.search("own", "grid", "demo")
    assert (found(bench).selected, found(bench).waiting) == (None, 3)
    score(bench, target, "fedprox_mu0.0", [0.9, 0.9], [0.5, 0.5], status="diverged")
    score(bench, target, "fedprox_mu0.1", [0.7, 0.7], [0.5, 0.5])
    one = found(bench)
    assert (values(one, one.selected), one.waiting) == (0.1, 1)
    (run, _) = target.runs_of(target.trials[0].candidates[2])
    assert run.method == "fedprox_mu1.0"


def test_the_chart_frames_what_is_selected(tmp_path: Path) -> None:
    """Not the best mean: a candidate without one of its seeds cannot be selected."""
    copy_inputs(tmp_path)
    bench = load(settle(tmp_path))
    target = bench.search("own", "grid", "demo")
    score(bench, target, "fedprox_mu0.1", [0.70, 0.80], [0.75, 0.85])
    score(bench, target, "fedprox_mu1.0", [0.60, 0.70], [0.50, 0.50])
    first = target.runs_of(target.trials[0].candidates[0])[0]
    more = {"validation_loss": [1.0, 1.0], "validation_accuracy": [0.5, 0.99]}
    write_run(bench, first, [0.5, 0.99], more=more)
    one = found(bench)
    assert [values(one, place) for place in (one.selected, one.test_selected)] == [0.1, 0.1]
    (view,) = search_page(bench, target, published.load(bench.root))["views"]
    cells = re.findall(r'<path d="(M[^"]*z)" fill="var\(--surface-high\)"', view.chart.svg)
    frames = re.findall(r'<path d="(M[^"]*z)" fill="none"', view.chart.svg)
    assert len(cells) == 3 and frames == [cells[1]]


def test_a_run_without_validation_scores_has_no_score(tmp_path: Path) -> None:
    """Its test scores must not stand in for them."""
    bench = load(settle(tmp_path, {"seeds": {"demo": [1]}}))
    target = bench.search("own", "grid", "demo")
    for run in target.runs:
        write_run(bench, run, [0.5, 0.9])
    one = found(bench)
    assert one.selected is None
    assert all(each.validation.hole and each.validation.mean is None for each in one.tried)
    assert [each.test.mean for each in one.tried] == [pytest.approx(90)] * 3


def test_the_page_shows_the_three_choices(tmp_path: Path) -> None:
    copy_inputs(tmp_path)
    methods = [*SEARCH["methods"], {"method": "qfedavg", "grid": {"q": [0.5]}}]
    bench = load(settle(tmp_path, {"methods": methods}))
    target = bench.search("own", "grid", "demo")
    score(bench, target, "fedprox_mu0.0", [0.80, 0.90], [0.6011, 0.7011])
    score(bench, target, "fedprox_mu0.1", [0.70, 0.80], [0.75, 0.85])
    score(bench, target, "fedprox_mu1.0", [0.60, 0.70], [0.9522, 0.9522])
    site.write_page(bench, target, published.load(bench.root))
    text = (bench.root / "reports/site/own/grid.html").read_text(encoding="utf-8")
    rows = re.findall(r"<tr( class=\"optimistic\")?>(.*?)</tr>", text, re.DOTALL)
    rows = [(mark, " ".join(re.sub("<[^>]+>", " ", row).split())) for mark, row in rows]
    optimistic = [row for mark, row in rows if mark]
    assert len(optimistic) == 2
    assert "mu 1.0" in optimistic[0] and "95.22" in optimistic[0]
    (selected,) = [row for _, row in rows if row.startswith("fedprox Selected")]
    assert "mu 0.0" in selected and "85.00" in selected and "65.11" in selected
    assert "95.22" not in selected
    (added,) = [row for _, row in rows if row.startswith("qfedavg Published")]
    assert "added: " in added and "q 1.0" in added and "not run" in added
    assert "20 %" in text and re.search(r'class="[^"]*\bdemo"', text)
    assert "runs/own/s@validation0.2/fedprox_mu0.0/seed2.html" in text


RATES = {"methods": [{"method": "fedavg", "keys": {"optimizer.lr": [0.01, 0.03, 0.1]}}]}


def tried(bench: Workbench) -> list[object]:
    target = as_far_as_it_went(bench, bench.search("own", "grid", "demo"))
    return [each.values["optimizer.lr"] for each in target.trials[0].candidates]


def rate(bench: Workbench, value: float, scores: list[float], **changes: object) -> None:
    target = as_far_as_it_went(bench, bench.search("own", "grid", "demo"))
    score(bench, target, f"fedavg_optimizer.lr{value}", scores, scores, **changes)


def test_a_search_goes_on_while_the_best_is_at_an_end(tmp_path: Path) -> None:
    bench = load(settle(tmp_path, RATES))
    rate(bench, 0.01, [0.5, 0.5])
    rate(bench, 0.03, [0.6, 0.6])
    assert tried(bench) == [0.01, 0.03, 0.1]  # one has not run yet
    rate(bench, 0.1, [0.7, 0.7])
    assert tried(bench) == [0.01, 0.03, 0.1, 0.3]
    rate(bench, 0.3, [0.8, 0.8])
    assert tried(bench)[-1] == 1.0
    rate(bench, 1.0, [0.6, 0.6])
    assert tried(bench) == [0.01, 0.03, 0.1, 0.3, 1.0]


def test_it_goes_on_downwards_and_stops_where_a_run_diverges(tmp_path: Path) -> None:
    bench = load(settle(tmp_path, RATES))
    rate(bench, 0.01, [0.7, 0.7])
    rate(bench, 0.03, [0.6, 0.6])
    rate(bench, 0.1, [0.5, 0.5], status="diverged", diverged_at=1)
    assert tried(bench) == [0.003, 0.01, 0.03, 0.1]
    rate(bench, 0.003, [0.6, 0.7])
    assert tried(bench) == [0.003, 0.01, 0.03, 0.1]


def test_it_goes_on_no_further_than_it_may(tmp_path: Path) -> None:
    bench = load(settle(tmp_path, RATES))
    for place, value in enumerate([0.01, 0.03, 0.1, 0.3, 1.0, 3.0]):
        rate(bench, value, [0.1 * place, 0.1 * place])
    assert tried(bench)[-1] == 3.0


def test_the_smallest_within_one_standard_error_of_the_best_is_selected(tmp_path: Path) -> None:
    bench = load(settle(tmp_path, RATES))
    rate(bench, 0.01, [0.67, 0.67])
    rate(bench, 0.03, [0.69, 0.71])  # the best's mean is .75, its standard error .07
    rate(bench, 0.1, [0.68, 0.82])
    rate_of = found(bench)
    assert rate_of.best is not None and rate_of.selected is not None
    values = [each.candidate.values["optimizer.lr"] for each in rate_of.tried]
    assert (values[rate_of.best], values[rate_of.selected]) == (0.1, 0.03)
    assert rate_of.in_use is not None and values[rate_of.in_use] == 0.1


def test_of_a_papers_own_grid_the_best_is_selected_and_no_value_is_added(tmp_path: Path) -> None:
    own = {"methods": [{**RATES["methods"][0], "paper_grid": True}]}
    bench = load(settle(tmp_path, own))
    for value, scores in ((0.01, [0.67, 0.67]), (0.03, [0.69, 0.71]), (0.1, [0.68, 0.82])):
        rate(bench, value, scores)
    rate_of = found(bench)
    assert rate_of.selected == rate_of.best == 2 and len(tried(bench)) == 3
    assert [*at_an_end(bench, bench.search("own", "grid", "demo"))]  # the setting has 0.1
    page = search_page(bench, bench.search("own", "grid", "demo"), published.load(bench.root))
    assert (page["keys"], page["paper_keys"]) == ([], ["optimizer.lr"])


def test_of_equally_small_values_the_best_is_selected(tmp_path: Path) -> None:
    """Also of a method's own, which are not searched for the smallest."""
    both = {"method": "fedprox", "grid": {"mu": [0.0, 0.1]}, "keys": {"optimizer.lr": [0.03, 0.1]}}
    bench = load(settle(tmp_path, {"methods": [both]}))
    target = bench.search("own", "grid", "demo")
    for mu, lr, scores in (
        (0.0, 0.03, [0.71, 0.71]), (0.1, 0.03, [0.68, 0.82]),
        (0.0, 0.1, [0.70, 0.70]), (0.1, 0.1, [0.1, 0.1]),
    ):  # fmt: skip
        score(bench, target, f"fedprox_mu{mu}_optimizer.lr{lr}", scores, scores)
    one = found(bench)
    assert one.selected == one.best is not None
    chosen = one.tried[one.selected].candidate.values
    assert chosen == {"optimizer.lr": 0.03, "mu": 0.1}


@pytest.mark.parametrize("grid", [[0.0, 0.1, 1.0], [1.0, 0.1, 0.0], [0.1, 1.0, 0.0]])
def test_the_order_of_a_grid_selects_nothing(tmp_path: Path, grid: list[float]) -> None:
    both = {"method": "fedprox", "grid": {"mu": grid}, "keys": {"optimizer.lr": [0.03, 0.1]}}
    bench = load(settle(tmp_path, {"methods": [both]}))
    target = bench.search("own", "grid", "demo")
    means = {
        (0.0, 0.1): 0.75, (0.1, 0.1): 0.2, (1.0, 0.1): 0.3,
        (0.0, 0.03): 0.69, (0.1, 0.03): 0.72, (1.0, 0.03): 0.70,
    }  # fmt: skip
    for (mu, lr), mean in means.items():
        scores = [mean - 0.07, mean + 0.07]
        score(bench, target, f"fedprox_mu{mu}_optimizer.lr{lr}", scores, scores)
    one = found(bench)
    assert one.best is not None and one.selected is not None
    values = [one.tried[place].candidate.values for place in (one.best, one.selected)]
    assert values == [{"optimizer.lr": 0.1, "mu": 0.0}, {"optimizer.lr": 0.03, "mu": 0.1}]


@pytest.mark.parametrize(("mu", "told"), [(0.0, 1), (0.1, 0), (1.0, 1), (0.5, 0)])
def test_a_value_in_use_at_an_end_of_its_grid_is_told(tmp_path: Path, mu: float, told: int) -> None:
    bench = load(settle(tmp_path, methods={"fedprox": {"mu": mu}}))
    said = [*at_an_end(bench, bench.search("own", "grid", "demo"))]
    assert len(said) == told and all("mu" in each and f"{mu:g}" in each for each in said)


def test_of_a_method_s_own_grid_the_best_is_selected(tmp_path: Path) -> None:
    bench = load(settle(tmp_path))
    target = bench.search("own", "grid", "demo")
    for name, scores in (("0.0", [0.69, 0.71]), ("0.1", [0.68, 0.82]), ("1.0", [0.1, 0.1])):
        score(bench, target, f"fedprox_mu{name}", scores, scores)
    assert values(found(bench), found(bench).selected) == 0.1
