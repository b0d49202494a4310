"""A table's page: what is best, what is missing, what differs, and what a limit is made of."""

import html
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedrepro.config.config_file import Overrides
from fedrepro.config.loading import load
from fedrepro.config.metrics import OfRounds
from fedrepro.config.targets import RunKey, TableTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report import site
from fedrepro.report.cells import tables
from fedrepro.report.cells.cell import ComputedTable, best_of_rows
from fedrepro.report.pages import row_figures
from fedrepro.report.pages.table import table_page
from fedrepro.report.papers import published
from fedrepro.report.papers.verdict import Verdict
from fedrepro.support.typed_yaml import validate
from support.places import ROOT
from support.report_world import constant_run, make_world, write_run

SETTING = "ima/fmnist-shards2"
Made = tuple[Workbench, TableTarget, ComputedTable]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Of IMA's Table I two rows and four columns, of which two cells have a run."""
    bench = load(make_world(tmp_path_factory.mktemp("made")))
    for method, end in (("fedavg", 0.8), ("ima+fedavg", 0.85)):
        constant_run(bench, RunKey(SETTING, method, 1), end)
    target = bench.table("ima", "table_1", "paper")
    tables.write(bench, target, published.load(bench.root))
    return bench, target, tables.compute(bench, target, published.load(bench.root))


@pytest.fixture(scope="module")
def text(made: Made) -> str:
    """The page of that table."""
    bench, target, _ = made
    path = site.write_page(bench, target, published.load(bench.root))
    return (bench.root / path).read_text(encoding="utf-8")


@cache  # several tests look at the same page
def landed(system: str, item: str, scale: str) -> tuple[TableTarget, ComputedTable, dict[str, Any]]:
    """A table of committed results, and what its page shows."""
    bench, papers = checkout()
    target = bench.table(system, item, scale)
    table = tables.compute(bench, target, papers)
    return target, table, table_page(bench, target, table, papers)


@cache
def checkout() -> tuple[Workbench, published.Published]:
    return load(ROOT), published.load(ROOT)


def test_the_best_of_a_row_is_that_of_its_metric_s_direction(made: Made) -> None:
    _, target, table = made
    first, second = best_of_rows(target, table, range(4))
    printed = [cell.printed.mean for cell in table.cells[:4] if cell.printed]  # type: ignore[misc]
    assert first.printed == {printed.index(max(printed))}
    assert first.ours == {1} and second.ours == frozenset()
    assert best_of_rows(target, table, [0])[0].ours == frozenset()  # of one there is no best
    same = replace(table.cells[1], result=replace(table.cells[1].result, mean=80.001))
    tied = replace(table, cells=(table.cells[0], same, *table.cells[2:]))
    assert best_of_rows(target, tied, range(4))[0].ours == {0, 1}  # as far as digits show
    for decimals, best in ((3, {1}), (0, {0, 1})):
        digits = [
            replace(cell, printed=cell.printed and replace(cell.printed, decimals=decimals))
            for cell in tied.cells
        ]
        assert best_of_rows(target, replace(tied, cells=tuple(digits)), range(4))[0].ours == best
    # A column of another metric has no part in it.
    columns = [*target.table.columns]
    columns[1] = columns[1].model_copy(update={"metric": OfRounds(name="loss")})
    other = replace(target, table=target.table.model_copy(update={"columns": columns}))
    assert best_of_rows(other, table, range(4))[0].ours == frozenset()
    assert best_of_rows(other, table, range(4))[0].printed == {
        max((0, 2, 3), key=printed.__getitem__)
    }


@pytest.mark.parametrize(
    ("decimals", "wanted"),
    [((2, None, 2, 2), 2), ((None, 1, 0, 3), 3), ((0, 0, 0, 0), 0), ((None,) * 4, 2)],
)
def test_numbers_that_are_compared_have_the_same_decimals(
    made: Made, decimals: tuple[int | None, ...], wanted: int
) -> None:
    """An empty printed cell has no decimals, and 40.7 is not the best beside 40.74."""
    _, target, table = made
    cells = [*table.cells]
    for place, (cell, own) in enumerate(zip(cells, decimals, strict=False)):
        assert cell.printed
        mean = cell.printed.mean if own is not None else None
        printed = replace(cell.printed, mean=mean, decimals=own or 0)
        result = replace(cell.result, mean=80.0 + (0.6 if place == 1 else 0.0))
        cells[place] = replace(cell, printed=printed, result=result)
    changed = replace(table, cells=tuple(cells))
    assert {changed.decimals(cell) for cell in changed.cells[:4]} == {wanted}
    assert best_of_rows(target, changed, range(4))[0].ours == {1}


