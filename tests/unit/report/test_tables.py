import fcntl
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedrepro.config.loading import load
from fedrepro.config.metrics import ACCURACY, Least, MegabytesTo, OfRounds, Reached, RoundsTo
from fedrepro.config.tables import Summary
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.measures.registry import SETS
from fedrepro.report.cells import cell_verdict, coverage, tables
from fedrepro.report.cells.cell import TableCell, read_table
from fedrepro.report.cells.claims import index_of
from fedrepro.report.cells.readings import Readings, answers_of
from fedrepro.report.cells.tables import compute
from fedrepro.report.pages.table import table_page
from fedrepro.report.papers import published
from fedrepro.report.papers.published import Published
from fedrepro.report.papers.verdict import Verdict
from fedrepro.run.results import find_run
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError
from fedrepro.support.locks import lock_of
from support.manifests import write_manifest
from support.places import ROOT
from support.report_world import curve, make_world, write_run

PAPER = "ima/fmnist-shards2"
DEMO = "ima/fmnist-shards2-demo"


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return load(make_world(tmp_path, rows=1))


@pytest.fixture(scope="module")
def papers() -> Published:
    return replace(published.load(ROOT), insights=())  # of whole tables


def cells(bench: Workbench, papers: Published, scale: str) -> tuple[TableCell, ...]:
    return tables.compute(bench, bench.table("ima", "table_1", scale), papers).cells


def constant(value: float, rounds: int = 300) -> list[float]:
    return [value] * rounds


def test_the_last_ten_rounds_are_averaged(bench: Workbench, papers: Published) -> None:
    accuracies = [*constant(0.5, 290), *(0.80 + 0.002 * step for step in range(10))]
    write_run(bench, RunKey(PAPER, "fedavg", 1), accuracies)
    first = cells(bench, papers, "paper")[0]
    assert first.printed.mean == 81.17
    assert first.result.mean == pytest.approx(80.9)
    assert first.difference == pytest.approx(-0.27)
    assert first.verdict.word == "undecided"  # one seed, and no spread from anywhere


def test_seeds_make_mean_spread_and_interval(bench: Workbench, papers: Published) -> None:
    for seed, value in enumerate((0.80, 0.81, 0.82), start=1):
        write_run(bench, RunKey(PAPER, "fedavg", seed), constant(value))
    found = cells(bench, papers, "paper")[0].result
    assert (found.n, found.std) == (3, pytest.approx(1))
    assert found.mean == pytest.approx(81)
    assert found.half_width == pytest.approx(2.484, abs=1e-3)
    assert [run.value for run in found.runs] == pytest.approx([80, 81, 82])


def test_one_seed_borrows_the_widest_spread_of_its_column(
    tmp_path: Path, papers: Published
) -> None:
    """From three seeds in another row, unless the run's own last rounds scatter more."""
    bench = load(make_world(tmp_path, rows=2))
    target = bench.table("ima", "table_1", "paper")
    row, other = (target.cells[at].setting for at in (0, len(target.table.columns)))
    assert bench.setting(row).dataset == bench.setting(other).dataset and row != other
    write_run(bench, RunKey(row, "fedavg", 1), constant(0.70))
    for seed, value in enumerate((0.59, 0.60, 0.61), start=1):
        write_run(bench, RunKey(other, "ima+fedavg", seed), constant(value))
    assert cells(bench, papers, "paper")[0].verdict.limit is None  # another column
    for seed, value in enumerate((0.59, 0.60, 0.61), start=1):
        write_run(bench, RunKey(other, "fedavg", seed), constant(value))
    verdict = cells(bench, papers, "paper")[0].verdict
    assert (verdict.word, verdict.basis, verdict.seeds) == ("differs", "borrowed", 1)
    assert verdict.limit == pytest.approx(4.302653 * 2**0.5 + 0.005, abs=1e-5)
    label = target.cells[len(target.table.columns)].row.label
    assert repr(label) in verdict.why and re.search(r"\b3\b", verdict.why)
    swinging = [*constant(0.70, 290), *(0.5, 0.9) * 5]
    shutil.rmtree(bench.root / RunKey(row, "fedavg", 1).folder)
    write_run(bench, RunKey(row, "fedavg", 1), swinging)
    verdict = cells(bench, papers, "paper")[0].verdict
    assert verdict.word == "undecided" and re.search(r"\b10\b", verdict.why)


