import csv
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from fedrepro.config.loading import load
from fedrepro.config.targets import FigureTarget, SearchTarget
from fedrepro.report.papers import published, verdict
from fedrepro.report.papers.paper_files import COLUMNS, NEEDED, rows_of
from fedrepro.report.papers.references import Reference
from fedrepro.support.errors import UserError
from support.refusals import refused
from support.report_world import ROOT

LANDED = shutil.ignore_patterns("compact", "reference")


@pytest.fixture(scope="module")
def papers() -> published.Published:
    return published.load(ROOT)


def test_all_printed_cells_are_there(papers: published.Published) -> None:
    """As counted by hand, of the papers that were here first."""
    counted = {"superfed": 460, "ima": 292, "aaggff": 279, "fedgo": 270, "fedevg": 96}
    assert counted.items() <= Counter(cell.system for cell in papers.cells).items()


def test_a_cell_is_found_by_what_is_printed_around_it(papers: published.Published) -> None:
    found = papers.find(
        "ima", "I", {"dataset": "FMNIST", "setting": "CNN; #C=2", "method": "FedAvg+IMA"}
    )
    assert found is not None
    assert (found.mean, found.std, found.text, found.decimals) == (84.68, None, "84.68", 2)
    assert (found.item, found.unit) == ("table_1", "percent")


def test_a_part_of_a_table_has_the_table_s_printed_number(papers: published.Published) -> None:
    assert papers.label_of("ima", "table_1") == "Table I"
    assert papers.label_of("ima", "table_1_released") == "Table I, Released"


@pytest.mark.parametrize(
    ("item", "table", "label", "part"),
    [
        ("table_7_heart", "7", "Table 7, Heart", "heart"),
        ("table_2_3", "", "Table 2.3", ""),
        ("table_2_3", "II", "Table II", ""),
        ("table_1_earlier2", "1", "Table 1, Earlier2", "earlier2"),
        ("figure_2_3_toy", "", "Figure 2.3, Toy", "toy"),
        ("figure_a1", "", "Figure A1", ""),
        ("figure_regret", "", "Regret", ""),
        ("section_f_1", "Section F.1", "Section F.1", ""),
        ("compact_accuracy", "", "Compact accuracy", ""),
    ],
)
def test_an_item_has_the_printed_name(item: str, table: str, label: str, part: str) -> None:
    assert published.label_of(item, table) == label
    whole = item.removesuffix(f"_{part}") if part else item
    assert published.split_part(item) == (whole, part)


def test_items_are_sorted_by_their_numbers() -> None:
    """Tables, figures, then sections; a part after its table, letters after numbers."""
    items = [
        "table_2", "table_2_9", "table_2_9_released", "table_2_10", "table_10", "table_a",
        "figure_2", "figure_10", "figure_regret", "section_g", "section_g_2",
    ]  # fmt: skip
    assert sorted({*items}, key=published.natural) == items


def test_a_cell_that_is_not_printed_is_none(papers: published.Published) -> None:
    assert papers.find("ima", "I", {"dataset": "SVHN", "method": "FedAvg"}) is None
    assert papers.find("ima", "I", {"data": "FMNIST"}) is None


def test_several_cells_are_an_error_that_says_what_to_add(papers: published.Published) -> None:
    names = ("16", "dataset", "FMNIST", "setting", "CNN", "2")
    with refused(file="ima/cells.csv", key="table I", names=names):
        papers.find("ima", "I", {"dataset": "FMNIST", "setting": "CNN; #C=2"})


def test_doubts_reach_their_cells(papers: published.Published) -> None:
    doubted = [cell for cell in papers.cells if cell.doubt]
    assert len(doubted) == 80
    copied = papers.find(
        "superfed", "2.3",
        {"dataset": "CIFAR-10", "setting": "clients=50,train_samples=800", "method": "pFedMe"},
    )  # fmt: skip
    assert copied is not None
    assert "apfl" in copied.doubt


def test_no_doubt_is_against_a_whole_table(papers: published.Published) -> None:
    """Those are notes: a mark on every cell would say nothing about any."""
    for key, cells in papers.tables.items():
        if len(cells) > 12 and key != ("ima", "table_3"):
            assert sum(bool(cell.doubt) for cell in cells) < len(cells) / 2, key


def test_every_table_and_figure_has_a_caption(papers: published.Published) -> None:
    bench = load(ROOT)
    theirs = {
        (system, item)
        for (system, item), target in bench.targets().items()
        if not isinstance(target, SearchTarget) and item not in bench.experiments[system].compact
    }
    assert set(papers.captions) == {*papers.tables, *theirs}
    assert all(caption.title and caption.paragraphs for caption in papers.captions.values())


