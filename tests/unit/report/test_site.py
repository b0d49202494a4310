import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.report import site
from fedrepro.report.cells import tables
from fedrepro.report.cells.cell import read_table
from fedrepro.report.drawing import curves
from fedrepro.report.drawing.curves import Line
from fedrepro.report.pages import row_figures, templates
from fedrepro.report.pages.figures.base import Drawn
from fedrepro.report.pages.run import run_page
from fedrepro.report.pages.table import table_page
from fedrepro.report.pages.templates import Renderer, standalone
from fedrepro.report.papers import published
from fedrepro.run.results import read_run
from fedrepro.support.errors import UserError
from support.places import ROOT
from support.refusals import refused
from support.report_world import constant_run, fill, make_world, write_run

PAPER = "ima/fmnist-shards2"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """A rendered table page with demo runs, a landed result and a hole."""
    bench = load(make_world(tmp_path_factory.mktemp("world"), rows=1, columns=2))
    papers = published.load(bench.root)
    target = bench.table("ima", "table_1", "demo")
    fill(bench, target)
    constant_run(bench, RunKey(PAPER, "fedavg", 1), 0.81)
    tables.write(bench, target, papers)
    site.write_page(bench, target, papers)
    return bench


def page(bench: Workbench, name: str) -> str:
    return (bench.root / "reports/site" / name).read_text(encoding="utf-8")


def test_the_page_shows_printed_ours_and_verdict(bench: Workbench) -> None:
    text = page(bench, "ima/table_1.html")
    assert "81.17" in text
    assert "81.00" in text
    assert "−0.17" in text
    assert '<span aria-hidden="true">◐</span> undecided' in text
    assert re.search(r"\b2 seeds", text)
    assert "percentage" in text


def test_the_demo_column_is_marked(bench: Workbench) -> None:
    text = page(bench, "ima/table_1.html")
    before, _, demo = text.partition('<section id="demo"')
    assert 'class="tag demo"' in demo and 'class="demo-column"' in demo
    assert "verdict" in demo and "<details" in demo
    assert 'class="tag demo"' not in before and "demo-column" not in before


def test_a_page_by_itself_has_the_style_of_the_site(bench: Workbench) -> None:
    made = standalone(page(bench, "ima/table_1.html"), "body { color: red }")
    assert made.count("body { color: red }") == 1 and 'rel="stylesheet"' not in made


def test_figures_have_words_and_no_colours_of_their_own(bench: Workbench) -> None:
    text = page(bench, "ima/table_1.html")
    label = r'aria-label="Test accuracy[^"]*FedAvg[^"]*ima/fmnist-shards2-demo[^"]*with IMA [^"]*\d'
    assert re.search(label, text)
    drawn = text[text.index("<figure") : text.rindex("</figure>")]
    assert "var(--series-1)" in drawn
    assert "var(--surface-high)" in drawn
    assert 'fill="#' not in drawn
    assert 'stroke="#' not in drawn


def test_rows_with_the_same_runs_are_drawn_once(tmp_path: Path) -> None:
    bench = load(make_world(tmp_path, rows=4, columns=2))  # two settings stand in for four rows
    papers, target = published.load(bench.root), bench.table("ima", "table_1", "demo")
    fill(bench, target)
    tables.write(bench, target, papers)
    site.write_page(bench, target, papers)
    text = page(bench, "ima/table_1.html")
    assert text.count('<figure class="curves">') == 2
    assert "FMNIST, #C=2; CIFAR-10, CNN, #C=2." in text


def test_a_demo_says_what_it_cannot_show() -> None:
    """One run for several columns, and the note of its setting."""
    bench, papers = load(ROOT), published.load(ROOT)
    for system, item, alike in (("fedgo", "table_10", True), ("superfed", "table_2_5", False)):
        target = bench.table(system, item, "demo")
        table = tables.compute(bench, target, papers)
        assert table_page(bench, target, table, papers)["alike"] is alike
    assert bench.setting("superfed/shakespeare-demo").note
    assert not bench.setting("superfed/shakespeare").note


