"""What pages count, order and choose: costs, league, claims, printed tables, start page, rows."""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args
from urllib.parse import parse_qs

import numpy as np
import pytest
from PIL import Image

from fedrepro.config.tables import Summary
from fedrepro.config.targets import FigureTarget, RunKey, SearchTarget, TableTarget
from fedrepro.measures.base import Quantity
from fedrepro.measures.registry import SETS
from fedrepro.report import datasheet
from fedrepro.report.cells import coverage
from fedrepro.report.cells.cell import CellRun, Result
from fedrepro.report.cells.computed import ComputedCell, ComputedWording
from fedrepro.report.cells.league import ALL, Entry, GroupRanks, League, Match, PlayedMatch
from fedrepro.report.pages import (
    about,
    compare,
    cost,
    interpretation,
    method,
    overview,
    printed,
    row_figures,
    run,
)
from fedrepro.report.pages import claims as one_claim
from fedrepro.report.pages import league as league_page
from fedrepro.report.pages.method import MethodText
from fedrepro.report.papers.claim import CompactTest, Quantifier
from fedrepro.report.papers.published import PrintedCell, PrintedMetric, Published, System, Wording
from fedrepro.report.papers.references import References
from fedrepro.report.papers.verdict import judge_computed
from fedrepro.support.files import sha256_of
from fedrepro.support.plugins import NONE
from support.places import ROOT

SEEDS = (1, 2, 3, 4, 5)


# --- costs ----------------------------------------------------------------------------------------
def timed(setting: str, seed: int, device: str = "cpu", landed: str = "") -> Any:
    timing = {
        "wall_seconds": 10.0 * seed, "cpu_seconds": 3.0 * seed,
        "peak_memory_bytes": 100.0 * (4 - seed), "rounds_per_second": 1.0 + seed,
    }  # fmt: skip
    manifest = {"device": device} if device else {}
    return SimpleNamespace(
        run=RunKey(f"s/{setting}", "fedavg", seed), timing=timing, manifest=manifest,
        reference=False, landed=landed,
    )  # fmt: skip


def test_sums_of_costs_tell_graphics_cards_apart() -> None:
    records = [timed("a", 1, "cuda:1"), timed("a", 2), timed("a", 3, "cuda"), timed("a", 1, "")]
    assert cost._sum(records) == {
        "runs": 4, "wall": 70.0, "cpu": 21.0, "gpu": 40.0, "memory": 300.0, "speed": 2.75,
        "devices": ["cpu", "cuda", "cuda:1", "unknown"],
    }  # fmt: skip


