"""Tables to take away, and references."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.report import site
from fedrepro.report.cells import tables
from fedrepro.report.cells.cell import Best, ComputedTable, TableColumn, read_table
from fedrepro.report.drawing import curves
from fedrepro.report.drawing.curves import Line
from fedrepro.report.pages.downloads import (
    as_bibtex,
    as_csv,
    as_latex,
    as_png,
    light_colours,
    rows_as_csv,
    standalone,
)
from fedrepro.report.papers import published
from fedrepro.report.papers.references import REFERENCES, load_references
from fedrepro.report.papers.verdict import Verdict
from fedrepro.support.errors import UserError
from support.report_world import ROOT, constant_run, make_world


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> ComputedTable:
    """81.17 is printed for FedAvg, and ours is 81; nothing else was run."""
    bench = load(make_world(tmp_path_factory.mktemp("world"), rows=1, columns=2))
    papers, target = published.load(bench.root), bench.table("ima", "table_1", "demo")
    constant_run(bench, RunKey("ima/fmnist-shards2", "fedavg", 1), 0.81)
    tables.write(bench, target, papers)
    site.write_page(bench, target, papers)
    folder = bench.root / "reports/site/ima"
    assert {path.suffix for path in folder.iterdir()} == {".html", ".csv", ".tex", ".json", ".bib"}
    found = read_table(bench.root, target)
    assert found is not None and found.to_json() == (folder / "table_1.json").read_text()
    return found


def test_csv_has_a_line_for_each_cell(table: ComputedTable) -> None:
    first, second = csv.DictReader(io.StringIO(as_csv(table)))
    assert (first["method"], first["printed"], first["ours"]) == ("FedAvg", "81.17", "81.0")
    assert (first["verdict"], first["limit"], first["seeds"]) == ("undecided", "", "1")
    assert (first["margin"], first["seeds_to_decide"]) == ("2.0", "at least 2")
    assert (second["printed"], second["ours"], second["verdict"]) == ("84.68", "", "")


def test_every_column_of_the_csv_has_its_own_number(table: ComputedTable) -> None:
    """No two are alike here, so that none can stand for another."""
    cell = table.cells[0]
    assert cell.printed is not None
    paper = replace(cell.result, n=7, mean=81.5, std=2.25, half_width=0.75)
    demo = replace(paper, setting="ima/small", n=9, mean=60.5, std=4.5, half_width=1.25)
    printed = replace(cell.printed, mean=80.5, std=3.5, text="80.50 (3.5)")
    verdict = Verdict("undecided", "Because.", 0.625, margin=1.5, needs="more than 30")
    one = replace(
        cell,
        printed=printed,
        result=paper,
        demo=demo,
        difference=1.0,
        verdict=verdict,
        selection="s",
    )
    (line,) = csv.DictReader(io.StringIO(as_csv(replace(table, cells=(one,)))))
    assert line == {
        "row": "FMNIST, #C=2",
        "setting": "ima/fmnist-shards2",
        "method": "FedAvg",
        "metric": "accuracy",
        "unit": "%",
        "printed": "80.5",
        "printed_spread": "3.5",
        "printed_as": "80.50 (3.5)",
        "ours": "81.5",
        "half_width_95": "0.75",
        "seeds": "7",
        "difference": "1.0",
        "verdict": "undecided",
        "limit": "0.625",
        "margin": "1.5",
        "seeds_to_decide": "more than 30",
        "selected_on_test_data": "s",
        "demo_setting": "ima/small",
        "demo": "60.5",
        "demo_half_width_95": "1.25",
        "demo_seeds": "9",
        "note": "",
    }


def test_csv_of_a_figure() -> None:
    text = rows_as_csv(("round", "a, b"), [("1", "2.5"), ("2", "")])
    assert text == 'round,"a, b"\n1,2.5\n2,\n'


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t=", "\r=", " =", "\n+"])
def test_text_that_a_spreadsheet_would_compute_follows_an_apostrophe(
    table: ComputedTable, first: str
) -> None:
    """In every place of every file that holds text of experiment files or papers."""
    evil = f"{first}A1"
    assert rows_as_csv((evil, "b"), [("1", evil)]).count(f"'{first.strip()}A1") == 2
    cell = table.cells[0]
    assert cell.printed is not None
    hostile = replace(
        table,
        rows=(replace(table.rows[0], label=evil, metric=evil, unit=evil),),
        columns=(TableColumn(evil), TableColumn(evil)),
        cells=(
            replace(
                cell,
                printed=replace(cell.printed, text=evil),
                result=replace(cell.result, setting=evil),
                selection=evil,
            ),
        ),
    )
    (line,) = csv.DictReader(io.StringIO(as_csv(hostile)))
    named = ("row", "setting", "method", "metric", "unit", "printed_as", "selected_on_test_data")
    assert {line[name] for name in named} == {f"'{first.strip()}A1"}


def test_a_negative_number_stays_a_number() -> None:
    assert rows_as_csv(("x",), [("-0.50",), ("+1e-3",), ("–",)]) == "x\n-0.50\n+1e-3\n–\n"


NONE = Best(frozenset(), frozenset())


def test_latex_has_the_printed_number_and_ours(table: ComputedTable) -> None:
    text = as_latex(table, [1, 0], "Zhou et al.", {1}, [Best(frozenset({1}), frozenset({0}))])
    assert r"Setting & FedAvg + IMA$^\star$ & FedAvg \\" in text
    assert r"FMNIST, \#C=2, \% & \textbf{84.68} & 81.17 \\" in text
    assert r" &  & \textbf{81.00} (1/3) $\sim$ \\" in text
    assert r" &  & 81.00 (1/3) $\sim$ \\" in as_latex(
        table, [1, 0], "", (), [NONE]
    )  # nothing is best
    assert text.count("\\toprule") == text.count("\\bottomrule") == 1


def test_what_latex_and_spreadsheets_would_take_for_a_command(table: ComputedTable) -> None:
    row = replace(table.rows[0], label="=1+1 \\input{x} 5 % α_1", unit="")
    hostile = replace(table, rows=(row,), title="a\n\\input{y}")
    assert "'=1+1" in as_csv(hostile)
    text = as_latex(hostile, [0], "", (), [NONE])
    assert r"=1+1 \textbackslash{}input\{x\} 5 \% $\alpha$\_1 & 81.17" in text
    assert text.splitlines()[-1].startswith("% a \\input")  # still a comment


def test_every_paper_and_every_method_has_a_reference() -> None:
    from fedrepro.methods import registry

    references = load_references(ROOT)
    assert set(references.papers) == set(published.load(ROOT).systems)
    assert set(registry.parts()) - set(references.methods) == {"central", "local"}
    assert all(entry.links for entry in references.entries.values())
    work = references.of_paper("ima")
    assert work is not None
    text = as_bibtex(work[0], work[1].fields)
    assert text.startswith("@article{zhou2024averaging,\n  author = {Zhou, Tailin")
    assert "eprint = {2305.07845}" in text and "archiveprefix = {arXiv}" in text


def test_a_reference_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / REFERENCES
    path.parent.mkdir(parents=True)
    path.write_text("methods: { fedavg: nobody }\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"references\.yaml.*nobody: missing"):
        load_references(tmp_path)
    path.write_text("entries: { a: { author: A, title: T, year: '2020', url: 'javascript:1' } }\n")
    with pytest.raises(UserError, match=r"references\.yaml.*url"):
        load_references(tmp_path)


def test_a_chart_of_its_own_has_colours_size_and_words() -> None:
    colours = light_colours((ROOT / "reports/templates/assets/site.css").read_text())
    line = Line("<b>", [(1, 2.0), (2, 3.0)])
    svg = standalone(curves.draw([line], description="</svg><script>"), colours)
    assert "var(" not in svg and "<script" not in svg and svg.count("<svg") == 1
    assert colours["--series-1"] in svg and 'font-family="sans-serif"' in svg
    image = Image.open(io.BytesIO(as_png(svg)))
    width, height = re.findall(r'width="(\d+)" height="(\d+)"', svg)[0]
    assert image.size == (2 * int(width), 2 * int(height))
    assert len(image.convert("RGB").getcolors(100_000) or ()) > 20  # words and lines, too


def test_special_characters_of_a_title_are_escaped() -> None:
    text = as_bibtex("own", {"title": "Ward_3, 50% & #1", "url": "https://host/a_b%20"})
    assert r"title = {Ward\_3, 50\% \& \#1}" in text and "url = {https://host/a_b%20}" in text