def test_missing_runs_are_holes(bench: Workbench, papers: Published) -> None:
    for cell in cells(bench, papers, "paper"):
        assert cell.result.hole == "not run"
        assert cell.verdict is None


def test_a_demo_number_has_no_verdict(bench: Workbench, papers: Published) -> None:
    write_run(bench, RunKey(DEMO, "fedavg", 1), constant(0.8117, 40))
    first = cells(bench, papers, "demo")[0]
    assert first.demo.mean == pytest.approx(81.17)
    assert first.result.n == 0
    assert first.verdict is None
    assert first.difference is None


def test_a_landed_result_carries_a_verdict_at_either_scale(
    bench: Workbench, papers: Published
) -> None:
    write_run(bench, RunKey(PAPER, "ima+fedavg", 1), constant(0.80), reference=True)
    for scale in ("demo", "paper"):
        second = cells(bench, papers, scale)[1]
        assert second.result.runs[0].reference
        assert (second.verdict.word, second.verdict.seeds) == ("undecided", 1)


def test_a_run_of_this_machine_comes_before_a_landed_one(
    bench: Workbench, papers: Published
) -> None:
    run = RunKey(PAPER, "fedavg", 1)
    write_run(bench, run, constant(0.70), reference=True)
    write_run(bench, run, constant(0.81))
    assert cells(bench, papers, "paper")[0].result.mean == pytest.approx(81)


def test_a_damaged_run_is_not_passed_over_for_a_landed_one(bench: Workbench) -> None:
    run = RunKey(PAPER, "fedavg", 1)
    write_run(bench, run, constant(0.70), reference=True)
    assert find_run(bench.root, run).state == "finished"
    folder = write_run(bench, run, constant(0.81))
    (folder / "manifest.json").write_text("{", encoding="utf-8")
    found = find_run(bench.root, run)
    assert (found.state, found.folder) == ("damaged", run.folder)


def test_another_configuration_is_not_comparable(bench: Workbench, papers: Published) -> None:
    write_run(bench, RunKey(PAPER, "fedavg", 1), constant(0.81), reference=True, batch_size=64)
    verdict = cells(bench, papers, "paper")[0].verdict
    assert verdict.word == "not comparable"
    assert "batch_size" in verdict.why


@pytest.mark.parametrize(
    "other", [{"executor": "vectorised"}, {"device": "cuda:0"}, {"threads": None}]
)
def test_seeds_of_different_arithmetic_are_not_averaged(
    bench: Workbench, papers: Published, other: dict[str, object]
) -> None:
    for seed in (1, 2):
        folder = write_run(bench, RunKey(PAPER, "fedavg", seed), constant(0.81))
    write_manifest(folder, json.loads((folder / "manifest.json").read_text()) | other)
    cell = cells(bench, papers, "paper")[0]
    assert (cell.result.n, cell.result.mean, cell.result.chosen) == (0, None, None)
    assert cell.verdict and cell.verdict.word == "not comparable"
    assert "'per client'" in cell.verdict.why and cell.result.apart
    assert cell.result.hole and re.findall(r"seed (\d+)", cell.result.hole) == ["1", "2"]
    assert [run.value for run in cell.result.runs][:2] == [None, None]
    shutil.rmtree(folder)  # one seed has one class
    assert cells(bench, papers, "paper")[0].result.mean == pytest.approx(81)


@pytest.mark.parametrize(
    ("key", "name", "value", "always"),
    [("packages", "torch", "2.8.0", False), ("packages", "torch", "2.9.1", True),
     ("hardware", "machine", "aarch64", False), ("hardware", "cores", 64, True)],
)  # fmt: skip
def test_seeds_of_another_architecture_are_averaged_on_request(
    bench: Workbench, papers: Published, key: str, name: str, value: object, always: bool
) -> None:
    """Nor are those of another minor version of PyTorch without it."""
    for seed in (1, 2):
        folder = write_run(bench, RunKey(PAPER, "fedavg", seed), constant(0.8 + 0.02 * (seed - 1)))
    manifest = json.loads((folder / "manifest.json").read_text())
    write_manifest(folder, {**manifest, key: {**manifest[key], name: value}})
    found = cells(bench, papers, "paper")[0].result
    assert (found.n, found.apart) == ((2, False) if always else (0, True))
    assert always or str(value)[:3] in found.hole
    across = bench.config.model_copy(update={"average_across": True})
    found = cells(replace(bench, config=across), papers, "paper")[0].result
    assert (found.n, found.mean) == (2, pytest.approx(81))