def test_each_small_run_counts_once_in_the_total_and_in_each_of_its_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a table at scale demo the runs that are wanted are what it requires or has anyhow."""
    made = {each.run: each for each in (timed("a", 1), timed("a", 2), timed("b", 3))}
    landed = {run: with_landed(record) for run, record in made.items()}
    keys = [*made]
    missing = RunKey("s/c", "fedavg", 9)
    tables = {
        ("s", "one"): SimpleNamespace(runs=keys[:2]),
        ("s", "two"): SimpleNamespace(runs=[keys[1], keys[2], missing]),
        ("s", "none"): SimpleNamespace(runs=[missing]),
    }
    target = SimpleNamespace(runs=(keys[0], missing), required=(missing,))
    bench = SimpleNamespace(
        targets=lambda scale: {("s", "t"): target} if scale == "demo" else {},
        tables=lambda scale: tables, root=None,
    )  # fmt: skip
    empty = SimpleNamespace(landed=None, timing={"wall_seconds": 99.0})  # not landed
    monkeypatch.setattr(cost, "read_run", lambda _, run, reference: landed.get(run, empty))
    monkeypatch.setattr(cost, "use_of", lambda each, _: {"label": "x"})
    reference, untimed = timed("a", 3), timed("d", 2)
    reference.reference = untimed.reference = True
    untimed.timing = {}
    given = [reference, untimed]
    found = cost.cost(bench, Published(), [made[keys[0]]], given)  # type: ignore[arg-type]
    rows = [(row["scale"], row["runs"], row["wanted"], row["wall"]) for row in found["tables"]]
    assert rows == [("demo", 1, 2, 10.0), ("compact", 2, 2, 30.0), ("compact", 2, 3, 50.0)]
    totals = [(total["runs"], total["wall"], total["scale"]) for total in found["totals"]]
    assert totals == [(1, 30.0, "paper"), (3, 60.0, "compact")]
    rows = [(row["setting"], row["method"], row["reference"], row["wall"]) for row in found["rows"]]
    assert rows == [("s/a", "fedavg", True, 30.0), ("s/a", "fedavg", False, 10.0)]
    untimed.timing = {"rounds_per_second": 2.0}
    assert (cost._sum([untimed])["wall"], cost._sum([untimed])["speed"]) == (0, 2.0)


def with_landed(record: Any) -> Any:
    return SimpleNamespace(**{**vars(record), "landed": "sealed"})


# --- coverage, pairs of methods, a run ------------------------------------------------------------
@pytest.mark.parametrize("places", [(1, 0), (0, 1), (0, 0), (1, 1)])
def test_a_printed_cell_is_computed_if_any_of_its_tables_has_it(places: tuple[int, int]) -> None:
    cells = [
        SimpleNamespace(answered=SimpleNamespace(name=("d", "s", "m")), result=SimpleNamespace(n=n))
        for n in places
    ]
    tables = {
        ("a", item): SimpleNamespace(published_table=7, cells=[cell])
        for item, cell in zip(("table_7", "table_7_part"), cells, strict=True)
    }
    workbench = SimpleNamespace(targets=lambda scale: {})
    readings: Any = SimpleNamespace(
        workbench=workbench, published=SimpleNamespace(systems=["a"]), tables=tables
    )
    found = coverage.count_any(readings)
    assert found == {"a": {"printed": 1, "targets": 1, "computed": max(places)}}


@pytest.mark.parametrize("verdict", [True, False])
@pytest.mark.parametrize(("changed", "code"), [((), ""), (("rounds",), ""), ((), "method x")])
def test_numbers_of_today_alone_are_compared(
    changed: tuple[str, ...], code: str, verdict: bool
) -> None:
    odd = CellRun("m", 2, "finished", "", 60.0, False, changed, "f", None, code)
    runs = (replace(odd, seed=1, value=50.0, changed=(), code=""), odd)
    result = Result("s/a", ("m",), "m", {}, runs, None, "", 2, 55.0, None, None)
    cell = SimpleNamespace(verdict=SimpleNamespace(is_of_current_runs=True) if verdict else None)
    quantity = Quantity("accuracy", "%", True, lambda record: [])
    found = compare._entry(cell, result, "M", quantity, "paper", "A", "a.html")  # type: ignore[arg-type]
    of_today = {1: 50.0} if changed or code else {1: 50.0, 2: 60.0}
    assert found is not None and found.by_seed == of_today


def test_a_measure_in_percent_is_drawn_in_percent() -> None:
    record = SimpleNamespace(
        rounds={"round": [1, 2], "ensemble_accuracy": [0.25, 0.5], "ensemble_loss": [2.0, 1.5]},
        run=RunKey("s/a", "m", 1),
    )
    accuracy, loss = run._further(record, NONE)  # type: ignore[arg-type]
    assert re.search(r"[a-z] 50 %\.", accuracy.svg) and re.search(r"[a-z] 1\.5\.", loss.svg)


# --- the league -----------------------------------------------------------------------------------
def played_of(
    title: str, numbers: Mapping[str, Any], higher_is_better: bool = True, own: str | None = None,
    setting: str = "s/a", group: str = "skew", seeds: tuple[int, ...] = SEEDS,
) -> PlayedMatch:  # fmt: skip
    """A match in which methods have these means and spreads; None has diverged."""
    measure = Quantity(
        "accuracy" if higher_is_better else "loss", "%", higher_is_better, lambda record: []
    )
    match = Match("s", "t", 0, group, title, setting, None, measure, False, Summary(), seeds)
    entries = []
    for name, told in numbers.items():
        if told == "missing":
            entries.append(Entry(name, "local" if name == "Alone" else name, {}, "no result"))
            continue
        if told is None:
            entries.append(Entry(name, name.lower(), {}, "diverged", diverged=True))
            continue
        mean, spread = told
        sign = 1 if len(name) % 2 else -1  # so that leads vary over seeds
        values = {seed: mean + sign * spread * (seed - np.mean(seeds)) for seed in seeds}
        entries.append(Entry(name, name.lower(), values))
    return PlayedMatch(match, seeds, tuple(entries), own)


def league_of(*played: PlayedMatch, own: str | None = None) -> League:
    groups: dict[str, list[PlayedMatch]] = {}
    for each in played:
        groups.setdefault(each.match.group, []).append(each)
    standings = tuple(GroupRanks.of(group, matches) for group, matches in groups.items())
    return League(played, standings, "about", own)


def bench_of_settings() -> Any:
    partition = SimpleNamespace(scheme="two_classes", clients=7)
    setting = SimpleNamespace(dataset="d", partition=partition, participation=0.5, rounds=9)
    return SimpleNamespace(setting=lambda _: setting, composition_of=lambda _, method: (method, {}))


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_a_setting_names_its_best_method_and_those_that_are_not_shown_to_be_behind(
    higher_is_better: bool,
) -> None:
    """One whose lead has an interval below zero cannot be; one that diverged is behind."""
    sign = 1 if higher_is_better else -1
    numbers = {
        "FedAvg": (50.0, 0.5), "Best": (50.0 + 9 * sign, 1.0), "Near": (50.0 + 8.9 * sign, 4.0),
        "Far": (50.0 + 2 * sign, 0.5), "Gone": None,
    }  # fmt: skip
    played = played_of("m", numbers, higher_is_better)
    row = league_page._setting(bench_of_settings(), played)
    assert row["best"].name == "Best" and row["near"] == ["Near"]
    assert row["setting"].rounds == 9
    nobody = league_page._setting(bench_of_settings(), played_of("m", {}))
    assert nobody["best"] is None and nobody["near"] == []


def test_the_page_of_the_league_has_each_match_s_own_rank_lead_and_strip() -> None:
    one = played_of(
        "one", {"Own": (60.0, 1.0), "FedAvg": (50.0, 0.5), "Far": (70.0, 1.0)}, own="Own"
    )
    two = played_of("two", {"Own": (60.0, 1.0), "FedAvg": (66.0, 2.0)}, own="Own", setting="s/b")
    flat = played_of("flat", {"Own": (60.0, 0.0), "FedAvg": (50.0, 0.0), "Alone": "missing"},
                     own="Own", setting="s/c", group="other")  # fmt: skip
    league = league_of(one, two, flat, own="Own")
    page = league_page._page(bench_of_settings(), league, References())
    assert [played.ranks["Own"] for played, *_ in page["rows"]] == [2.0, 2.0, 1.0]
    assert [lead.lead for _, lead, _ in page["rows"]] == pytest.approx([10.0, -6.0, 10.0])
    assert [bool(strip) for *_, strip in page["rows"]] == [True, True, False]
    # The widest interval just fits; the other one is drawn on its scale.
    reach = max(
        max(abs(played.lead("Own").low), abs(played.lead("Own").high)) for played in (one, two)
    )
    for played, (_, _, strip) in zip((one, two), page["rows"], strict=False):
        low, high = played.lead("Own").low, played.lead("Own").high
        path = strip.rpartition('stroke-width="2"')[0].rpartition('d="M')[2]
        left, right = float(path.partition(",")[0]), float(path.partition("H")[2].partition('"')[0])
        assert (left, right) == pytest.approx(
            (100 + 94 * low / reach, 100 + 94 * high / reach), abs=0.06
        )
    assert page["widened"] and not league.preliminary
    assert [(group["name"], group["local"]) for group in page["groups"]] == [
        ("skew", False), ("other", True)
    ]  # fmt: skip
    few = league_of(played_of("few", {"Own": (6.0, 1.0), "FedAvg": (5.0, 3.0)}, own="Own",
                              seeds=(1, 2, 3)), own="Own")  # fmt: skip
    page = league_page._page(bench_of_settings(), few, References())
    assert few.preliminary and not page["widened"]  # fewer seeds have one look


def test_standings_count_settings_not_matches_and_rank_their_own_method() -> None:
    """Two matches of one setting are one witness."""
    first = played_of("a", {"A": (60.0, 1.0), "B": (50.0, 1.0)})
    again = played_of("a's loss", {"A": (9.0, 1.0), "B": (1.0, 1.0)}, higher_is_better=False)
    other = played_of("b", {"B": (60.0, 1.0), "A": (50.0, 1.0)}, setting="s/b")
    told = league_page.as_json(league_of(first, again, other))["standings"]
    assert [(each["group"], each["settings"]) for each in told] == [("skew", 2)]
    assert told[0]["mean_ranks"] == pytest.approx({"B": 1.25, "A": 1.75})
    assert told[0]["critical_difference"] == pytest.approx(1.96 * math.sqrt(6 / 12), abs=1e-3)
    alone = league_page.as_json(league_of(played_of("a", {"A": (1.0, 1.0)})))["standings"]
    assert [(each["settings"], each["mean_ranks"]) for each in alone] == [(0, {})]
    assert ALL not in {each["group"] for each in told}


def test_the_league_s_files_have_each_method_s_own_numbers_in_each_match() -> None:
    """One that diverged is last, one without a result has no rank; less may be better."""
    seeds = (1, 2, 3)
    numbers = {"Own": (60.0, 1.0), "FedAvg": (50.0, 2.0), "Gone": None, "Alone": "missing"}
    one = played_of("one, 50 %", numbers, own="Own", seeds=seeds)
    two = played_of("two", {"FedAvg": (5.0, 1.0), "Own": (7.0, 0.5)}, higher_is_better=False,
                    own="Own", setting="s/b", seeds=seeds)  # fmt: skip
    other = played_of("three", {"Own": (1.0, 0.0), "FedAvg": (1.0, 0.0)}, own="Own",
                      setting="s/c", group="other", seeds=seeds)  # fmt: skip
    league = league_of(one, two, other, own="Own")
    rows = [
        dict(zip(league_page.HEADER, row, strict=True)) for row in league_page._csv_rows(league)
    ]
    assert [(row["group"], row["match"], row["method"]) for row in rows] == [
        *(("skew", "one, 50 %", name) for name in numbers),
        ("skew", "two", "FedAvg"), ("skew", "two", "Own"),
        ("other", "three", "Own"), ("other", "three", "FedAvg"),
    ]  # fmt: skip
    own, average, gone, alone, second, third = rows[:6]
    assert [row["own"] == "true" for row in rows] == [flag == "T" for flag in "TFFFFTTF"]
    assert [row["seeds"] for row in rows] == ["3", "3", "0", "0", "3", "3", "3", "3"]
    assert [row["rank"] for row in rows] == ["1.0", "2.0", "3.0", "", "1.0", "2.0", "1.5", "1.5"]
    assert (own["mean"], float(own["std"])) == ("60.0", pytest.approx(1.0))
    assert float(average["std"]) == pytest.approx(2.0) and gone["mean"] == alone["mean"] == ""
    assert (own["metric"], own["setting"], second["metric"], second["setting"]) == (
        "accuracy", "s/a", "loss", "s/b"
    )  # fmt: skip
    for row, played, lead in ((own, one, 10.0), (third, two, -2.0)):
        test = played.lead("Own")
        assert test is not None and test.lead == pytest.approx(lead)
        told = [float(row[key]) for key in ("lead_over_fedavg", "low", "high")]
        assert told == pytest.approx([test.lead, test.low, test.high])
    assert average["lead_over_fedavg"] == gone["low"] == alone["high"] == ""
    assert [row["why_not_ranked"] for row in rows[1:4]] == ["", "diverged", "no result"]
    latex = league_page.as_latex(league)
    tables = latex.split("\\begin{tabular}")[1:]
    assert [table[: table.index("}") + 1] for table in tables] == ["{lrrr}", "{lrr}"]
    assert [table.count("\\end{tabular}") for table in tables] == [1, 1]
    lines = {line.split(" & ")[0]: line.split(" & ")[1:] for line in tables[0].splitlines()}
    estimate = one.entry("Own").estimate
    assert estimate is not None
    assert lines["\\textbf{Own}"][0] == f"60.00 $\\pm$ {estimate.half_width:.2f}"
    assert lines["Gone"] == ["diverged", "--", "-- \\\\"] and lines["Alone"][0] == "--"
    assert lines["FedAvg"][2] == "1.50 \\\\" and "50 \\%" in tables[0]
    told = league_page.as_json(league)
    assert [match["higher_is_better"] for match in told["matches"]] == [True, False, True]
    assert [match["seeds"] for match in told["matches"]] == [[1, 2, 3]] * 3
    methods = {each["name"]: each for each in told["matches"][0]["methods"]}
    assert methods["Own"]["values"] == {str(seed): one.entry("Own").values[seed] for seed in seeds}
    assert [methods[name]["rank"] for name in numbers] == [1.0, 2.0, 3.0, None]
    assert methods["Own"]["lead_over_fedavg"]["lead"] == pytest.approx(10.0)
    assert methods["FedAvg"]["lead_over_fedavg"] is None


# --- a claim's page -------------------------------------------------------------------------------
def test_witnesses_of_a_claim_are_the_others_that_share_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its page says how to make its runs again, and where to object."""
    runs = {
        "a": {("s/x", ("m",))}, "b": {("s/x", ("m",)), ("s/y", ("n",))}, "c": {("s/y", ("n",))},
        "d": {("s/z", ("m", "n")), ("s/z", ("o",))}, "e": None,
    }  # fmt: skip
    claims = {
        name: SimpleNamespace(system="s", anchor=f"s-{name}", quantifier="each") for name in runs
    }
    views = [
        SimpleNamespace(
            claim=claims[name],
            compact=None if own is None else SimpleNamespace(runs=frozenset(own), item="t"),
        )
        for name, own in runs.items()
    ]
    searches = {
        "q": SimpleNamespace(setting="z", title="Of z", selects_for=["y"]),
        "r": SimpleNamespace(setting="x", title="Of x", selects_for=[]),
    }
    cells = [
        SimpleNamespace(setting=f"s/{name}", seeds=(number, number + 1))
        for number, name in enumerate("xyz", 1)
    ]
    bench = SimpleNamespace(
        experiments={"s": SimpleNamespace(compact_search=searches)}, root=tmp_path,
        table=lambda *_: SimpleNamespace(cells=cells),
        search=lambda *_: SimpleNamespace(trials=()),
    )  # fmt: skip
    (tmp_path / "reports/papers/s/compact/z").mkdir(parents=True)
    monkeypatch.setattr(one_claim, "repository", lambda: "https://a.org/r")
    pages = {
        name: one_claim.claim_page(bench, None, view, views)  # type: ignore[arg-type]
        for name, view in zip(runs, views, strict=True)
    }
    named = {
        name: [claim.anchor[2:] for claim in page["witnesses"]] for name, page in pages.items()
    }
    assert named == {"a": ["b"], "b": ["a", "c"], "c": ["b"], "d": [], "e": []}
    assert {name: [each.title for each in page["searches"]] for name, page in pages.items()} == {
        "a": ["Of x"], "b": ["Of z", "Of x"], "c": ["Of z"], "d": ["Of z"], "e": []
    }  # fmt: skip
    (runs_of_d,) = pages["d"]["runs"]
    assert (runs_of_d.setting, runs_of_d.methods.split(", ")) == ("s/z", ["m", "n", "o"])
    assert (runs_of_d.seeds, runs_of_d.folder) == ("3, 4", "reports/papers/s/compact/z")
    assert [run.folder for run in pages["b"]["runs"]] == ["results/runs/s/x", "results/runs/s/y"]
    assert [run.seeds for run in pages["b"]["runs"]] == ["1, 2", "2, 3"]
    assert pages["e"]["runs"] == [] and not pages["e"]["again"] and not pages["e"]["explain"]
    assert pages["d"]["again"].split()[2] == "ONLY='s/t'"
    assert pages["d"]["explain"] == "fedrepro explain s/z m --seed 1"
    place, _, query = pages["b"]["form"].partition("?")
    asked = parse_qs(query)
    assert place == "https://a.org/r/issues/new" and asked["claim"] == ["s-b"]
    assert (ROOT / pages["b"]["file"]).name == asked["template"][0] and asked["title"]
    assert (ROOT / pages["b"]["file"]).is_file()
    monkeypatch.setattr(one_claim, "repository", lambda: None)
    alone = one_claim.claim_page(bench, None, views[0], views)  # type: ignore[arg-type]
    nothing: Any = SimpleNamespace(experiments={}, root=tmp_path)
    unplanned = one_claim.claim_page(nothing, system_of("s"), views[-1], views)
    assert unplanned["searches"] == [] and unplanned["system"].name == "S"
    assert alone["form"] == ""


