"""No run behind a cell is overlooked: each seed's, the rival's, and those of either scale."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedrepro.config.loading import load
from fedrepro.config.metrics import RoundsTo
from fedrepro.config.tables import Summary
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import coverage, tables
from fedrepro.report.cells.cell import TableCell
from fedrepro.report.cells.readings import Answer, Both, Readings, in_both_readings
from fedrepro.report.pages import cost, overview
from fedrepro.report.pages.table import table_page
from fedrepro.report.papers import published
from fedrepro.report.papers.published import Published
from fedrepro.report.papers.verdict import Verdict
from fedrepro.support import checksummed_json
from support.manifests import write_manifest
from support.places import ROOT
from support.report_world import make_world, write_run

PAPER = "ima/fmnist-shards2"


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return load(make_world(tmp_path, rows=1))


@pytest.fixture(scope="module")
def papers() -> Published:
    return published.load(ROOT)


def write(bench: Workbench, method: str, seed: int, value: float, **changes: Any) -> Path:
    return write_run(bench, RunKey(PAPER, method, seed), [value] * 300, **changes)


def with_table(bench: Workbench, row: dict[str, Any], **changes: Any) -> Workbench:
    """The first table with other keys, and its first row with other keys."""
    experiment = bench.experiments["ima"]
    table = experiment.tables["table_1"]
    rows = [table.rows[0].model_copy(update=row)]
    changed = {"table_1": table.model_copy(update={"rows": rows, **changes})}
    return replace(bench, experiments={"ima": experiment.model_copy(update={"tables": changed})})


def first_cell(bench: Workbench, papers: Published, scale: str = "paper") -> TableCell:
    return tables.compute(bench, bench.table("ima", "table_1", scale), papers).cells[0]


def of_other_code(folder: Path, core: str = "other") -> None:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["numerics"]["core"] = core
    write_manifest(folder, manifest)


@pytest.mark.parametrize("odd", [1, 2, 3])
@pytest.mark.parametrize("by", ["configuration", "code"])
def test_a_seed_made_otherwise_is_not_averaged_with_the_current_ones(
    bench: Workbench, papers: Published, odd: int, by: str
) -> None:
    values = {1: 0.80, 2: 0.82, 3: 0.87}
    for seed, value in values.items():
        changes = {"lr_decay": 0.5} if seed == odd and by == "configuration" else {}
        folder = write(bench, "fedavg", seed, value, **changes)
        if seed == odd and by == "code":
            of_other_code(folder)
    cell = first_cell(bench, papers)
    rest = [100 * value for seed, value in values.items() if seed != odd]
    assert (cell.result.n, cell.result.mean) == (2, pytest.approx(sum(rest) / 2))
    (left_out,) = (run for run in cell.result.runs if run.state == "left out")
    assert (left_out.seed, left_out.value) == (odd, None)
    assert ("lr_decay" if by == "configuration" else "core") in left_out.why
    assert f"seed {odd} " in cell.result.trouble
    assert (
        cell.result.current_by_seed()
        == cell.result.counted_by_seed()
        == {run.seed: run.value for run in cell.result.runs if run.state == "finished"}
    )


@pytest.mark.parametrize("by", ["configuration", "code"])
def test_stale_seeds_are_averaged_only_if_all_were_made_in_the_same_way(
    bench: Workbench, papers: Published, by: str
) -> None:
    folders = []
    for seed in (1, 2, 3):
        changes = {"lr_decay": 0.5} if by == "configuration" else {}
        folders.append(write(bench, "fedavg", seed, 0.81, **changes))
        if by == "code":
            of_other_code(folders[-1])
    cell = first_cell(bench, papers)
    assert cell.result.mean == pytest.approx(81)
    assert cell.verdict is not None and cell.verdict.word == "not comparable"
    if by == "code":
        of_other_code(folders[1], "a third")
    else:
        manifest = json.loads((folders[1] / "manifest.json").read_text(encoding="utf-8"))
        manifest["run"]["lr_decay"] = 0.25
        write_manifest(folders[1], manifest)
    cell = first_cell(bench, papers)
    assert (cell.result.n, cell.result.mean) == (0, None)
    assert {run.state for run in cell.result.runs if run.method == "fedavg"} == {"left out"}
    assert cell.verdict is not None and cell.verdict.word == "not comparable"


def test_seeds_of_other_data_are_not_averaged(bench: Workbench, papers: Published) -> None:
    for seed, content in ((1, "a" * 64), (2, "b" * 64), (3, None)):
        folder = write(bench, "fedavg", seed, 0.81)
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        data = {**manifest.get("data", {}), "content_sha256": content}
        write_manifest(folder, {**manifest, "data": data})
    assert first_cell(bench, papers).result.mean is None


def test_the_best_of_several_methods_is_a_current_one(bench: Workbench, papers: Published) -> None:
    columns = [
        bench.experiments["ima"]
        .tables["table_1"]
        .columns[0]
        .model_copy(update={"method": ["fedavg", "fedprox"]})
    ]
    changed = with_table(bench, {}, columns=columns)
    write(bench, "fedprox", 1, 0.9, lr_decay=0.5)
    assert first_cell(changed, papers).result.chosen == "fedprox"
    write(bench, "fedavg", 1, 0.7)
    cell = first_cell(changed, papers).result
    assert (cell.chosen, cell.mean, cell.tried) == ("fedavg", pytest.approx(70), {"fedavg": 70})


@pytest.mark.parametrize("odd", ["fedavg", "ima+fedavg"])
def test_so_is_either_side_of_a_speed_up(bench: Workbench, papers: Published, odd: str) -> None:
    row = {"wrapper": "ima", "metric": RoundsTo(rounds_to=60, speed_up=True)}
    columns = bench.experiments["ima"].tables["table_1"].columns[:1]
    changed = with_table(bench, row, columns=columns, summary=Summary())
    for method in ("fedavg", "ima+fedavg"):
        write(bench, method, 1, 0.7, **({"lr_decay": 0.5} if method == odd else {}))
    found = first_cell(changed, papers).result
    assert found.mean == 1.0
    assert found.runs_of_the_chosen[0].changed == ("lr_decay",)


@pytest.mark.parametrize("odd", ["fedavg", "ima+fedavg", ""])
def test_so_is_old_code_of_either_side(bench: Workbench, papers: Published, odd: str) -> None:
    row = {"wrapper": "ima", "metric": RoundsTo(rounds_to=60, speed_up=True)}
    columns = bench.experiments["ima"].tables["table_1"].columns[:1]
    changed = with_table(bench, row, columns=columns, summary=Summary())
    for method in ("fedavg", "ima+fedavg"):
        folder = write(bench, method, 1, 0.7)
        if method == odd:
            of_other_code(folder)
    found = first_cell(changed, papers).result
    assert found.mean == 1.0
    assert bool(found.runs_of_the_chosen[0].code) == bool(odd)


def test_a_setting_of_both_scales_has_the_seeds_of_both(
    bench: Workbench, papers: Published
) -> None:
    seeds = bench.seeds("paper", "ima")
    assert {*bench.seeds("demo", "ima")} < {*seeds}
    for seed in seeds:
        write(bench, "fedavg", seed, 0.81)
    cell = first_cell(with_table(bench, {"demo": None}), papers, "demo")
    assert (cell.result.n, cell.demo) == (len(seeds), None)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_released_readings_the_most_complete_one_counts(
    bench: Workbench, papers: Published, order: tuple[int, int]
) -> None:
    cell = first_cell(bench, papers)
    assert cell.printed is not None
    answers = [
        Answer("row", f"column {len(what)}", cell, cell.printed, what, (), "%")
        for what in (("settings",), ("settings", "methods"))
    ]
    (both,) = in_both_readings(answers[place] for place in order).values()
    assert both.text is None and both.released == answers[1]


def test_of_equally_complete_readings_the_first_one_counts(
    bench: Workbench, papers: Published
) -> None:
    cell = first_cell(bench, papers)
    assert cell.printed is not None
    answers = [
        Answer("row", f"column {place}", cell, cell.printed, what, (), "%")
        for place, what in enumerate(((), ("settings",), (), ("methods",)))
    ]
    (both,) = in_both_readings(answers).values()
    assert (both.text, both.released) == (answers[0], answers[1])


@pytest.mark.parametrize("released", [(), ("settings",)])
def test_of_two_numbers_the_one_of_todays_code_counts(
    bench: Workbench, papers: Published, released: tuple[str, ...]
) -> None:
    cell = first_cell(bench, papers)
    assert cell.printed is not None
    cells = (replace(cell, verdict=Verdict(word, "")) for word in ("not comparable", "undecided"))
    more = (*released, "methods") if released else ()
    older, newer = (
        Answer("row", "column", each, cell.printed, what, (), "%")
        for each, what in zip(cells, (more, released), strict=True)
    )
    (both,) = in_both_readings([older, newer]).values()
    assert (both.released if released else both.text) == newer


def test_costs_are_added_and_memory_is_that_of_the_largest_run(bench: Workbench) -> None:
    for seed, rounds in ((1, 10), (2, 30)):
        run = RunKey(PAPER, "fedavg", seed)
        path = write_run(bench, run, [0.5] * rounds) / "timing.json"
        timing = checksummed_json.parsed(path)
        checksummed_json.write(path, timing | {"peak_memory_bytes": 1000 * rounds}, timing["what"])
    found = cost.cost(bench, Published(), cost.runs_with_cost(bench), [])
    (row,) = found["rows"]
    assert (row["wall"], row["cpu"]) == (pytest.approx(36), pytest.approx(32))
    assert (row["memory"], row["gpu"], row["devices"]) == (30_000, 0, ["cpu"])
    assert row["speed"] == pytest.approx(1 / 0.9)
    (table,) = (each for each in found["tables"] if each["scale"] == "paper")
    assert (table["runs"], table["memory"]) == (2, 30_000)


@pytest.mark.parametrize("stand_in", [0, 1, None])
def test_what_stands_in_hides_no_answer_on_the_printed_data(
    bench: Workbench, papers: Published, stand_in: int | None
) -> None:
    """Whichever comes first."""
    columns = bench.experiments["ima"].tables["table_1"].columns
    second = columns[0].model_copy(update={"label": "again", "method": "fedprox"})
    changed = with_table(bench, {}, columns=[columns[0], second])
    for seed, value in ((1, 0.811), (2, 0.812), (3, 0.8115)):
        for method in ("fedavg", "fedprox"):
            write(bench, method, seed, value)
    target = changed.table("ima", "table_1", "paper")
    table = tables.compute(changed, target, papers)
    cells = [
        replace(cell, surrogate_for="mnist" if number == stand_in else "")
        for number, cell in enumerate(table.cells)
    ]
    table = replace(table, cells=tuple(cells))
    shown = table_page(changed, target, table, papers)["counts"]
    assert (shown["printed"], shown["computed"], shown["agree"]) == (1, 1, 1)
    readings = Readings(changed, papers, {("ima", "table_1"): table})
    counts = coverage.count(readings)["ima", "table_1"]
    assert (counts["targets"], counts["agree"]) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "largest"),
    [
        ([1.0, -5.0], -5.0),
        ([-5.0, 1.0], -5.0),
        ([-1.0, 5.0], 5.0),
        ([-1.0, -5.0, 2.0], -5.0),
    ],
)
def test_the_largest_effect_of_a_discrepancy_may_be_a_loss(
    changes: list[float], largest: float
) -> None:
    """Alone; beside others it goes after any smaller one."""
    verdict = SimpleNamespace(is_of_current_runs=True)

    def answer(mean: float, items: tuple[str, ...] = ()) -> Any:
        cell = SimpleNamespace(verdict=verdict, result=SimpleNamespace(mean=mean))
        return SimpleNamespace(cell=cell, items=items, unit="%")

    cells: dict[Any, Any] = {
        number: Both(answer(60.0), answer(60.0 + change, ("7",)))
        for number, change in enumerate(changes)
    }
    cells["beside another"] = Both(answer(60.0), answer(90.0, ("7", "8")))
    effects = overview.effects_of({("ima", "I"): cells})
    assert effects["ima", "7"].change == largest and effects["ima", "8"].change == 30.0


def test_of_two_answers_to_a_printed_cell_the_first_counts(
    bench: Workbench, papers: Published
) -> None:
    columns = bench.experiments["ima"].tables["table_1"].columns
    second = columns[0].model_copy(update={"label": "again", "method": "fedprox"})
    changed = with_table(bench, {}, columns=[columns[0], second])
    for seed, value in ((1, 0.811), (2, 0.812), (3, 0.8115)):
        write(bench, "fedavg", seed, value)
        write(bench, "fedprox", seed, value - 0.3)
    target = changed.table("ima", "table_1", "paper")
    table = tables.compute(changed, target, papers)
    words = [cell.verdict and cell.verdict.word for cell in table.cells]
    assert words == ["agrees", "differs"]
    readings = Readings(changed, papers, {("ima", "table_1"): table})
    counts = coverage.count(readings)["ima", "table_1"]
    assert (counts["targets"], counts["agree"], counts["differ"]) == (1, 1, 0)