def test_a_diverged_run_shows_and_is_not_comparable(bench: Workbench, papers: Published) -> None:
    nan = float("nan")
    write_run(bench, RunKey(PAPER, "fedavg", 1), [0.5, 0.4, nan], status="diverged")
    first = cells(bench, papers, "paper")[0]
    assert re.findall(r"\d+", first.result.hole) == ["1", "3"]  # the seed and the round
    assert first.result.diverged == (1,)
    assert first.verdict.word == "not comparable"
    write_run(bench, RunKey(PAPER, "fedavg", 2), constant(0.81))
    first = cells(bench, papers, "paper")[0]
    assert first.result.mean == pytest.approx(81)
    assert re.findall(r"\d+", first.result.trouble) == ["1", "3"]
    assert first.result.diverged == (1,)
    assert first.verdict.word == "not comparable"


def test_a_mean_of_fewer_rounds_says_so(bench: Workbench, papers: Published) -> None:
    """The table's numbers are means of the last ten evaluated rounds."""
    assert bench.table("ima", "table_1", "paper").table.summary.rounds == 10
    write_run(bench, RunKey(PAPER, "fedavg", 1), constant(0.81, 9), rounds=9)
    first = cells(bench, papers, "paper")[0].result
    assert first.mean == pytest.approx(81)
    assert re.findall(r"\d+", first.trouble) == ["1", "9", "10", "1"]
    assert first.runs[0].changed == ("rounds",) and first.trouble.endswith(": rounds")
    write_run(bench, RunKey(PAPER, "ima+fedavg", 1), constant(0.81, 10), rounds=10)
    trouble = cells(bench, papers, "paper")[1].result.trouble
    assert re.findall(r"\d+", trouble) == ["1"] and trouble.endswith(": rounds")


def with_metric(bench: Workbench, metric: object) -> Workbench:
    experiment = bench.experiments["ima"]
    table = experiment.tables["table_1"]
    changed = table.model_copy(update={"metric": metric, "summary": Summary()})
    tables = {**experiment.tables, "table_1": changed}
    return replace(bench, experiments={"ima": experiment.model_copy(update={"tables": tables})})


def test_rounds_to_a_target(bench: Workbench, papers: Published) -> None:
    """The first round that has it, also where a later one falls back; fewer is better."""
    bench = with_metric(bench, RoundsTo(rounds_to=60))
    write_run(bench, RunKey(PAPER, "fedavg", 1), [0.5, 0.6, 0.3, *constant(0.7, 297)])
    write_run(bench, RunKey(PAPER, "ima+fedavg", 1), constant(0.5999))
    first, second = cells(bench, papers, "paper")[:2]
    assert first.result.mean == 2
    assert second.result.hole == "seed 1 never reached 60 %"


@pytest.mark.parametrize("percent", range(1, 100))
def test_a_target_is_reached_by_what_equals_it(percent: int) -> None:
    """100 x 0.57 is less than 57 in floats."""
    record: Any = SimpleNamespace(rounds={"round": [1, 2], "test_accuracy": [0.0, percent / 100]})
    assert list(RoundsTo(rounds_to=percent).quantity.series(record)) == [(2, 2)]


def test_megabytes_to_a_target() -> None:
    """Two rounds of 3 MB, and two of 5 MB, the second of which has the accuracy."""
    rounds = {
        "round": [2, 4, 6], "test_accuracy": [0.3, 0.57, 0.9],
        "bytes_down": [2e6, 2e6, 2e6], "bytes_up": [1e6, 3e6, 1e6],
    }  # fmt: skip
    record: Any = SimpleNamespace(rounds=rounds)
    assert list(MegabytesTo(megabytes_to=57).quantity.series(record)) == [(4, 16.0)]
    assert list(MegabytesTo(megabytes_to=30).quantity.series(record)) == [(2, 6.0)]
    assert list(MegabytesTo(megabytes_to=91).quantity.series(record)) == []
    assert not MegabytesTo(megabytes_to=57).quantity.higher_is_better