def test_a_paper_s_own_methods_come_first() -> None:
    """Those that the authors propose are moved to the front, plug-ins stay beside their method."""
    bench, papers = load(ROOT), published.load(ROOT)
    for system, item, own, first in (
        ("fedevg", "table_4_3", ["FedEvg"], ["FedEvg", "FedCGAN", "FedCVAE"]),
        ("aaggff", "table_2", ["AAggFF-S"], ["AAggFF-S", "FedAvg"]),
        (
            "aaggff",
            "table_7",
            ["FedAvg + AAggFF", "FedProx + AAggFF"],
            ["FedAvg", "FedAvg + AAggFF"],
        ),
    ):
        target = bench.table(system, item, "demo")
        made = table_page(bench, target, tables.compute(bench, target, papers), papers)
        names = [column.label for column in made["table"].columns]
        assert [names[number] for number in sorted(made["own"])][: len(own)] == own
        assert [names[number] for number in made["shown"]][: len(first)] == first


def test_nothing_comes_from_elsewhere(bench: Workbench) -> None:
    for file in (bench.root / "reports/site").rglob("*"):
        if file.is_file() and file.suffix != ".parquet":
            text = file.read_text(encoding="utf-8").replace("http://www.w3.org/", "")
            # A reader may follow a link to a paper; the page itself asks for nothing.
            text = re.sub(r'<a href="https://(doi\.org|arxiv\.org)/[^"]*">', "", text)
            assert "http" not in text.replace("https://www.w3.org", ""), file
            assert (
                text.count("<script") == (file.suffix == ".html")
                and "<script>" in text + "<script>"
            )


def test_every_linked_run_page_has_what_its_cell_takes_from_it(bench: Workbench) -> None:
    table = read_table(bench.root, bench.table("ima", "table_1", "demo"))
    seen = 0
    for cell in table.cells:  # type: ignore[union-attr]
        address = f"ima/table_1.html#row-{cell.row + 1}-{cell.column + 1}"
        for result in filter(None, (cell.result, cell.demo)):
            for run in result.runs:
                if run.page and run.value is not None:
                    text = page(bench, run.page)
                    answers = text[text.index('id="answers-title"') : text.index('id="again"')]
                    assert f"{run.value:.2f} %<span" in answers
                    assert address in answers
                    assert f"<dd>{run.value:.2f} <small>%</small></dd>" in text
                    assert ('class="tag demo"' in answers) == (result is cell.demo)
                    seen += 1
        assert f'id="row-{cell.row + 1}-{cell.column + 1}"' in page(bench, "ima/table_1.html")
    assert seen >= 2


def test_a_run_page_has_its_manifest(bench: Workbench) -> None:
    text = page(bench, "runs/ima/fmnist-shards2-demo/ima+fedavg/seed1.html")
    assert "hyperparameters.ima.window" in text
    assert "fedrepro run ima/fmnist-shards2-demo ima+fedavg --seed 1" in text
    assert "274 026".replace(" ", templates.THIN) in text
    reference = page(bench, "reference/ima/fmnist-shards2/fedavg/seed1.html")
    assert "reference" in reference
    assert re.search(r"fedavg [^.<]*81\.00 %", reference)  # its curves, told to who can't see them
    assert re.search(r"Loss [^.<]*\d", reference)


@pytest.mark.parametrize("told", [{"method": "fedavg", "seed": 1, "round": 6}, "nonsense"])
def test_a_run_page_says_what_the_run_went_on_from(tmp_path: Path, told: object) -> None:
    bench = load(make_world(tmp_path))
    run = bench.table("ima", "table_1", "demo").runs[1]
    manifest = write_run(bench, run, [0.5, 0.6]) / "manifest.json"
    found = json.loads(manifest.read_text()) | {"went_on_from": told}
    manifest.write_text(json.dumps(found))
    content = run_page(read_run(bench.root, run), None, [], [], {})
    text = (tmp_path / Renderer(tmp_path).write(Path("x.html"), "run.html.j2", content)).read_text()
    assert ("continued from fedavg, seed 1, after round 6" in text) is isinstance(told, dict)


def test_pages_are_the_same_twice(bench: Workbench) -> None:
    before = page(bench, "ima/table_1.html")
    papers = published.load(bench.root)
    site.write_page(bench, bench.table("ima", "table_1", "demo"), papers)
    assert page(bench, "ima/table_1.html") == before


def test_a_page_needs_its_table(tmp_path: Path) -> None:
    bench = load(make_world(tmp_path))
    with refused("missing", file="table_1.json"):
        site.write_page(bench, bench.table("ima", "table_1", "demo"), published.load(tmp_path))


def test_a_run_that_was_deleted_after_its_table_is_named(tmp_path: Path) -> None:
    bench = load(make_world(tmp_path, rows=1, columns=1))
    papers, target = published.load(bench.root), bench.table("ima", "table_1", "demo")
    fill(bench, target)
    tables.write(bench, target, papers)
    shutil.rmtree(bench.root / target.cells[0].runs("fedavg")[0].folder)
    with pytest.raises(
        UserError,
        match=r"table_1\.json: made from a result of .* that was replaced or",
    ):
        site.write_page(bench, target, papers)