def test_every_printed_figure_has_a_page(papers: published.Published) -> None:
    targets = load(ROOT).targets()
    assert Counter(each.state for each in papers.figures) == {
        "as printed": 25, "in part": 3, "otherwise": 1
    }  # fmt: skip
    for each in papers.figures:
        assert isinstance(targets[each.system, each.item], FigureTarget), each
        assert bool(each.note) == (each.state != "as printed"), each
    theirs = {key for key, target in targets.items() if isinstance(target, FigureTarget)}
    ours = {("aaggff", "figure_regret"), ("fedevg", "figure_assumption"), ("ima", "figure_terms")}
    assert theirs - {(each.system, each.item) for each in papers.figures} == ours


def test_tables_are_in_natural_order(papers: published.Published) -> None:
    items = [item for system, item in papers.tables if system == "fedgo"]
    assert items[:3] == ["table_2", "table_3", "table_4"]
    assert items.index("table_10") > items.index("table_9")
    assert items[-1] == "section_g_2"


def test_the_ledger_is_whole_and_refers_to_what_exists(papers: published.Published) -> None:
    numbers = [entry.number for entry in papers.ledger]
    expected = {*map(str, range(1, 60)), *(f"A{n}" for n in range(1, 36))}
    expected |= {f"B{n}" for n in range(1, 26)}
    assert set(numbers) == expected
    assert len(numbers) == len(expected)
    for entry in papers.ledger:
        for item in entry.tables:
            assert (entry.system, item) in papers.captions, entry.number