def test_a_table_has_megabytes_to_a_target(bench: Workbench, papers: Published) -> None:
    bench = with_metric(bench, MegabytesTo(megabytes_to=60))
    write_run(bench, RunKey(PAPER, "fedavg", 1), [0.5, 0.6, 0.3, *constant(0.7, 297)])
    write_run(bench, RunKey(PAPER, "ima+fedavg", 1), constant(0.5999))
    first, second = cells(bench, papers, "paper")[:2]
    assert first.result.mean is not None and first.result.mean > 0
    assert second.result.hole == "seed 1 never reached 60 %"


def test_the_target_is_what_all_seeds_reach(bench: Workbench, papers: Published) -> None:
    """The greatest multiple of 5 %, met to rounding; each run shows its own."""
    bench = with_metric(bench, Reached(reached_in_steps_of=5))
    for seed, most in enumerate((0.7999, 0.6, 0.64), start=1):
        write_run(bench, RunKey(PAPER, "fedavg", seed), [0.1, most, 0.3, *constant(0.2, 297)])
    found = cells(bench, papers, "paper")[0].result
    assert [run.value for run in found.runs] == [75, 60, 60]
    assert (found.mean, found.std, found.n) == (60, None, 3)


def test_the_least_loss_is_of_the_mean_over_seeds(bench: Workbench, papers: Published) -> None:
    """Not the mean of each run's least; what was chosen on is one number, without a spread."""
    bench = with_metric(bench, Least(least="distillation_loss"))
    for seed, losses in enumerate(([0.5, 0.3, 0.9], [0.1, 0.7, 0.9]), start=1):
        more = {"distillation_loss": [*losses, *constant(1.0, 297)]}
        write_run(bench, RunKey(PAPER, "fedavg", seed), constant(0.5), more=more)
    write_run(bench, RunKey(PAPER, "fedavg+fedadam", 1), constant(0.5))
    first = cells(bench, papers, "paper")[0]
    assert [run.value for run in first.result.runs if run.value] == [0.3, 0.1]
    assert first.result.mean == pytest.approx(0.3)  # of .3, .5 and .9
    assert (first.result.std, first.result.half_width, first.result.n) == (None, None, 2)


def test_an_ensemble_is_read_or_said_not_to_be_there(bench: Workbench, papers: Published) -> None:
    more = {"ensemble_accuracy": constant(0.75), "ensemble_loss": constant(1.5)}
    write_run(bench, RunKey(PAPER, "fedavg", 1), constant(0.5), more=more)
    write_run(bench, RunKey(PAPER, "ima+fedavg", 1), constant(0.5))
    for name, value in (("ensemble_accuracy", 75), ("ensemble_loss", 1.5)):
        first, second = cells(with_metric(bench, OfRounds(name=name)), papers, "paper")[:2]
        assert first.result.mean == pytest.approx(value)
        words = name.replace("ensemble_", "ensemble's ")
        assert second.result.mean is None and second.result.hole.endswith(f" {words}")


def test_rounds_after_the_last_that_counts_are_left_out(
    bench: Workbench, papers: Published
) -> None:
    experiment = bench.experiments["ima"]
    table = experiment.tables["table_1"].model_copy(update={"summary": Summary(rounds=2, up_to=50)})
    tables = {"table_1": table}
    bench = replace(bench, experiments={"ima": experiment.model_copy(update={"tables": tables})})
    accuracies = [*constant(0.1, 48), 0.6, 0.8, *constant(0.9, 250)]
    write_run(bench, RunKey(PAPER, "fedavg", 1), accuracies)
    assert cells(bench, papers, "paper")[0].result.mean == pytest.approx(70)
    target = bench.table("ima", "table_1", "paper")
    page = table_page(bench, target, compute(bench, target, papers), papers)
    assert (page["table"].summary.rounds, page["table"].summary.up_to) == (2, 50)
    assert page["rows"][0].curve