def test_the_page_of_a_claim_has_words_for_every_quantifier() -> None:
    template = (ROOT / "reports/templates/claim.html.j2").read_text(encoding="utf-8")
    words = template.partition("quantifiers = {")[2].partition("}")[0]
    assert re.findall(r'^  "(\w+)":', words, re.MULTILINE) == [*get_args(Quantifier)]


# --- printed tables -------------------------------------------------------------------------------
def number(dataset: str, setting: str, method: str, metric: str, mean: float = 1.0) -> PrintedCell:
    kind = PrintedMetric(unit="own", words=f"the {metric}")
    return PrintedCell(
        dataset,
        setting,
        method,
        metric,
        mean,
        None,
        f"{mean:.1f}",
        1,
        "",
        "s",
        "table_1",
        "1",
        kind,
    )


def test_printed_rows_leave_out_what_all_settings_share() -> None:
    """A part that only some settings have stays; a lone setting has nothing to share."""
    cells = [
        number(dataset, setting, method, "acc")
        for dataset, setting in (("D", "CNN; 10 clients, C=1"), ("D", "CNN; 20 clients, C=1"),
                                 ("E", "CNN; 10 clients, C=2, C=1"))
        for method in ("A", "B")
    ]  # fmt: skip
    grid = printed._grid(cells)
    assert grid["shared"] == ["CNN", "C=1"] and grid["columns"] == ["A", "B"]
    assert [head for head, _ in grid["rows"]] == [
        ("D", "10 clients"), ("D", "20 clients"), ("E", "10 clients, C=2")
    ]  # fmt: skip
    assert all([*row] == ["A", "B"] and row["A"].method == "A" for _, row in grid["rows"])
    alone = printed._grid(cells[:2])
    assert alone["shared"] == [] and alone["rows"][0][0] == ("D", "CNN, 10 clients, C=1")