def test_notes_belong_to_tables(papers: published.Published) -> None:
    assert set(papers.notes) <= set(papers.tables)


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        ("acc1", "percent"), ("worst10", "percent"), ("server_test_accuracy_pct", "percent"),
        ("ece", "fraction"), ("fid", "own"), ("rounds_to_target", "own"), ("loss", "own"),
    ],
)  # fmt: skip
def test_units(papers: published.Published, metric: str, unit: str) -> None:
    cell = next(cell for cell in papers.cells if cell.metric == metric)
    assert cell.unit == unit


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("mean", "999.9", "'999.9': expected a number of at least 0 and at most 100"),
        ("mean", "-1", "'-1': expected a number of at least 0 and at most 100"),
        ("mean", "8O.1", "'8O.1': expected a number of at least 0 and at most 100"),
        ("mean", "8_5", "'8_5': expected a number of at least 0 and at most 100"),
        ("mean", "nan", "'nan': expected"),
        ("std", "-0.5", "'-0.5': expected a number of at least 0"),
        ("std", "inf", "'inf': expected a number of at least 0"),
    ],
)
def test_a_number_that_nobody_can_have_printed_is_refused(
    tmp_path: Path, key: str, value: str, said: str
) -> None:
    shutil.copytree(ROOT / published.PAPERS, tmp_path / published.PAPERS, ignore=LANDED)
    file = tmp_path / published.PAPERS / "ima/cells.csv"
    with file.open(encoding="utf-8", newline="") as source:
        rows = list(csv.DictReader(source))
    next(row for row in rows if row["mean"] == "84.68")[key] = value
    with file.open("w", encoding="utf-8", newline="") as target:
        writer = csv.DictWriter(target, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises(UserError) as caught:
        published.load(tmp_path)
    line = str(caught.value)
    assert line.startswith(f"{file.relative_to(tmp_path)}: table_1, FMNIST, CNN; #C=2, FedAvg+IMA")
    assert f"{key}: {said}" in line


def test_a_work_links_every_place_that_is_given() -> None:
    work = {"author": "A", "title": "T", "year": "2020"}
    arxiv, doi = ("arXiv:2007.07481", "https://arxiv.org/abs/2007.07481"), "10.1/x<y>"
    told = Reference.model_validate({**work, "arxiv": "2007.07481", "url": "https://a.org"})
    assert told.links == [arxiv, ("paper", "https://a.org")]
    told = Reference.model_validate({**work, "arxiv": "2007.07481", "doi": doi, "pages": "1"})
    assert told.links == [(f"doi:{doi}", "https://doi.org/10.1/x%3Cy%3E"), arxiv]
    assert [*told.fields] == ["author", "title", "year", "pages", "doi", "arxiv"]
    assert Reference.model_validate(work).links == []


def test_a_paper_needs_no_more_than_its_text_and_its_cells(tmp_path: Path) -> None:
    folder = tmp_path / published.PAPERS / "ours"
    folder.mkdir(parents=True)
    (folder.parent / "systems.yaml").write_text("- ours\n", encoding="utf-8")
    shutil.copy(ROOT / published.PAPERS / "ima/paper.yaml", folder)
    head = (ROOT / published.PAPERS / "ima/cells.csv").read_text(encoding="utf-8").splitlines()[:2]
    (folder / "cells.csv").write_text("\n".join(head), encoding="utf-8")
    papers = published.load(tmp_path)
    assert [cell.mean for cell in papers.cells] == [81.17]
    assert papers.ledger == papers.claims == []
    # All other files are optional; a row each belongs to its item, in the file's order.
    for name, text in {
        "notes.csv": "item,note\ntable_1,first\ntable_2,other\ntable_1,second\n",
        "words.csv": "item,table,setting,method,metric,text\ntable_1,1,s,m,sent,O(n)\n"
        "table_1,1,s,m,kept,none\n",
        "figures.csv": "figure,item,state,note\n2,figure_2,as printed,\n3,,missing,no data\n",
        "captions/table_1.md": "# Title\n\nOne\nline.\n\n\nAnother.\n",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    papers = published.load(tmp_path)
    assert papers.notes == {
        ("ours", "table_1"): ("first", "second"),
        ("ours", "table_2"): ("other",),
    }
    words = papers.words["ours", "table_1"]
    assert [(word.metric, word.text) for word in words] == [("sent", "O(n)"), ("kept", "none")]
    assert papers.captions["ours", "table_1"] == published.Caption(
        "Title", ("One line.", "Another.")
    )
    figure = papers.figure_of("ours", "figure_2")
    assert figure and figure.state == "as printed" and papers.figure_of("ours", "figure_3") is None
    assert [one.figure for one in papers.figures] == ["2", "3"]


def test_names_are_sorted_by_their_numbers() -> None:
    """Items of papers, and numbers of discrepancies."""
    items = ["table_2_9", "table_2_10", "figure_7a", "figure_8", "figure_11", "section_f_1"]
    numbers = ["3", "24", "A1", "B8", "B11"]
    for names in (items, numbers):
        assert sorted({*names}, key=published.natural) == names


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("line", ["<<<<<<< HEAD", "=======", ">>>>>>> theirs"])
def test_a_line_that_git_left_is_told_by_its_file_and_number(
    tmp_path: Path, name: str, line: str
) -> None:
    """Another file was blamed, or nothing was said."""
    head, row = ",".join(COLUMNS[name]), ",".join("x" * len(COLUMNS[name]))
    for lines, number in (((line, row), 2), ((row, "", line, row), 4)):
        (tmp_path / name).write_text("\n".join((head, *lines)), encoding="utf-8")
        key = f"line {number}: {NEEDED[name]}"
        with refused("missing", file=name, key=key, names=tuple(re.findall(r"\w+", line))):
            rows_of(tmp_path, Path(name))
    (tmp_path / name).write_text(f"{head}\n{row}\n", encoding="utf-8")
    assert len(rows_of(tmp_path, Path(name))) == 1


@pytest.mark.parametrize("name", COLUMNS)
def test_a_quote_that_is_not_closed_hides_no_row(tmp_path: Path, name: str) -> None:
    """All rows behind it were one cell: of four printed numbers one was counted."""
    head, row = ",".join(COLUMNS[name]), ",".join("x" * len(COLUMNS[name]))
    for place in range(4):
        rows = [row] * 4
        rows[place] = f'{row[:-1]}"x'
        (tmp_path / name).write_text("\n".join((head, *rows)), encoding="utf-8")
        with refused("unreadable", file=name, names=f"line {place + 2}"):
            rows_of(tmp_path, Path(name))
    (tmp_path / name).write_text("", encoding="utf-8")
    with refused("value", file=name, key="line 1", value=""):
        rows_of(tmp_path, Path(name))


def test_a_caption_is_read_as_other_systems_leave_it(tmp_path: Path) -> None:
    shutil.copytree(ROOT / published.PAPERS, tmp_path / published.PAPERS, ignore=LANDED)
    folder = tmp_path / published.PAPERS / "ima/captions"
    before = published.load(tmp_path).captions
    for file in folder.iterdir():
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())  # as Windows
    (folder / "._table_1.md").write_bytes(b"\0\5\x16\xff")  # as macOS
    assert published.load(tmp_path).captions == before
    for make in (lambda file: file.write_bytes(b"# \xe9"), lambda file: file.symlink_to("none")):
        make(folder / "table_99.md")
        with refused(file="table_99.md"):
            published.load(tmp_path)
        (folder / "table_99.md").unlink()


def test_a_number_of_no_percentage_may_be_below_zero(tmp_path: Path) -> None:
    shutil.copytree(ROOT / published.PAPERS, tmp_path / published.PAPERS, ignore=LANDED)
    file = tmp_path / published.PAPERS / "ima/paper.yaml"
    text = file.read_text(encoding="utf-8")
    assert "unit: percent" in text
    file.write_text(text.replace("unit: percent", "unit: own"), encoding="utf-8")
    cells = file.with_name("cells.csv")
    text = cells.read_text(encoding="utf-8")
    cells.write_text(text.replace(",81.17,", ",-81.17,", 1), encoding="utf-8")
    (cell,) = (cell for cell in published.load(tmp_path).cells if cell.mean == -81.17)
    assert (cell.text, cell.decimals) == ("-81.17", 2)
    assert verdict.tolerance(cell) == verdict.tolerance(replace(cell, mean=81.17))