def test_a_cell_may_have_a_setting_and_a_metric_of_its_own(
    bench: Workbench, papers: Published
) -> None:
    experiment = bench.experiments["ima"]
    table = experiment.tables["table_1"]
    first, second, *rest = table.columns
    other = DEMO.partition("/")[2]
    row = table.rows[0].model_copy(update={"column_settings": {second.label: other}})
    columns = [first.model_copy(update={"metric": OfRounds(name="loss")}), second, *rest]
    table = table.model_copy(update={"rows": [row], "columns": columns, "metric": ACCURACY})
    tables = {"table_1": table}
    bench = replace(bench, experiments={"ima": experiment.model_copy(update={"tables": tables})})
    write_run(bench, RunKey(PAPER, "fedavg", 1), constant(0.5))
    there = bench.table("ima", "table_1", "paper").cells[1].methods[0]
    write_run(bench, RunKey(DEMO, there, 1), constant(0.25))
    found = cells(bench, papers, "paper")
    assert found[0].result.mean == pytest.approx(math.log(2))
    assert (found[1].result.setting, found[1].result.mean) == (DEMO, pytest.approx(25))
    assert found[2].result.setting == PAPER
    target = bench.table("ima", "table_1", "paper")
    page = table_page(bench, target, compute(bench, target, papers), papers)
    assert page["rows"][0].notes[:3] == ["loss", f"in {DEMO}", ""]
    assert page["table"].summary.rounds == 10 and page["rows"][0].curve
    assert {cell.setting for cell in bench.table("ima", "table_1", "demo").cells} == {DEMO}
    row = row.model_copy(update={"demo_column_settings": {first.label: "fmnist-iid-demo"}})
    whole = {first.label: "*-a", second.label: "*-b", rest[0].label: "*-c", rest[1].label: "x"}
    table = table.model_copy(update={"column_settings": whole})
    found = [table.setting_of(row, column, "demo") for column in table.columns[:4]]
    assert found == ["fmnist-iid-demo", other, f"{row.demo}-c", row.demo]
    paper = [table.setting_of(row, column, "paper") for column in table.columns[:4]]
    assert paper == [f"{row.setting}-a", other, f"{row.setting}-c", "x"]


def test_rounds_to_a_mean_of_several_rounds(bench: Workbench, papers: Published) -> None:
    bench = with_metric(bench, RoundsTo(rounds_to=60, mean_of=3))
    write_run(bench, RunKey(PAPER, "fedavg", 1), [0.7, 0.5, 0.3, 0.9, 0.6, *constant(0.7, 295)])
    write_run(bench, RunKey(PAPER, "ima+fedavg", 1), [0.5, 0.9, *constant(0.5, 298)])
    first, second = cells(bench, papers, "paper")[:2]
    assert first.result.mean == 5  # (0.3 + 0.9 + 0.6) / 3
    assert second.result.mean == 3
    short = with_metric(bench, RoundsTo(rounds_to=60, mean_of=301))
    assert cells(short, papers, "paper")[0].result.hole == "seed 1 never reached 60 %"


def speed_ups(bench: Workbench) -> Workbench:
    """The first row as Table II has it: each method in IMA, against itself without."""
    experiment = bench.experiments["ima"]
    table = experiment.tables["table_1"]
    row = table.rows[0].model_copy(
        update={
            "wrapper": "ima",
            "metric": RoundsTo(rounds_to=60, speed_up=True),
            "published": {**table.rows[0].published, "method": "+IMA"},
        }
    )
    columns = [table.columns[0], table.columns[2]]
    changed = {"rows": [row], "columns": columns, "summary": Summary()}
    tables = {"table_1": table.model_copy(update=changed)}
    return replace(bench, experiments={"ima": experiment.model_copy(update={"tables": tables})})