def test_a_row_s_own_metric_is_its_head() -> None:
    """Methods with several metrics are rows, each with a column for a metric."""
    several = [number("", "S", method, metric) for method in "AB" for metric in ("m", "n")]
    grid = printed._grid_of_methods(several)
    assert (grid["head"], grid["columns"]) == ("Method", ["the m", "the n"])
    assert [head[0] for head, _ in grid["rows"]] == ["A", "B"]
    single = [number("", "S", "A", "m"), number("", "S", "B", "n")]
    grid = printed._grid_of_methods(single)
    assert (grid["head"], grid["columns"]) == ("What", ["Value"])
    assert [head[0] for head, _ in grid["rows"]] == ["the m", "the n"]


def test_the_page_of_counted_numbers_counts_words_and_holes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(printed, "about", lambda *_: {})
    cells = []
    for at, ours in enumerate((1.0, 5.0, None, 1.04, None)):
        known = number("D", f"S{at}", "A", "m")
        verdict = None if ours is None else judge_computed(known, ours)
        cells.append(ComputedCell(known, ours, None, "" if verdict else "why", verdict))
    words = [
        ComputedWording(Wording("table_1", f"S{at}", "w", "text"), text)
        for at, text in enumerate(("text", "other", None))
    ]
    spec = SimpleNamespace(heading="", of_methods=False, title="T")
    target: Any = SimpleNamespace(spec=spec, system="s", item="table_1")
    monkeypatch.setattr(printed.computed, "compute", lambda *_: cells)
    monkeypatch.setattr(printed.computed, "compute_words", lambda *_: words)
    items = [("s", "table_1"), ("s", "table_1_part"), ("t", "table_1_part"), ("s", "table_2_part")]
    bench: Any = SimpleNamespace(targets=lambda: items)
    page = printed.computed_page(bench, target, Published())
    assert page["counts"] == {"printed": 8, "computed": 5, "agree": 3, "differ": 2}
    assert page["left_open"] == 2 and page["differing"] == [cells[1]]
    assert [address for address, _ in page["parts"]] == ["table_1_part.html"]
    ((_, row), *more) = page["grids"][0]["rows"]
    assert row["A"] == cells[0] and len(more) == 4
    assert (page["title"], page["grids"][0]["metric"]) == ("T", "the m")
    assert page["word_rows"] == ["S0", "S1", "S2"] and page["word_columns"] == ["w"]
    assert page["wordings"] == {(f"S{at}", "w"): word for at, word in enumerate(words)}
    for of_methods, head in ((True, "What"), (False, "Data")):
        target.spec = SimpleNamespace(heading="Counted", of_methods=of_methods, title="T")
        page = printed.computed_page(bench, target, Published())
        (grid,) = page["grids"]
        assert (grid["metric"], grid["head"]) == ("Counted", head) and len(grid["rows"]) >= 1


def test_a_printed_table_without_runs_has_a_grid_for_each_metric_and_its_words() -> None:
    papers = replace(papers_of(), claims=(), ledger=())
    cell = replace(number("D", "S", "A", "m"), item="table_3", table="3")
    cells = (cell, replace(cell, method="B", doubt="a slip"), replace(cell, metric="n", mean=2.0,
             kind=PrintedMetric(unit="own", words="the n")))  # fmt: skip
    words = [Wording("table_3", setting, metric, "text") for setting in "TS" for metric in "wv"]
    papers = replace(papers, cells=(*papers.cells, *cells), words={("s", "table_3"): tuple(words)})
    page = printed.printed_page(papers, "s", "table_3")
    assert [(grid["metric"], grid["columns"]) for grid in page["grids"]] == [
        ("the m", ["A", "B"]), ("the n", ["A"])
    ]  # fmt: skip
    assert page["grids"][0]["rows"][0][1]["B"] == cells[1]
    assert page["word_rows"] == ["T", "S"] and page["word_columns"] == ["w", "v"]
    assert list(page["words"]) == words and page["doubted"] == [cells[1]]
    assert (page["printed"], page["label"], page["system"].name) == (3, "Table 3", "S")
    only = replace(papers, cells=papers.cells[:4])
    page = printed.printed_page(only, "s", "table_3")
    assert (page["grids"], page["printed"], page["label"]) == ([], 0, "Table 3")