def test_a_number_beside_an_empty_cell_is_written_with_the_decimals_that_suit_it() -> None:
    cell = next(cell for cell in checkout()[1].cells if cell.mean is None)
    assert [cell.written(value) for value in (40.744, 0.0041)] == ["40.74", "0.00410"]


def test_of_a_loss_the_least_is_best() -> None:
    bench, papers = checkout()
    target = bench.table("superfed", "table_2_6", "paper")
    table = tables.compute(bench, target, papers)
    for index, best in enumerate(best_of_rows(target, table, range(len(table.columns)))):
        cells = {cell.column: cell.printed for cell in table.cells if cell.row == index}
        known = {column: each.mean for column, each in cells.items() if each and each.mean}
        least = min if "calibration" in table.rows[index].metric else max
        assert {known[column] for column in best.printed} == {least(known.values())}


def test_so_it_is_of_ours() -> None:
    bench, papers = checkout()
    target = bench.table("superfed", "table_2_6", "paper")
    table = tables.compute(bench, target, papers)
    cells = [
        replace(each, result=replace(each.result, mean=each.column + 1.0)) for each in table.cells
    ]
    last = len(table.columns) - 1
    best = best_of_rows(target, replace(table, cells=tuple(cells)), range(last + 1))
    falling = ["calibration" in row.metric for row in table.rows]
    assert [each.ours for each in best] == [{0} if is_less else {last} for is_less in falling]
    assert len(set(falling)) == 2


def test_best_numbers_and_own_methods_are_marked_apart(text: str) -> None:
    row = re.sub(r"\s+", " ", text[text.index('id="cell-1-1"') : text.index('id="cell-1-3"')])
    assert re.findall(r'<span class="ours( best)?">(\S+)', row) == [
        ("", "80.00"),
        (" best", "85.00"),
    ]
    heads = text[text.index('<table class="matrix"') : text.index("<tbody>")]
    starred = re.findall(r">([^<>]+) <span\s+class=\"star\"", heads)
    assert starred == ["FedAvg + IMA", "FedProx + IMA"]
    words = "bold: the best of a row; ★: the paper's own method. Numbers are in %"
    assert words in html.unescape(text)


def test_a_row_without_runs_is_one_line_with_what_it_takes(made: Made, text: str) -> None:
    closed = re.findall(r'<details id="(row-\d+)" class="empty">\s*<summary>(.*?)</summary>', text)
    second = made[2].rows[1]
    rounds = made[0].setting(second.setting).rounds
    count = sum(run.setting == second.setting for run in made[1].runs)
    assert closed == [
        ("row-2", f"<h2>{second.label}</h2>: nothing computed; {count} runs of {rounds} rounds")
    ]
    assert 'id="row-2-1"' in text  # its cells are inside, where links open it
    assert "fedrepro estimate ima/table_1 --scale paper" in text


def test_differences_have_a_unit(text: str) -> None:
    assert "Difference, points</th>" in text and "Ours, %</th>" in text


def test_a_limit_says_what_it_is_made_of(made: Made, text: str) -> None:
    """On hover, and when it is opened: the same words."""
    text = re.sub(r"\s+", " ", text)
    why = made[2].cells[0].verdict.why  # type: ignore[union-attr]
    (found, *_) = re.findall(
        r'<summary title="([^"]*)"> ?<span class="limit">.*?</summary>(.*?)</d', text
    )
    assert found[0].strip() == found[1].strip() == why


def test_no_zero_stands_above_cells_that_differ(made: Made) -> None:
    """A further reading's verdict is counted beside that of the first one."""
    bench, target, table = made
    first, second, *rest = table.cells
    agrees, differs = Verdict("agrees", "a", 1.0, "draw"), Verdict("differs", "b", 1.0, "draw")
    further = replace(second, printed=first.printed, verdict=differs)
    cells = (replace(first, verdict=agrees), further, *rest)
    content = table_page(bench, target, replace(table, cells=cells), published.load(bench.root))
    assert (content["counts"]["agree"], content["counts"]["differ"]) == (1, 0)
    assert content["further"] == {"differs": 1}