def test_speed_up_is_over_the_same_method_without_the_row_s_wrapper(
    bench: Workbench, papers: Published
) -> None:
    """Seed by seed, each side with its best coefficient; a seed that lacks a side is left out."""
    bench = speed_ups(bench)

    def reaching(method: str, seed: int, round: int) -> None:
        accuracies = [*constant(0.3, round - 1), *constant(0.7, 301 - round)]
        write_run(bench, RunKey(PAPER, method, seed), accuracies)

    for seed, alone, averaged in ((1, 120, 60), (2, 90, 60)):
        reaching("fedavg", seed, alone)
        reaching("ima+fedavg", seed, averaged)
    reaching("ima+fedavg", 3, 60)
    for method, round in (("fedprox", 200), ("fedprox_mu0.1", 100), ("ima+fedprox", 40)):
        reaching(method, 1, round)
    found = cells(bench, papers, "paper")
    assert [cell.printed.method for cell in found] == ["FedAvg+IMA", "FedProx+IMA"]
    assert (found[0].result.mean, found[0].result.n) == (1.75, 2)
    assert re.findall(r"\d+|wrapper", found[0].result.trouble) == ["3", "wrapper"]
    assert (found[1].result.mean, found[1].result.chosen) == (2.5, "ima+fedprox")
    target = bench.table("ima", "table_1", "paper")
    assert {"fedavg", "ima+fedavg"} < {run.method for run in target.runs}


def test_a_speed_up_over_what_never_arrives_is_a_hole(bench: Workbench, papers: Published) -> None:
    bench = speed_ups(bench)
    write_run(bench, RunKey(PAPER, "fedavg", 1), constant(0.3))
    write_run(bench, RunKey(PAPER, "ima+fedavg", 1), constant(0.7))
    result = cells(bench, papers, "paper")[0].result
    assert re.findall(r"\d+|wrapper", result.hole) == ["1", "wrapper", "60"]
    assert result.mean is None


def test_a_run_that_stopped_early_is_no_number(bench: Workbench, papers: Published) -> None:
    write_run(bench, RunKey(PAPER, "fedavg", 1), constant(0.81, 120), reference=True)
    result = cells(bench, papers, "paper")[0].result
    assert (result.mean, result.runs[0].state) == (None, "stopped early")
    assert re.findall(r"\d+", result.hole) == ["1", "120", "300"]


def test_a_failed_run_says_why(bench: Workbench, papers: Published) -> None:
    log = bench.root / "results/logs/run" / DEMO / "fedavg/seed1.log"
    log.parent.mkdir(parents=True)
    log.write_text("round 3 of 20\nfedrepro: the disk is full\n", encoding="utf-8")
    result = cells(bench, papers, "demo")[0].demo
    assert result.runs[0].state == "failed" and result.hole.endswith(": the disk is full")


def test_an_interrupted_run_is_a_failed_one(bench: Workbench, papers: Published) -> None:
    (bench.root / "results/runs" / DEMO / "fedavg/seed1.partial").mkdir(parents=True)
    result = cells(bench, papers, "demo")[0].demo
    assert result.runs[0].state == "failed" and result.hole


def test_a_run_under_way_is_no_failed_one(bench: Workbench, papers: Published) -> None:
    folder = bench.root / "results/runs" / DEMO / "fedavg/seed1.partial"
    folder.mkdir(parents=True)
    with lock_of(folder).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert cells(bench, papers, "demo")[0].demo.runs[0].state == "under way"
    result = cells(bench, papers, "demo")[0].demo
    assert result.runs[0].state == "failed" and result.hole


def test_the_best_of_several_methods_counts(bench: Workbench, papers: Published) -> None:
    for method, value in (("fedprox_mu0.1", 0.78), ("fedprox", 0.79), ("fedprox_mu0.001", 0.77)):
        write_run(bench, RunKey(PAPER, method, 1), constant(value))
    third = cells(bench, papers, "paper")[2]
    assert third.result.chosen == "fedprox"
    assert third.result.mean == pytest.approx(79)
    assert [bool(cell.selection) for cell in cells(bench, papers, "paper")[:3]] == [False] * 2 + [
        True
    ]
    assert third.verdict.word == "undecided"


def test_a_candidate_that_diverged_was_not_the_best(bench: Workbench, papers: Published) -> None:
    nan = float("nan")
    write_run(bench, RunKey(PAPER, "fedprox_mu0.1", 1), [0.5, nan], status="diverged")
    write_run(bench, RunKey(PAPER, "fedprox", 1), constant(0.79))
    verdict = cells(bench, papers, "paper")[2].verdict
    assert re.findall(r"\d+", verdict.why) == ["3", "2"]
    write_run(bench, RunKey(PAPER, "fedprox_mu0.001", 1), constant(0.77))
    assert cells(bench, papers, "paper")[2].verdict.word == "undecided"