# --- the start page and the ledger ----------------------------------------------------------------
def test_the_ledger_begins_with_what_matters_most_whichever_way() -> None:
    about = {"name": "S", "title": "S", "changes": "", "paper": ""}
    system = System.model_validate(
        {"system": "s", **about, "spread": {"over": "none", "source": ""}}
    )
    entries = tuple(
        SimpleNamespace(system=of, number=name, evidence=["code"], tables=[])
        for of, name in (*(("s", name) for name in "abcd"), ("t", "a"))
    )

    def answer(mean: float, *items: str) -> Any:
        cell = SimpleNamespace(
            verdict=SimpleNamespace(is_of_current_runs=True), result=SimpleNamespace(mean=mean)
        )
        return SimpleNamespace(cell=cell, items=items, unit="%")

    cells: dict[Any, Any] = {
        name: SimpleNamespace(text=answer(50.0), released=answer(50.0 + change, name))
        for name, change in (("a", 1.0), ("b", -9.0), ("c", 4.0))
    }
    cells["pair"] = SimpleNamespace(text=answer(50.0), released=answer(90.0, "a", "e"))
    cells["lone"] = SimpleNamespace(text=None, released=answer(99.0, "a"))
    cells["none"] = SimpleNamespace(text=answer(0.0), released=None)
    cells["loss"] = SimpleNamespace(text=answer(9.0), released=answer(1.0, "d"))
    cells["loss"].text.unit = ""
    papers = Published(systems={"s": system}, ledger=entries)  # type: ignore[arg-type]
    readings: Any = SimpleNamespace(published=papers, by_table={("s", "I"): cells})
    told = overview.ledger(readings, {})
    assert [entry.number for entry in told["groups"][0]["entries"]] == ["b", "c", "a", "d"]
    assert [key[1] for key, _ in told["largest"]] == ["e", "b", "c", "a"]
    assert [effect.change for _, effect in told["largest"]] == [40.0, -9.0, 4.0, 1.0]
    assert [effect.beside for _, effect in told["largest"]] == [("a",), (), (), ()]
    assert told["kinds"] == {"code": ["a", "b", "c", "d", "a"]} and told["total"] == 5


def target_of(kind: type, system: str, item: str, **about: Any) -> Any:
    target = object.__new__(kind)
    for key, value in {"system": system, "item": item, "scale": "paper", **about}.items():
        object.__setattr__(target, key, value)
    return target


def system_of(name: str) -> System:
    about = {"title": "S", "changes": "", "paper": "", "spread": {"over": "none", "source": ""}}
    return System.model_validate({"system": name, "name": name.upper(), **about})


def papers_of() -> Published:
    """Two systems, of which the second has no table; a table in two parts."""
    systems = {name: system_of(name) for name in ("s", "t")}
    doubted = number("D", "S", "A", "m")
    cells = [
        *(replace(doubted, item="table_10", table="10", doubt=doubt) for doubt in ("", "x", "y")),
        replace(doubted, item="table_2", table="2"),
    ]
    return Published(
        systems=systems,
        cells=tuple(cells),
        ledger=(SimpleNamespace(number="7", topic="Of what"),),  # type: ignore[arg-type]
        claims=(SimpleNamespace(anchor="s-c", says="It is so."),),  # type: ignore[arg-type]
        captions={("s", "table_2"): SimpleNamespace(title="The caption")},  # type: ignore[dict-item]
    )


def test_the_start_page_has_each_table_once_and_counts_no_part_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tables of papers in natural order, then those of one's own; claims of their own system."""
    papers = papers_of()
    table = SimpleNamespace(title="Own title", published=None)
    demo = SimpleNamespace(
        scale="demo",
        cells=[SimpleNamespace(demo=each, result=None) for each in
               (None, SimpleNamespace(n=0), SimpleNamespace(n=2), SimpleNamespace(n=1))],
    )  # fmt: skip
    targets = {
        ("s", "table_10"): target_of(TableTarget, "s", "table_10", table=table),
        ("s", "table_10_part"): target_of(TableTarget, "s", "table_10_part", table=table),
        ("own", "table_1"): target_of(TableTarget, "own", "table_1", table=table),
    }
    counts = {
        ("s", "table_10"): Counter(printed=3, agrees=2, arithmetic_agree=1),
        ("s", "table_2"): Counter(printed=1, differs=1),
        ("s", "table_10_part"): Counter(printed=2, agrees=1),
    }
    views = [
        SimpleNamespace(claim=SimpleNamespace(system=system), compact=compact)
        for system, compact in (("s", None), ("s", "a"), ("t", 1))
    ]
    monkeypatch.setattr(overview, "findings_of", lambda _: {"s": {"total": 2}})
    monkeypatch.setattr(overview, "summary", lambda _: "sum")
    bench: Any = None
    readings: Any = SimpleNamespace(
        workbench=bench, published=papers, tables={("s", "table_10"): demo}, by_table={}
    )
    page = overview.start_page(readings, targets, counts, views, "compact")  # type: ignore[arg-type]
    first, second = page["systems"]
    assert [(state.page, state.title) for state in first.tables] == [
        ("s/table_2.html", "The caption"), ("s/table_10.html", "Own title"),
        ("s/table_10_part.html", "Own title"),
    ]  # fmt: skip
    assert [state.covered for state in first.tables] == [False, True, True]
    assert not any(state.compact or state.figure for state in first.tables)
    assert [state.again for state in first.tables] == [False, False, True]
    assert [state.demo for state in first.tables] == [None, (2, 3), None]
    assert [state.counts for state in first.tables] == [
        counts["s", item] for item in ("table_2", "table_10", "table_10_part")
    ]  # fmt: skip
    whole = Counter(printed=4, agrees=2, differs=1, arithmetic_agree=1)
    assert first.counts == page["counts"] == whole and second.counts == Counter()
    assert (first.compact, second.compact) == ({"total": 2}, None)
    assert (first.first, second.first) == (views[1], views[2])
    assert [state.page for state in page["own"]] == ["own/table_1.html"] and not second.tables
    assert (page["arithmetic"], page["claims"], page["scale"]) == (1, "sum", "compact")