def test_hostile_names_are_escaped(bench: Workbench) -> None:
    assert "<b>" not in templates.prose("<b>`x`")
    assert "<code>x</code>" in templates.prose("<b>`x`")
    panel = curves.draw([Line("a", [(1, 2), (2, 3)])], description='"><script>alert(1)</script>')
    assert "<script" not in panel


def test_seeds_are_averaged_over_shared_rounds() -> None:
    line = curves.average("a", [[(1, 10.0), (2, 20.0)], [(1, 20.0), (2, 40.0), (3, 1.0)]])
    assert line is not None
    assert line.points == [(1, 15.0), (2, 30.0)]
    assert (line.low, line.high) == ([10.0, 20.0], [20.0, 40.0])
    assert curves.average("a", [[(1, float("nan"))]]) is None


def test_an_axis_leaves_out_the_first_fifth() -> None:
    line = Line("a", [(number, 10.0 if number <= 2 else 81.0) for number in range(1, 11)])
    assert curves.bounds([[line]]) == (80, 85)
    assert curves.cut(line, 80).points[0] == (3, 81.0)


def test_methods_and_their_wrapped_form_share_a_panel(bench: Workbench) -> None:
    target = bench.table("ima", "table_1", "paper")
    assert row_figures.panels_of(target) == [[(0, "alone"), (1, "with IMA")]]


def test_a_damaged_partition_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"train": [[1]]}', encoding="utf-8")
    with refused("damaged", file="p.json"):
        row_figures.draw_partition(tmp_path, Path("p.json"))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (templates.number(-0.5), "−0.50"),
        (templates.number(None), "–"),
        (templates.signed(0.25), "+0.25"),
        (templates.whole(1389), f"1{templates.THIN}389"),
        (templates.size(274_026_000), f"274{templates.THIN}MB"),
        (templates.span(54.0), f"54{templates.THIN}s"),
        (templates.span(5400), f"1.5{templates.THIN}h"),
        (templates.figure(0.0), "+0.00"),
        (templates.figure(-0.01), "−0.01"),
        (templates.figure(0.0099), "+0.0099"),
        (templates.figure(99999.5), "+99999.50"),
        (templates.figure(-1e9), "−1\u202f000\u202f000\u202f000"),
        (templates.figure(-2.1e-6), "−0.0000021"),
        (templates.figure(-2.8e-15), "+0.00"),
        (templates.figure(0.01), "+0.01"),
        (templates.figure(99_999.99), "+99999.99"),
        (templates.figure(1e5), "+100\u202f000"),
        (templates.figure(1e-9), "+0.0000000010"),
        (templates.number(1.005, 1), "1.0"),
        (templates.signed(-0.125, 1), "−0.1"),
        (templates.signed(None), "–"),
        (templates.whole(999.5), f"1{templates.THIN}000"),
        (templates.size(0), f"0{templates.THIN}B"),
        (templates.size(999), f"999{templates.THIN}B"),
        (templates.size(1000), f"1{templates.THIN}kB"),
        (templates.size(999_499), f"999{templates.THIN}kB"),
        (templates.size(999_500), f"1{templates.THIN}MB"),
        (templates.size(1_230_000_000), f"1.23{templates.THIN}GB"),
        (templates.size(4.5e12), f"4.5{templates.THIN}TB"),
        (templates.span(99.4), f"99.4{templates.THIN}s"),
        (templates.span(100), f"1.67{templates.THIN}min"),
        (templates.span(59.4 * 60), f"59.4{templates.THIN}min"),
        (templates.span(59.5 * 60), f"0.992{templates.THIN}h"),
        (templates.span(3600 * 999), f"999{templates.THIN}h"),
        (templates.span(3600 * 12_345.6), f"12\u202f346{templates.THIN}h"),
        (templates.spelt(0), "no"),
        (templates.spelt(1), "one"),
        (templates.spelt(12), "twelve"),
        (templates.spelt(13), "13"),
        (templates.words("update_norm_2"), "update norm 2"),
        (templates.plain(0.5), "0.5"),
        (templates.plain("None"), "None"),
        (templates.plain(False), "false"),
        (templates.powers("3.33e+10"), f"3.33{templates.THIN}·{templates.THIN}10<sup>10</sup>"),
        (templates.powers("2e-05"), f"2{templates.THIN}·{templates.THIN}10<sup>−5</sup>"),
        (templates.powers("<1"), "&lt;1"),
        (templates.prose("``a``, `b` < 3"), "<code>a</code>, <code>b</code> &lt; 3"),
        (templates.plain(True), "true"),
        (templates.plain(None), "null"),
    ],
)
def test_values_in_words(written: str, expected: str) -> None:
    assert written == expected


