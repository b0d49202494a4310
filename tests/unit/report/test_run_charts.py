"""Curves of runs' pages end at the number that cells take, whichever mixture that is of."""

import html
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

from fedrepro.config.loading import load
from fedrepro.config.metrics import ACCURACY
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import tables
from fedrepro.report.drawing.curves import Line
from fedrepro.report.pages.answers import answers_of, cells_of_runs, headline
from fedrepro.report.pages.figures.base import description_of, from_to
from fedrepro.report.pages.run import beside, charts_of, run_page
from fedrepro.report.pages.templates import Renderer
from fedrepro.report.papers import published
from fedrepro.run.results import find_run
from support.places import ROOT
from support.report_world import constant_run, make_system, make_world, write_run

MIXED = RunKey("superfed/mnist-500", "superfed_mm", 1)
ENDS = re.compile(r"([^;:]+) ends at ([\d.]+)")


def ends_of(chart: SimpleNamespace) -> dict[str, str]:
    """Where each line of a chart ends, as told to who can't see it."""
    label = re.search(r'aria-label="([^"]*)"', chart.desk)
    assert label
    words = html.unescape(label[1]).partition("setting ")[2].partition(": ")[2]
    return {name.strip(): end for name, end in ENDS.findall(words)}


def test_small_numbers_of_lines_are_told_with_three_digits() -> None:
    """Of squared errors of micrometres, say, all were 0.00."""
    small = [Line("A", [(1, 0.004), (2, 0.00125)]), Line("B", [(1, 0.003), (2, 0.0007)])]
    words = description_of("t", small, ACCURACY.quantity, "s")
    assert ENDS.findall(words.partition(" s: ")[2]) == [("A", "0.00125"), (" B", "0.00070")]
    assert from_to(small) == "A 0.00400 to 0.00125; B 0.00300 to 0.00070"


def charts(bench: Workbench, run: RunKey) -> list[SimpleNamespace]:
    uses = cells_of_runs(bench, published.load(bench.root), {run})[run]
    record = find_run(bench.root, run)
    return charts_of(record, [each.use for each in headline(answers_of(record, uses))])


def test_the_page_of_every_run_of_a_landed_table_has_its_cells_numbers() -> None:
    """Of clients' mixtures too: those of one run differ by more than a point."""
    bench, papers = load(ROOT), published.load(ROOT)
    target = bench.table("superfed", "table_2_3_released", "paper")
    runs = {run for run in target.runs if run.seed == 1 and find_run(ROOT, run).manifest}
    uses = cells_of_runs(bench, papers, runs, only="superfed")
    found, table = 0, tables.compute(bench, target, papers)
    for run in runs:
        record = find_run(ROOT, run)
        answers = answers_of(record, uses[run])
        ends = [
            end
            for chart in charts_of(record, [each.use for each in headline(answers)])
            for end in ends_of(chart).values()
        ]
        for answer in answers:
            if answer.use.page != "superfed/table_2_3_released.html" or answer.value is None:
                continue
            row, column = re.findall(r"#row-(\d+)-(\d+)", answer.places[0][1])[0]
            cell = table.cells[(int(row) - 1) * len(table.columns) + int(column) - 1]
            values = [
                each.value
                for each in cell.result.runs
                if cell.result.run_of(each) == run and each.value is not None
            ]
            # A cell whose runs differ in their arithmetic has no number.
            assert values in ([], [answer.value]), answer.places
            assert f"{answer.value:.2f}" in ends, answer.places
            found += 1
    assert found >= 20


def test_marks_are_at_the_mixtures_that_cells_take() -> None:
    (chart,) = charts(load(ROOT), MIXED)
    ends = {name: float(end) for name, end in ends_of(chart).items()}
    own, average, each = (
        ends[f"superfed_mm, at {where}"]
        for where in (
            "its own mixture",
            "the mixture that is best on average",
            "each client's best mixture",
        )
    )
    assert own < average < each
    assert "fedavg" in ends
    assert [name for name, _ in chart.key] == list(ends)
    assert any("the printed 99.24 (2.12) in SuPerFed, Table 2.3" in note for note in chart.notes)
    level = 'stroke-dasharray="1,3"'
    assert chart.desk.count(level) == chart.phone.count(level) == 1