def test_of_a_figure_its_finished_runs_are_counted(tmp_path: Path) -> None:
    """Or, of one without runs, whether what it draws has been made."""
    runs = [RunKey("own/a", "m", seed) for seed in (1, 2, 3)]
    (tmp_path / runs[1].folder).mkdir(parents=True)
    (tmp_path / runs[1].folder / "manifest.json").touch()
    bench: Any = SimpleNamespace(root=tmp_path)
    for kind in (FigureTarget, SearchTarget):
        target = target_of(kind, "own", "figure_1", runs=runs)
        assert overview._progress_of(bench, target, None) == (1, 3)
    none = target_of(SearchTarget, "own", "grid", runs=[])
    assert overview._progress_of(bench, none, None) == (0, 0)


def test_the_search_finds_everything_by_its_address() -> None:
    papers = papers_of()
    figure = SimpleNamespace(title="A figure")
    targets = {
        ("own", "figure_10"): target_of(FigureTarget, "own", "figure_10", figure=figure),
        ("own", "figure_9"): target_of(FigureTarget, "own", "figure_9", figure=figure),
    }
    record = SimpleNamespace(run=RunKey("s/a", "m", 3), page=Path("runs/s/a/m/seed3.html"))
    facts = [{"name": "ima", "kind": "wrapper"}]
    found = overview.all_pages(papers, targets, facts, [record])  # type: ignore[arg-type,list-item]
    assert [address for address, *_ in found] == [
        "own/figure_9.html", "own/figure_10.html", "s/table_2.html", "s/table_10.html",
        "methods/ima.html", "claims.html#s-c", "discrepancies.html#item-7", "runs/s/a/m/seed3.html",
    ]  # fmt: skip
    titles, kinds = ([each[at] for each in found] for at in (1, 2))
    assert titles[0].endswith(": A figure") and titles[0].startswith("own, ")
    assert titles[2:6] == ["S, Table 2: The caption", "S, Table 10", "ima", "It is so."]
    assert kinds[4:] == ["wrapper", "claim", "discrepancy", "run"] and len({*kinds[:4]}) == 1


def test_parts_name_the_tables_whose_methods_have_them() -> None:
    def target(item: str, *methods: str) -> Any:
        runs = [RunKey("own/a", method, seed) for method in methods for seed in (1, 2)]
        figure = SimpleNamespace(title="")
        return target_of(FigureTarget, "own", item, figure=figure, runs=runs)

    targets = {
        ("own", "figure_1"): target("figure_1", "ima+fedavg", "fedprox"),
        ("own", "figure_2"): target("figure_2", "fedavg", "ima+fedprox"),
    }
    bench: Any = SimpleNamespace(
        targets=lambda scale: targets if scale == "paper" else {},
        setting=lambda name: name, composition_of=lambda _, method: (method, {}),
    )  # fmt: skip
    used = overview.tables_of_parts(bench, papers_of())
    pages = {part: {use["page"] for use in uses} for part, uses in used.items()}
    both = {"own/figure_1.html", "own/figure_2.html"}
    assert pages == {"ima": both, "fedavg": both, "fedprox": both}
    assert all(len(uses) == 2 for uses in used.values())


def test_readings_of_tables_are_in_natural_order_with_their_discrepancies() -> None:
    def answer(word: str, *items: str) -> Any:
        return SimpleNamespace(word=word, items=items)

    def both(text: Any, released: Any) -> Any:
        return SimpleNamespace(text=text, released=released)

    tables: dict[Any, Any] = {
        ("s", "2.10"): {1: both(answer("agrees"), None)},
        ("s", "2.9"): {
            1: both(answer("agrees"), answer("differs", "10", "9")),
            2: both(None, answer("agrees", "9", "2")),
            3: both(answer("differs"), None),
            4: both(answer(""), None),
        },
        ("s", "2.1"): {1: both(None, None)},
        ("other", "2.2"): {1: both(answer("agrees"), None)},
    }

    rows = [(row.table, row.text, row.released, row.ledger) for row in _readings("s", tables)]
    assert rows == [
        ("2.9", Counter(agrees=1, differs=1), Counter(agrees=1, differs=1), ["2", "9", "10"]),
        ("2.10", Counter(agrees=1), Counter(), []),
    ]


def _readings(name: str, tables: Any) -> Any:
    targets = {}
    for system, table in tables:
        target = object.__new__(TableTarget)
        published = SimpleNamespace(published=SimpleNamespace(table=table))
        for key, value in {"system": system, "item": f"table_{table}", "scale": "paper",
                           "table": published}.items():  # fmt: skip
            object.__setattr__(target, key, value)
        targets[system, table] = target
    return overview.readings_of(name, tables, targets)


# --- what belongs together ------------------------------------------------------------------------
def claim_of(system: str, tables: list[str], small: str | None) -> Any:
    compact = "No data." if small is None else CompactTest.model_construct(table=small)
    return SimpleNamespace(system=system, tables=tables, compact=compact)


@pytest.mark.parametrize(
    ("item", "scale", "demo", "scales"),
    [
        ("table_1", "paper", False, ["", "compact_a_b.html"]),
        ("table_1", "demo", True, ["", "compact_a_b.html", "#demo"]),
        ("table_1", "demo", False, ["", "compact_a_b.html"]),
        ("table_1_part", "paper", True, ["", "compact_a_b.html"]),
        ("table_2", "paper", False, ["", "compact_a_b.html", "compact_c.html"]),
        ("table_3", "paper", False, [""]),
        ("compact_a_b", "compact", False, ["table_1.html", "table_2.html", ""]),
        ("compact_c", "compact", True, ["table_2.html", ""]),
        ("compact_d", "compact", False, [""]),
    ],
)
def test_a_table_leads_to_those_that_test_its_claims(
    item: str, scale: str, demo: bool, scales: list[str]
) -> None:
    """In small runs, and back; not to those of another system, nor to tables that are not there."""
    small = {"compact_a_b": 1, "compact_c": 1, "compact_d": 1}
    bench: Any = SimpleNamespace(experiments={"s": SimpleNamespace(compact=small)})
    claims = [
        claim_of("s", ["table_1", "table_2"], "compact_a_b"), claim_of("s", ["table_3"], None),
        claim_of("t", ["table_3"], "compact_d"), claim_of("s", ["table_2"], "compact_c"),
        claim_of("s", ["table_3"], "compact_gone"), claim_of("s", ["table_1"], "compact_a_b"),
    ]  # fmt: skip
    papers: Any = SimpleNamespace(claims=claims, label_of=lambda _, name: f"label of {name}")
    target: Any = SimpleNamespace(system="s", item=item, scale=scale)
    found = about.scales_of(bench, papers, target, demo=demo)
    assert [address for _, address in found] == scales
    names = {address: name for name, address in found}
    assert names[""] == ("compact" if scale == "compact" else "paper")
    assert names.get("compact_a_b.html", "compact: a b") == "compact: a b"
    assert names.get("table_1.html", "label of table_1").endswith("label of table_1")