def test_a_best_of_some_is_not_comparable(bench: Workbench, papers: Published) -> None:
    write_run(bench, RunKey(PAPER, "fedprox", 1), constant(0.7978))
    verdict = cells(bench, papers, "paper")[2].verdict
    why = "The printed number is the best of 3; 1 of them is run."
    assert verdict == Verdict("not comparable", why)


def test_the_file_is_plain_json_and_the_same_twice(bench: Workbench, papers: Published) -> None:
    write_run(bench, RunKey(DEMO, "fedavg", 1), curve(40, 0.8))
    target = bench.table("ima", "table_1", "demo")
    path = bench.root / tables.write(bench, target, papers)
    first = path.read_bytes()
    assert path == bench.root / "results/tables/demo/ima/table_1.json"
    tables.write(bench, target, papers)
    assert path.read_bytes() == first
    assert json.loads(first)["cells"][0]["demo"]["n"] == 1
    assert read_table(bench.root, target) == tables.compute(bench, target, papers)


def test_a_damaged_table_is_named(bench: Workbench, papers: Published) -> None:
    target = bench.table("ima", "table_1", "demo")
    assert read_table(bench.root, target) is None
    path = bench.root / tables.write(bench, target, papers)
    whole = path.read_text(encoding="utf-8")
    wrong = whole.replace('"n": 0', '"n": "x"')
    what = checksummed_json.of_results(target.path)
    sealed_wrong = json.dumps(checksummed_json.sealed(json.loads(wrong), what))
    for text, why in ((whole[:100], ""), (wrong, "its content differs"), (sealed_wrong, "n: ")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=rf"table_1\.json: damaged: .*{why}.*; delete it"):
            read_table(bench.root, target)


def test_damaged_files_are_holes_and_not_averaged(bench: Workbench, papers: Published) -> None:
    folder = write_run(bench, RunKey(DEMO, "fedavg", 1), constant(0.8, 40))
    file, manifest = folder / "rounds.parquet", folder / "manifest.json"
    whole = file.read_bytes()
    other = write_run(bench, RunKey(DEMO, "fedprox", 1), constant(0.9, 40)) / "rounds.parquet"
    # The second is a readable table of 0.9, which was not this run's.
    for content in (b"PAR1 no more", other.read_bytes(), None):
        file.unlink() if content is None else file.write_bytes(content)
        result = cells(bench, papers, "demo")[0].demo
        assert result is not None and result.mean is None and result.n == 0
        fault = "is missing" if content is None else "differs from the hash in its manifest"
        assert result.hole == f"damaged: rounds.parquet {fault}"
    file.write_bytes(whole)
    assert cells(bench, papers, "demo")[0].demo.mean == pytest.approx(80.0)
    manifest.write_text("{", encoding="utf-8")
    hole = cells(bench, papers, "demo")[0].demo.hole
    assert hole is not None and hole.startswith(
        f"{RunKey(DEMO, 'fedavg', 1).folder}/manifest.json: damaged"
    )


def test_coverage_counts_printed_cells(bench: Workbench) -> None:
    write_run(bench, RunKey(PAPER, "fedavg", 1), constant(0.81))
    write_run(bench, RunKey(PAPER, "ima+fedavg", 1), constant(0.81), reference=True)
    write_run(bench, RunKey(DEMO, "fednova", 1), constant(0.81, 40))
    rows = {(row["system"], row["table"]): row for row in coverage.coverage(bench)}
    assert rows["ima", "table_1"] == {
        "system": "ima", "table": "table_1", "printed": 192, "targets": 4, "computed": 2,
        "agree": 0, "undecided": 2, "differ": 0, "not_comparable": 0,
        "arithmetic_agree": 0, "arithmetic_differ": 0,
    }  # fmt: skip
    assert rows["ima", "all"]["printed"] == 292
    assert rows["all", "all"]["printed"] == 1397
    assert rows["all", "all"]["targets"] == 4
    # Tables with numbers, systems with their cells in any table, all and its two other readings.
    assert len(rows) == 40 - 2 + 2 * 5 + 3
    assert rows["all", "released"]["targets"] == 0
    assert {name: rows["all", "any"][name] for name in ("targets", "computed")} == {
        "targets": 4, "computed": 2,
    }  # fmt: skip