def test_a_table_of_your_own_needs_no_paper(tmp_path: Path) -> None:
    root = make_world(tmp_path, rows=1, columns=1)
    text = (root / "config/experiments/ima.yaml").read_text(encoding="utf-8")
    (root / "config/experiments/mine.yaml").write_text(
        text.replace("system: ima", "system: mine"), encoding="utf-8"
    )
    bench = load(root)
    papers = published.load(root)
    target = bench.table("mine", "table_1", "demo")
    write_run(bench, target.runs[0], [0.1234] * 40)
    tables.write(bench, target, papers)
    site.write_page(bench, target, papers)
    assert "12.34" in page(bench, "mine/table_1.html")


def test_files_of_panels_that_a_figure_has_no_more_go(bench: Workbench) -> None:
    writer, place = site.Writer(bench, published.load(bench.root)), Path("ima/figure_9.html")
    folder = bench.root / "reports/site/ima"
    for panels, rows in ((3, [("a",)]), (1, [])):
        drawn = Drawn("", ("x",), rows=rows)
        for number in range(panels):
            drawn.add_lines(str(number), [Line("a", [(1, 0.1), (2, 0.2)])], "")
        writer._figure_downloads(place, drawn, png=False)
        (folder / "figure_9-1.png").touch()  # drawn by the user, as the program draws none
        (folder / "figure_9-mine.svg").touch()
        (folder / "figure_90-2.svg").touch()
        made = {f"figure_9-{number + 1}.svg" for number in range(panels)}
        made |= {"figure_9.csv"} if rows else set()
        assert {file.name for file in folder.glob("figure_9*")} == made | {
            "figure_9-1.png", "figure_9-mine.svg", "figure_90-2.svg",
        }  # fmt: skip


def test_a_page_of_a_table_that_no_file_has_any_more_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be published with the others. What nobody computed here is someone's own page."""
    for item in ("known", "renamed", "without_page"):
        file = tmp_path / f"results/tables/demo/mine/{item}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    for item in ("known", "renamed", "own"):
        page = tmp_path / f"reports/site/mine/{item}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.touch()
    figure = tmp_path / "reports/site/mine/old_figure.html"
    figure.write_text(f"<head>{site.MADE_BY}</head>")
    for name in ("methods/deleted", "methods/known", "runs/index", "claims/mine-old"):
        page = tmp_path / f"reports/site/{name}.html"
        page.parent.mkdir(exist_ok=True)
        page.write_text(f"<head>{site.MADE_BY}</head>")
    known, written = {("mine", "known"), ("yours", "renamed")}, {Path("methods/known.html")}
    assert site._left_over(tmp_path, known, written) == [
        Path(f"reports/site/{name}.html")
        for name in ("claims/mine-old", "methods/deleted", "mine/old_figure", "mine/renamed")
    ]
    runs: Any = [
        SimpleNamespace(run=n, page=Path(f"runs/{n}.html"), folder=Path(f"results/runs/{n}"))
        for n in range(4)
    ]
    for run, named in zip(runs[1:], ("known", "renamed", "known"), strict=True):
        page = tmp_path / "reports/site" / run.page
        for folder, what in ((page.with_suffix(""), 0), (tmp_path / run.folder, run.run == 1)):
            folder.mkdir(parents=True)
            (folder / "manifest.json").write_text(f'{{"rounds_done": {int(what)}}}')
        mark = site._ShownIn([{"page": f"mine/{named}.html", "label": "Known"}], []).mark
        page.write_text(f"<!-- shown in {mark} -->")
    pages = {run.run: [{"page": "mine/known.html", "label": "Known"}] for run in runs}
    monkeypatch.setattr(site.overview, "tables_of_runs", lambda *_: pages)
    monkeypatch.setattr(site, "cells_of_runs", lambda *_: {})
    bench: Any = SimpleNamespace(root=tmp_path)
    published: Any = None
    # Without a page, with one of an earlier result, and with one that names another table.
    due = site._without_page(bench, published, [], runs, set())
    assert due == runs[:3]