def test_cells_that_differ_are_grouped_by_what_the_other_reading_says() -> None:
    """Those that the released code's quantity settles first; with their discrepancies."""

    def answer(word: str, *items: str) -> Any:
        return SimpleNamespace(word=word, items=items)

    pairs = {
        "unread": (answer("differs", "3"), None),
        "settled": (answer("differs", "1"), answer("agrees", "10", "A2")),
        "same": (answer("agrees", "1"), answer("undecided", "1")),
        "both": (answer("differs"), answer("differs", "9")),
        "shared": (answer("differs"), None),
        "released": (answer("agrees"), answer("differs", "A10", "7")),
        "alone": (None, answer("differs", "8")),
        "again": (answer("differs", "1"), answer("undecided", "9", "A10")),
        "nothing": (None, None),
    }
    cells: list[Any] = [
        SimpleNamespace(name=name, text=text, released=released)
        for name, (text, released) in pairs.items()
    ]
    groups = interpretation._differences(cells)
    assert [[both.name for both in group.cells] for group in groups] == [
        ["settled", "again"], ["both"], ["unread"], ["shared"], ["released"], ["alone"]
    ]  # fmt: skip
    assert [group.items for group in groups] == [
        ("9", "10", "A2", "A10"), ("9",), ("3",), (), ("7", "A10"), ("8",)
    ]  # fmt: skip
    text, released = interpretation._readings(cells)
    assert (text.computed, released.computed) == (7, 6)
    assert (text.words["differs"], text.words["agrees"], text.words["undecided"]) == (5, 2, 0)
    assert (released.words["differs"], released.words["undecided"]) == (3, 2)
    assert interpretation._readings(cells[-1:]) == []


@pytest.mark.parametrize(
    ("columns", "panels"),
    [
        (
            ["fedavg", "fedprox", "ima+fedprox", "scaffold", "ima+fedavg", "aaggff_s+fedavg"],
            [
                [(0, "alone"), (4, "with IMA"), (5, "with aaggff_s")],
                [(1, "alone"), (2, "with IMA")],
                [(3, "alone")],
            ],
        ),
        (["fedavg"], [[(0, "FEDAVG")]]),
        (
            ["fedavg", "ima+fedprox", "scaffold"],
            [[(0, "FEDAVG"), (1, "this method")], [(0, "FEDAVG"), (2, "this method")]],
        ),
    ],
)
def test_a_method_and_its_wrapped_forms_share_a_panel(columns: list[str], panels: Any) -> None:
    """Where there are none, each method stands beside the first."""
    target: Any = SimpleNamespace(
        table=SimpleNamespace(
            columns=[
                SimpleNamespace(label=name.upper(), methods_at=lambda scale, name=name: (name,))
                for name in columns
            ]
        )
    )
    assert row_figures.panels_of(target) == panels


def test_a_method_stands_where_it_plays_alone_or_around_fedavg() -> None:
    """From the largest lead to the least; a column of several parts or methods is none of it."""
    columns = {
        "Prox": ("fedprox",), "IMA": ("ima+fedavg",), "Both": ("ima+fedprox",),
        "Either": ("fedprox", "fedavg"), "FedAvg": ("fedavg",), "Out": ("scaffold",),
    }  # fmt: skip
    labels = [
        SimpleNamespace(label=label, methods_at=lambda scale, names=names: names)
        for label, names in columns.items()
    ]
    bench: Any = SimpleNamespace(
        experiments={"s": SimpleNamespace(compact={"t": SimpleNamespace(columns=labels)})},
        setting=lambda name: name, composition_of=lambda _, method: (method, {}),
    )  # fmt: skip
    numbers = {"Prox": (60.0, 1.0), "IMA": (40.0, 1.0), "Both": (70.0, 1.0), "FedAvg": (50.0, 0.5)}
    played = [
        replace(played_of("one", numbers), left_out={"Out": "why"}),
        played_of("two", {**numbers, "Prox": (90.0, 1.0)}, setting="s/b"),
    ]
    found = method.in_league(bench, played)
    assert {*found} == {"fedprox", "ima", "scaffold"}
    prox, ima, out = (found[name] for name in ("fedprox", "ima", "scaffold"))
    assert [stand.lead.lead for stand in prox.stands] == pytest.approx([10, 40])
    assert [(stand.rank, stand.of, stand.column) for stand in prox.stands] == [
        (2.0, 4, "Prox"), (1.0, 4, "Prox")
    ]  # fmt: skip
    assert [stand.rank for stand in ima.stands] == [4.0, 4.0]
    assert (out.stands, out.left_out, [*out.labels]) == ([], {"Out": "why"}, ["Out"])
    assert prox.left_out == {} and [*prox.labels] == ["Prox"]
    text = MethodText(
        {"name": "fedprox", "kind": "method"},
        'FedProx.\n\nThe paper is "P" (V 2020). It differs in a.\n\n$$x$$\n\n'
        "Symbols: $x$ is y.\n\nMore.\n\nhttps://a.org",
        "", "fedprox.py", {}, {},
    )  # fmt: skip
    page = method.method_page(text, [], None, prox, {"Prox": "prox.html", "IMA": "ima.html"})
    assert [stand.lead.lead for stand in page["stands"]] == pytest.approx([40, 10])
    assert page["compared"] == {"Prox": "prox.html"} and not page["is_baseline"]
    assert (page["title"], page["difference"], page["paragraphs"]) == (
        "FedProx.", "It differs in a.", ["More."]
    )  # fmt: skip
    assert len(page["equations"]) == len(page["symbols"]) == 1
    kinds = [replace(text, facts={"name": kind, "kind": kind}) for kind in reversed(method.KINDS)]
    grouped = method.by_kind([*kinds, text])
    assert [(kind, [facts["name"] for facts in group]) for kind, group in grouped] == [
        (kind, [kind, *["fedprox"] * (kind == "method")]) for kind in method.KINDS
    ]