def test_a_wrapper_stands_beside_its_method_and_fedavg(tmp_path: Path) -> None:
    bench = load(make_world(tmp_path))
    setting = "ima/fmnist-shards2"
    for method, end in (("ima+fedprox", 0.9), ("fedprox", 0.8), ("fedavg", 0.7)):
        constant_run(bench, RunKey(setting, method, 1), end)
    (chart,) = charts(bench, RunKey(setting, "ima+fedprox", 1))
    assert list(ends_of(chart).items()) == [
        ("ima+fedprox", "90.00"),
        ("fedprox", "80.00"),
        ("fedavg", "70.00"),
    ]
    (alone,) = charts(bench, RunKey(setting, "fedavg", 1))
    assert list(ends_of(alone)) == ["fedavg"]
    assert re.search(r"\b10\b", " ".join(chart.notes))


def test_a_number_of_one_round_has_a_sentence_instead_of_a_curve(tmp_path: Path) -> None:
    bench = load(make_system(tmp_path, "fedgo"))
    papers, target = published.load(bench.root), bench.table("fedgo", "table_3", "demo")
    run = next(run for run in target.runs if run.method == "fedavg")
    said = "No learning curve: the numbers that cells take are kept of one evaluated round only."
    for rounds, there in ((1, True), (2, False)):
        folder = write_run(bench, run, [0.5] * rounds, rounds=rounds)
        record, uses = find_run(bench.root, run), cells_of_runs(bench, papers, {run})[run]
        content = run_page(record, None, [], uses, {})
        assert (content["once"], bool(content["charts"])) == (there, not there)
        page = Renderer(bench.root).write(record.page, "run.html.j2", content)
        assert (said in (bench.root / page).read_text(encoding="utf-8")) == there
        shutil.rmtree(folder)


def test_a_run_that_failed_is_no_comparison(tmp_path: Path) -> None:
    bench = load(make_world(tmp_path))
    setting = "ima/fmnist-shards2"
    constant_run(bench, RunKey(setting, "ima+fedavg", 1), 0.9)
    write_run(bench, RunKey(setting, "fedavg", 1), [0.5] * 9, reference=True, status="diverged")
    (chart,) = charts(bench, RunKey(setting, "ima+fedavg", 1))
    assert list(ends_of(chart)) == ["ima+fedavg"]


def test_raw_rounds_are_drawn_beneath_the_smoothed_line(tmp_path: Path) -> None:
    bench = load(make_world(tmp_path))
    run = RunKey("ima/fmnist-shards2", "fedavg", 1)
    rounds = bench.setting(run.setting).rounds
    write_run(bench, run, [0.8 + 0.05 * (-1) ** number for number in range(rounds)], reference=True)
    (chart,) = charts(bench, run)
    assert ends_of(chart) == {"fedavg": "80.00"}  # the raw ones end five points away
    paths = re.findall(r'<path d="M([^"]*)" fill="none"', chart.desk)
    smooth, raw = sorted((path for path in paths if path.count("L") > 100), key=len)
    assert raw.count("L") == smooth.count("L") == rounds - 1


def test_a_method_without_two_models_has_no_words_about_mixtures() -> None:
    bench, run = load(ROOT), RunKey("superfed/mnist-500", "fedavg", 1)
    uses = cells_of_runs(bench, published.load(ROOT), {run, MIXED})
    assert not any("mixture" in each.words for each in answers_of(find_run(ROOT, run), uses[run]))
    assert all("mixture" in each.words for each in answers_of(find_run(ROOT, MIXED), uses[MIXED]))


def test_beside_a_run_are_what_its_outermost_part_wraps_and_fedavg(tmp_path: Path) -> None:
    bench = load(make_world(tmp_path))
    runs = {
        name: RunKey("ima/fmnist-shards2-demo", name, 1)
        for name in ("ima+aaggff_d+fedavg+fedadam", "aaggff_d+fedavg+fedadam", "fedadam", "fedavg")
    }
    for run in runs.values():
        write_run(bench, run, [0.5, 0.6], rounds=2)
    shown = beside(find_run(tmp_path, runs["ima+aaggff_d+fedavg+fedadam"]))
    assert [each.run.method for each in shown] == ["aaggff_d+fedavg+fedadam", "fedavg"]
    assert [each.run.method for each in beside(find_run(tmp_path, runs["fedavg"]))] == []