def test_a_cell_links_to_its_exact_setting(made: Made, text: str) -> None:
    (link, *_) = re.findall(r'<a href="([^"]*)">YAML</a>', text)
    bench = made[0]
    path = bench.root / "reports/site/ima" / link
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert found == bench.run_spec(SETTING, "fedavg", 1).description()


def test_further_readings_are_columns_that_can_be_switched_on() -> None:
    """One table has them all; what follows the switch is a matter of style alone."""
    content = landed("superfed", "table_2_3", "paper")[-1]
    assert [content["table"].columns[number].label for number in content["folded"]] == [
        "SuPerFed-MM, λ = 0.5", "SuPerFed-LM, λ = 0.5"
    ]  # fmt: skip
    style = (ROOT / "reports/templates/assets/site.css").read_text(encoding="utf-8")
    assert ".whole:has(#readings:not(:checked)) .further { display: none; }" in style


def test_a_landed_small_run_has_curves_and_its_setting_beside_the_table() -> None:
    """Such runs have no pages."""
    row = landed("ima", "compact_accuracy", "compact")[-1]["rows"][0]
    assert row.scene and row.scene.curves and row.scene.curves.panels
    assert (
        row.hows[0].setting
        == f"ima/compact_accuracy/{row.head.setting.partition('/')[2]}/fedavg.yaml"
    )


@pytest.mark.parametrize(
    ("system", "item", "scale"),
    [("ima", "table_1", "paper"), ("ima", "compact_accuracy", "compact")],
)
def test_curves_of_a_row_end_at_the_cells_numbers(system: str, item: str, scale: str) -> None:
    """Means of as many rounds as in the cells, not the last round."""
    target, table, content = landed(system, item, scale)
    assert target.table.summary.rounds > 1
    seen = 0
    for row in content["rows"]:
        if not (row.scene and row.scene.curves):
            continue
        assert row.scene.curves.raw == (row.scene.curves.seeds == 1)
        panels = {panel.title: html.unescape(panel.svg) for panel in row.scene.curves.panels}
        ours = {cell.column: cell.result.mean for cell in row.cells}
        for pair in row_figures.panels_of(target):
            (title, *_) = [table.columns[column].label for column, _ in pair]
            for column, name in pair:
                if title in panels and ours[column] is not None:
                    assert f"{name} ends at {ours[column]:.2f} %" in panels[title], (row, title)
                    seen += 1
    assert seen >= 2


def test_curves_of_a_row_are_of_each_cell_s_own_number() -> None:
    """Not of the row's metric: mixtures of clients' models are marks, with the cells' numbers."""
    _, table, content = landed("superfed", "table_2_3", "paper")
    row = content["rows"][2]
    assert row.head.label == "MNIST, 500 clients"
    panels = {panel.title: html.unescape(panel.svg) for panel in row.scene.curves.panels}
    seen = 0
    for cell in row.cells:
        label = table.columns[cell.column].label
        if cell.result.mean is None or label == "FedAvg":
            continue
        mixed = ", at the mixture that is best on average" * (
            label in ("SuPerFed-MM", "SuPerFed-LM")
        )
        assert f"this method{mixed} ends at {cell.result.mean:.2f} %" in panels[label], label
        seen += 1
    assert seen >= 9


@pytest.mark.parametrize(("executor", "notices"), [("sequential", 0), ("vectorised", 1)])
def test_runs_of_another_class_than_the_configured_one_are_said_to_be(
    tmp_path: Path, executor: str, notices: int
) -> None:
    """As after a change of `executor` in config.yaml."""
    root = make_world(tmp_path)
    for method in ("fedavg", "ima+fedavg"):
        write_run(load(root), RunKey(SETTING, method, 1), [0.5, 0.8])
    asked = validate(Overrides, {"executor": executor}, "--config")
    bench = load(root, overrides=asked)
    papers = published.load(root)
    target = bench.table("ima", "table_1", "paper")
    table = tables.compute(bench, target, papers)
    differing = table_page(bench, target, table, papers)["other_arithmetic"]
    assert len(differing) == notices
    for words, count in differing.items():
        assert count == 2
        assert "'per client'" in words
        assert "'stacked'" in words
    tables.write(bench, target, papers)
    shown = (root / site.write_page(bench, target, papers)).read_text(encoding="utf-8")
    assert shown.count('class="notice"') == notices