def test_files_of_methods_have_names_of_their_own() -> None:
    names = ["A b", "a-b", "Index", "!!", "A (b)", "method", "index-2"]
    slugs = compare._slugs(names)
    assert len({*slugs.values()}) == len(names) and "index" not in slugs.values()
    assert [slugs[name] for name in names[:4]] == ["a-b", "a-b-2", "index-2", "method"]
    rivalries = {
        "a": [SimpleNamespace(page="a/b.html"), SimpleNamespace(page="a/ab.html")],
        "ab": [SimpleNamespace(page="a/ab.html")], "b": [SimpleNamespace(page="a/b.html")],
    }  # fmt: skip
    pages = compare.pair_pages({file: {"rivalries": each} for file, each in rivalries.items()})
    assert {page: content["rivalry"] for page, content in pages.items()} == {
        "a/b.html": rivalries["a"][0], "a/ab.html": rivalries["a"][1]
    }  # fmt: skip
    assert [content["files"] for content in pages.values()] == [["a", "b"], ["a", "ab"]]


# --- a row's figures ------------------------------------------------------------------------------
def test_a_panel_is_named_by_its_plain_method_or_by_what_is_compared_with_the_first() -> None:
    assert row_figures._titled([(3, "alone"), (5, "with IMA")]) == 3
    assert row_figures._titled([(0, "FedAvg"), (4, "this method")]) == 4
    assert row_figures._titled([(2, "FedAvg")]) == 2


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_line_is_the_mean_of_seeds_of_the_means_of_last_rounds(rounds: int) -> None:
    one = [(1, 10.0), (2, 40.0), (3, 10.0)]
    other = [(1, 30.0), (2, 0.0), (3, 50.0)]

    def moving(values: list[tuple[int, float]]) -> list[float]:
        numbers = [value for _, value in values]
        return [float(np.mean(numbers[max(0, at + 1 - rounds) : at + 1])) for at in range(3)]

    alone = row_figures._line("a", [one], rounds, 7.0)
    assert alone is not None and [value for _, value in alone.points] == pytest.approx(moving(one))
    assert (alone.raw, alone.low, alone.level) == (one if rounds > 1 else (), (), 7.0)
    both = row_figures._line("a", [one, other], rounds, None)
    assert both is not None and both.raw == ()
    pairs = np.array([moving(one), moving(other)])
    assert [value for _, value in both.points] == pytest.approx(pairs.mean(0))
    assert [*both.low] == pytest.approx(pairs.min(0))
    assert [*both.high] == pytest.approx(pairs.max(0))
    assert row_figures._line("a", [], rounds) is None


def test_the_partition_of_the_first_seed_that_was_run_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = SimpleNamespace(
        root=tmp_path,
        setting=lambda _: SimpleNamespace(partition_path=lambda seed: Path(f"seed{seed}.npz")),
    )
    drawn: list[Path] = []

    def draw(root: Path, path: Path) -> Path | None:
        if not (root / path).exists():
            return None
        drawn.append(path)
        return path

    monkeypatch.setattr(row_figures, "draw_partition", draw)

    def result(*seeds: int) -> Any:
        runs = [SimpleNamespace(seed=seed, page="x" if seed > 1 else None) for seed in seeds]
        return SimpleNamespace(runs=runs)

    results = {0: result(5, 3), 1: result(1, 4)}
    row_figures._heat_map(bench, "s", results)  # type: ignore[arg-type]
    assert drawn == []
    for seed in (5, 4, 1):
        (tmp_path / f"seed{seed}.json").touch()
    row_figures._heat_map(bench, "s", results)  # type: ignore[arg-type]
    assert drawn == [Path("seed4.json")]


# --- a synthetic set's datasheet ------------------------------------------------------------------
def test_a_datasheet_says_what_is_in_the_folder(tmp_path: Path) -> None:
    """Classes have unequal numbers, one has none; measures are in the units of tables."""
    random = np.random.default_rng(0)
    labels = np.repeat([0, 2, 3], [3, 25, 1])
    order = random.permutation(len(labels))
    labels = labels[order].astype(np.int64)
    images = np.zeros((len(labels), 3, 4, 4), np.uint8)
    images[:, 0] = (8 * np.arange(len(labels)))[:, None, None]
    source = {
        "name": "d", "title": "D", "licence": "L", "citation": "C", "content_sha256": "0",
        "class_names": ["zero", "one", "two", "three", "four"],
    }  # fmt: skip
    manifest = {"rounds_done": 4, "config_hash": "ab" * 32, "code": "c", "run": {"rounds": 9}}
    known = {name: number / 8 for number, name in enumerate(SETS)}
    record = SimpleNamespace(
        run=RunKey("s/a", "m", 3), manifest=manifest, quality={"numbers": known, "judge": {"x": 1}}
    )
    datasheet.write_export(tmp_path, images, labels, record, source)  # type: ignore[arg-type]
    about = json.loads((tmp_path / datasheet.DATASHEET).read_text(encoding="utf-8"))
    assert (about["samples"], about["shape"], about["per_class"]) == (
        29,
        [3, 4, 4],
        [3, 0, 25, 1, 0],
    )
    assert (about["run"]["rounds"], about["run"]["seed"], about["quality"]) == (4, 3, known)
    for name, digest in about["sha256"].items():
        assert sha256_of(tmp_path / name) == digest
    assert {*about["sha256"]} == {datasheet.IMAGES, datasheet.SHEET}
    words = (tmp_path / datasheet.README).read_text(encoding="utf-8")
    told = [line.rpartition(": ")[2] for line in words.partition("## Quality")[2].splitlines()
            if line.startswith("- ")]  # fmt: skip
    for said, (name, value) in zip(told, known.items(), strict=True):
        measure = SETS[name]
        assert float(said.split()[0]) == pytest.approx(measure.factor * value, abs=0.006)
        assert said.endswith(measure.unit)
    assert "zero 3, one 0, two 25, three 1, four 0." in words and " 4 federated rounds" in words
    with np.load(tmp_path / datasheet.IMAGES) as arrays:
        assert (arrays["x"] == images).all() and (arrays["y"] == labels).all()
    picture = np.asarray(Image.open(tmp_path / datasheet.SHEET).convert("RGBA"))
    wide = 20  # at most so many of a class, and as many as the largest has
    assert picture.shape == (3 * 6 - 2, wide * 6 - 2, 4)
    for row, label in enumerate((0, 2, 3)):
        own = np.flatnonzero(labels == label)[:20]
        for column in range(wide):
            red, green, _, seen = (int(part) for part in picture[row * 6, column * 6])
            if column < len(own):
                assert seen and abs(red - 8 * int(own[column])) < 8 and green < 8
            else:
                assert red == green == 255
    bare = SimpleNamespace(run=record.run, manifest=manifest, quality={})
    (tmp_path / "bare").mkdir()
    datasheet.write_export(tmp_path / "bare", images, labels, bare, source)  # type: ignore[arg-type]
    assert json.loads((tmp_path / "bare" / datasheet.DATASHEET).read_text())["quality"] == {}