def test_claims_read_neither_released_numbers_for_the_text_nor_explanations(
    papers: Published,
) -> None:
    """Landed are Table 2.6 as released, and as an earlier state of the code; the text's is not."""
    bench = load(ROOT)
    items = ("table_2_6", "table_2_6_earlier", "table_2_6_released")
    landed = {
        ("superfed", item): compute(bench, bench.table("superfed", item, "paper"), papers)
        for item in items
    }
    computed = {
        item: sum(cell.result.n > 0 for cell in landed["superfed", item].cells) for item in items
    }
    assert not computed["table_2_6"] and computed["table_2_6_earlier"]
    answers = Readings(bench, papers, landed).by_table
    assert not index_of(answers, "text")
    assert len(index_of(answers, "released")) == computed["table_2_6_released"]
    assert not any(
        "earlier" in cell.result.setting for cell in index_of(answers, "released").values()
    )


def test_what_stands_in_is_shown_with_its_difference_and_counts_nowhere(
    bench: Workbench, papers: Published
) -> None:
    entry = bench.datasets["fmnist"].model_copy(update={"surrogate_for": "mnist"})
    bench = replace(bench, datasets={**bench.datasets, "fmnist": entry})
    write_run(bench, RunKey(PAPER, "fedavg", 1), constant(0.81))
    target = bench.table("ima", "table_1", "paper")
    table = tables.compute(bench, target, papers)
    first = table.cells[0]
    assert first.printed.mean == 81.17 and first.answered is None
    assert first.difference == pytest.approx(-0.17)
    assert (first.verdict.word, first.verdict.limit) == ("not comparable", None)
    assert re.search(r"\bmnist\b", first.verdict.why)
    assert not [*answers_of(bench, target, table, ())]
    assert not Readings(bench, papers, {("ima", "table_1"): table}).by_table["ima", "I"]
    write_run(bench, RunKey(DEMO, "fedavg", 1), constant(0.81, 40))
    demo = tables.compute(bench, bench.table("ima", "table_1", "demo"), papers)
    page = table_page(bench, bench.table("ima", "table_1", "demo"), demo, papers)
    assert {name for name, count in page["counts"].items() if count} == {"demo"}
    assert page["follows"]["of"] == 0
    rows = {(row["system"], row["table"]): row for row in coverage.coverage(bench)}
    counted = rows["ima", "table_1"]
    assert {counted[key] for key in ("targets", "computed", "agree", "not_comparable")} == {0}
    before_it_is_made = coverage.count(Readings(bench, papers, {}))
    assert not before_it_is_made["ima", "table_1"]["targets"]


def test_what_stands_in_has_no_say_in_the_limits_of_others(
    bench: Workbench, papers: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, value in ((1, 0.80), (2, 0.82), (3, 0.81)):
        for method in ("fedavg", "ima+fedavg"):
            write_run(
                bench, RunKey(PAPER, method, seed), constant(value + seed * len(method) / 1e4)
            )
    target = bench.table("ima", "table_1", "paper")
    results = [cell.result for cell in tables.compute(bench, target, papers).cells]
    printed = [tables.printed_cell(target, cell, papers) for cell in target.cells]
    monkeypatch.setattr(
        cell_verdict, "_on_own_splits", lambda printed, result, published: result.n > 0
    )
    assert {*cell_verdict.paired_spreads(bench, printed, results, papers)} == {0, 1}
    entry = bench.datasets["fmnist"].model_copy(update={"surrogate_for": "mnist"})
    bench = replace(bench, datasets={**bench.datasets, "fmnist": entry})
    assert not cell_verdict.paired_spreads(bench, printed, results, papers)


def test_of_a_synthetic_set_accuracy_and_diversity_are_better_when_they_are_more() -> None:
    higher_is_better = {name for name, measure in SETS.items() if measure.higher_is_better}
    assert {name for name in SETS if name.endswith("accuracy")} < higher_is_better
    assert {"one_epoch", "test_one_epoch", "precision", "nearest"} < higher_is_better
    assert not higher_is_better & {"accuracy_std", "one_epoch_std", "fid", "stand_in", "membership"}
