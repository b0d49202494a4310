"""docs/another_paper.md carried through, and the faults that `fedrepro check-paper` finds."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.metrics import ACCURACY, OfRounds
from fedrepro.config.workbench import Workbench
from fedrepro.report import site
from fedrepro.report.cells.paper_faults import faults_of
from fedrepro.report.papers import published
from fedrepro.report.papers.paper_files import COLUMNS, rows_of
from fedrepro.report.papers.published import (
    Caption,
    PrintedFigure,
    PrintedMetric,
    Published,
    Spread,
)
from fedrepro.run.landed_runs import PAPERS
from support.another_paper import FILES, settle

PRINTED = 'table_1,1,MNIST,"IID, C=0.0","FedAvg, B=10",rounds,316,,\n'
COLUMN = "      - { label: FedAvg, method: fedavg }\n"
# Faults that can be there together: file, what is replaced, by what, and words of the line.
TOGETHER = {
    "to be filled in": ("caption", "# Clients", "# TODO Clients", "TODO"),
    "a cell twice": ("cells", PRINTED, PRINTED + PRINTED, "2 times"),
    "a cell in no table": ("cells", "doubt\n", f"doubt\n{PRINTED.replace('0.0', '0.9')}", "C=0.9"),
    "a line without a printed cell": (
        "experiment", 'published: "FedAvg, B=∞"', 'published: "FedAvg, B=1"', "columns.B = ∞",
    ),
    "direction": ("paper", "better: less", "better: more", "metrics.rounds.better"),
    "unused": ("paper", "metrics:\n", "metrics:\n  loss: { unit: own }\n", "metrics.loss"),
    "proposes": ("paper", "spread:", "proposes: [FedAvgg]\nspread:", "proposes: 'FedAvgg'"),
    "spread": ("paper", "over: none", "over: clients", "spread.over: 'clients'"),
    "quantifier": ("claims", "  quantifier: each  ", "  # ", "quantifier: missing"),
    "place": ("claims", "  place:", "  # place:", "place: missing"),
    "of no table": ("discrepancies", "tables: [table_1]", "tables: [table_9]", "'table_9'"),
    "selector": ("claims", "right: { setting", "right: { dataset: CIFAR, setting", "matches no"),
    "compact label": ("claims", 'right: { row: "*, C = 0.0"', 'right: { row: "*, C = 0"', ".row"),
    "stands for": ("compact", "    stands_for", "    # stands_for", "stands_for: missing"),
}  # fmt: skip
# Faults that leave nothing else to be read.
ALONE = {
    "out of range": ("paper", "unit: own", "unit: percent", "mean: '1455': expected a number of"),
    "no unit": ("paper", "  rounds: {", "  round: {", "metrics.rounds: missing"),
    "a comma": ("cells", '"IID, C=0.0"', "IID, C=0.0", "line 2: too many values"),
    "columns": ("cells", ",doubt", "", "line 1"),
    "no list": ("claims", "- name", "entries:\n- name", "expected a list"),
    "unknown method": ("experiment", "method: fedavg }", "method: fedagv }", "'fedagv'"),
    "unknown measure": ("experiment", "{ rounds_to: 97 }", "accuracyy", "accuracyy"),
    "no setting": ("experiment", "setting: iid-0.1, demo", "setting: iid-0.3, demo", "'iid-0.3'"),
    "claim without source": ("claims", "  source", "  # source", "source"),
}  # fmt: skip

STD = ("cells", "rounds,316,,", "rounds,316,3,")
SCORE = 'table_1,1,MNIST,"IID, C=0.0",Other,score,'
TREND = """  figure_2:
    kind: trend
    title: By share
    lines: [FedAvg]
    panels:
      - { label: IID, x: C, points: [{ at: 0.1, setting: iid-0.1, methods: [fedavg] }] }
"""
# Doubts about numbers and scales: the changes, as above, and words of the line.
DOUBTS = {
    "one seed": ([STD, ("paper", "over: none", "over: seeds, ddof: 1")], "`seeds`, at least 2"),
    "ddof": ([STD, ("paper", "over: none", "over: seeds, seeds: 3")], "spread.ddof: missing"),
    "seeds of none": ([("paper", "over: none", "over: none, ddof: 0")], "of which ddof"),
    "own splits": (
        [STD, ("paper", "over: none", "over: seeds, seeds: 3, ddof: 1, own_splits: "
               "{ datasets: [CIFAR], seeds: [1], source: x }")],
        "spread.own_splits: 'CIFAR'",
    ),
    "a std alone": ([("cells", "rounds,,,", "rounds,,3,")], "std: 3: there is no mean"),
    "a std beyond all": (
        [("paper", "metrics:", "metrics:\n  score: { unit: fraction }"),
         ("cells", "doubt\n", f"doubt\n{SCORE}0.8,1.2,\n")],
        "std: 1.2: expected at most",
    ),
    "a std of a fraction": (
        [("paper", "metrics:", "metrics:\n  score: { unit: percent }"),
         ("cells", "doubt\n", f"doubt\n{SCORE}81.2,0.0061,\n")],
        "metrics.score: the largest std is 0.0061",
    ),
    "a figure's column": (
        [("experiment", "      - { label: B = ∞, method: fedavg }",
          "      - { label: B = ∞, method: fedavg, published: FedAvgg }")],
        "figures.figure_1.columns.B = ∞: published: 'FedAvgg'",
    ),
    "a target of a fraction": (
        [("experiment", "rounds_to: 97", "rounds_to: 0.97")], "expected percent"
    ),
    "rounds of a summary": (
        [("experiment", "    kind: lines", "    kind: lines\n    summary: { rounds: 9999 }")],
        "figure_1: summary.rounds: 9999: mcmahan/iid-0.1 has 5000",
    ),
    "direction of small runs": (
        [("compact", "{ rounds_to: 70 }", "accuracy")], "compact.table: 'compact_1'"
    ),
    "a row at scale demo": (
        [("experiment", "            demo: demo\n", "")],
        "tables.table_1.rows.IID, C = 0.2.demo: missing: scale demo trains mcmahan/iid-0.2",
    ),
    "a figure's row at scale demo": (
        [("experiment", "setting: iid-0.1, demo: demo }", "setting: iid-0.1 }")],
        "figures.figure_1.rows.IID.demo: missing: scale demo trains mcmahan/iid-0.1, for about",
    ),
    "a figure without demo": (
        [("experiment", "figures:\n", f"figures:\n{TREND}")], "figures.figure_2: empty at scale"
    ),
}  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workbench with the paper as the page has it."""
    monkeypatch.chdir(settle(tmp_path))
    return Path()


def change(kind: str, old: str, new: str) -> None:
    path = Path(FILES[kind])
    text = path.read_text(encoding="utf-8")
    assert old in text, old
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def checked(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of the faults."""
    capsys.readouterr()
    status = main(["check-paper", "mcmahan"])
    lines = capsys.readouterr().out.splitlines()
    assert status == (0 if lines == ["mcmahan: nothing is missing"] else 1)
    return lines if status else []


def test_a_new_paper_lists_what_is_to_be_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "bench", "--paper", "mcmahan"]) == 0
    monkeypatch.chdir("bench")
    lines = checked(capsys)
    assert sum("to be filled in" in line for line in lines) == 10
    assert any(line.startswith(f"{FILES['cells']}: no cell") for line in lines)
    site.write_site(load(), published.load(), [], "demo")
    for name in ("index", "claims"):
        page = Path(f"reports/site/{name}.html").read_text(encoding="utf-8")
        start = page.partition("<main")[2].partition("<section")[0]
        text = " ".join(re.sub("<[^>]*>", " ", start).split())
        assert text and not re.search(r"\b0 claims|of 0 cells|: holds 0", text), text
    assert main(["init", "--paper", "mcmahan"]) == main(["init", "--paper", "ima"]) == 2
    assert main(["check-paper", "mcmahann"]) == 2


def test_every_fault_is_named_in_its_file(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(capsys) == []
    for kind, old, new, _ in TOGETHER.values():
        change(kind, old, new)
    lines = checked(capsys)
    for name, (kind, _, _, words) in TOGETHER.items():
        known = (FILES[kind], FILES[kind].rpartition("/")[0])
        found = [line for line in lines if line.startswith(known) and words in line]
        assert len(found) == 1, (name, lines)
    compact = Path(FILES["compact"])
    kept = compact.read_text(encoding="utf-8")
    change("compact", COLUMN, COLUMN + COLUMN)
    assert any(line.startswith(FILES["compact"]) and "'FedAvg'" in line for line in checked(capsys))
    compact.write_text(kept, encoding="utf-8")
    Path(FILES["caption"]).unlink()
    Path("reports/papers/systems.yaml").write_text("[]\n", encoding="utf-8")
    lines = checked(capsys)
    assert len(lines) == 1 and "systems.yaml" in lines[0]


def test_a_score_of_the_shared_model_is_doubted(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change("experiment", "method: fedavg }", "method: ditto }")
    lines = checked(capsys)
    assert lines and all("ditto" in line and "over_clients" in line for line in lines)


@pytest.mark.parametrize(("kind", "old", "new", "words"), ALONE.values(), ids=ALONE)
def test_a_fault_that_hides_others_is_one_line(
    bench: Path, capsys: pytest.CaptureFixture[str], kind: str, old: str, new: str, words: str
) -> None:
    change(kind, old, new)
    (line,) = checked(capsys)
    assert words in line
    assert FILES[kind] in line or kind == "paper"


@pytest.mark.parametrize(("changes", "words"), DOUBTS.values(), ids=DOUBTS)
def test_a_doubt_is_named(
    bench: Path, capsys: pytest.CaptureFixture[str], changes: list[tuple[str, str, str]], words: str
) -> None:
    for one in changes:
        change(*one)
    assert sum(words in line for line in checked(capsys)) == 1


def test_a_margin_of_most_of_a_fraction_is_doubted(bench: Path) -> None:
    papers, unit = published.load(), PrintedMetric(unit="fraction", better="less")
    cells = tuple(replace(cell, kind=unit) for cell in papers.cells)
    lines = [*faults_of(load(), replace(papers, cells=cells), "mcmahan")]
    assert any("more-clients: margin: 1: expected at most 0.2" in line for line in lines)


# --- faults of what can be read, without its files ------------------------------------------------
OWN = "mcmahan"
Edit = Callable[[Published], Published]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workbench, Published]:
    root = settle(tmp_path_factory.mktemp("paper"))
    return load(root), published.load(root)


def each_cell(**keys: Any) -> Edit:
    return lambda papers: replace(
        papers, cells=tuple(replace(cell, **keys) for cell in papers.cells)
    )


def more_cells(*settings: str, **keys: Any) -> Edit:
    """Further cells like the first one."""
    return lambda papers: replace(
        papers,
        cells=[
            *papers.cells,
            *(replace(papers.cells[0], setting=name, **keys) for name in settings),
        ],
    )


def of_paper(**keys: Any) -> Edit:
    return lambda papers: replace(
        papers, systems={OWN: papers.systems[OWN].model_copy(update=keys)}
    )


def of_claim(**keys: Any) -> Edit:
    return lambda papers: replace(papers, claims=(papers.claims[0].model_copy(update=keys),))


def of_papers(**keys: Any) -> Edit:
    return lambda papers: replace(papers, **keys)


def scores(unit: str, *numbers: tuple[float, float | None, str], **keys: Any) -> Edit:
    """Further printed cells: mean, spread and text of each."""
    kind = PrintedMetric(unit=unit)

    def edit(papers: Published) -> Published:
        metrics = {**papers.systems[OWN].metrics, "score": kind}
        some = tuple(
            replace(papers.cells[0], metric="score", kind=kind, mean=mean, std=std, text=text,
                    decimals=len(text.split()[0].partition(".")[2]), method=f"M{place}", **keys)
            for place, (mean, std, text) in enumerate(numbers)
        )  # fmt: skip
        return replace(of_paper(metrics=metrics)(papers), cells=[*papers.cells, *some])

    return edit


def spread(**keys: Any) -> Edit:
    return of_paper(spread=Spread.model_validate({"source": "x", **keys}))


def both(*edits: Edit) -> Edit:
    def edit(papers: Published) -> Published:
        for one in edits:
            papers = one(papers)
        return papers

    return edit


def of_another(papers: Published) -> Published:
    """A paper with faults of its own, of which nothing is said here."""
    about = papers.systems[OWN].model_copy(update={"system": "other"})
    cells = tuple(
        replace(cell, system="other", item="table_8", metric="x") for cell in papers.cells[:2]
    )
    bad = papers.claims[0].model_copy(update={"system": "other", "place": []})
    entry = papers.ledger[0].model_copy(update={"system": "other", "tables": ["table_9"]})
    return replace(
        papers,
        cells=[*papers.cells, *cells, *cells],
        systems={**papers.systems, "other": about},
        claims=(*papers.claims, bad, bad),
        ledger=(*papers.ledger, entry, entry),
        notes={("other", "table_9"): ("x",)},
    )


SCORES = "metrics.score.unit: 'percent'"
OF_SPREAD = "paper.yaml: spread."
NOTED = {("mcmahan", "table_1_iid"): ("x",)}
LIMIT = Spread(over="seeds", source="x", seeds=3, ddof=0)
READ: dict[str, tuple[Edit, str]] = {
    "nothing": (of_papers(), ""),
    "of another paper": (of_another, ""),
    "a unit that cannot be compared": (
        each_cell(kind=PrintedMetric(unit="percent", better="less")), "metrics.rounds.unit: "
    ),
    "percent": (scores("percent", (0.7, None, "0.7"), (1.1, None, "1.1")), ""),
    "a percentage of at most one": (
        scores("percent", (0.7, None, "0.7"), (1.0, None, "1.0")), SCORES
    ),
    "a std of half of all": (both(scores("percent", (50, 70, "50 (70)")), spread(over="clients")),
                             ""),
    "a std of more": (both(scores("percent", (50, 71, "50 (71)")), spread(over="clients")),
                      "std: 71: expected at most 71 of a percent"),
    "a doubted std": (both(scores("percent", (50, 71, "50 (71)"), doubt="x"),
                           spread(over="clients")), ""),
    "a small std": (both(scores("percent", (50.0, 0.11, "50.0 (0.11)"),
                                (50.0, 0.01, "50.0 (0.01)")), spread(over="clients")), ""),
    "a std of a fraction": (both(scores("percent", (50.0, 0.09, "50.0 (0.09)"),
                                        (50.0, 0.01, "50.0 (0.0123)")), spread(over="clients")),
                            "metrics.score: the largest std is 0.09"),
    "a std with the digits of its mean": (
        both(scores("percent", (50.0, 0.09, "50.00 (0.09)")), spread(over="clients")), ""
    ),
    "a std of none": (scores("own", (5.0, 1.0, "5.0 (1.0)")), f"{OF_SPREAD}over: 'none': 1 cell "),
    "seeds without a std": (of_paper(spread=LIMIT), f"{OF_SPREAD}over: 'seeds': no cell"),
    "seeds": (both(scores("own", (5.0, 1.0, "5.0 (1.0)")), of_paper(spread=LIMIT)), ""),
    "two seeds": (both(scores("own", (5.0, 1.0, "5.0 (1.0)")),
                       spread(over="seeds", seeds=2, ddof=1)), ""),
    "a plug-in": (both(more_cells("IID, C=0.0", method="FedAvg+IMA"), of_paper(proposes=["+IMA"])),
                  ""),
    "no reference": (of_paper(references=["FedAvgg, B=10"]), "paper.yaml: references: 'FedAvgg, "),
    "no caption": (of_papers(captions={}), "captions/table_1.md: missing"),
    "no title": (of_papers(captions={(OWN, "table_1"): Caption("", ("x",))}), "table_1.md: miss"),
    "no paragraph": (of_papers(captions={(OWN, "table_1"): Caption("x", ())}), "table_1.md: miss"),
    "a note on a part": (of_papers(notes=NOTED), ""),
    "a note on nothing": (of_papers(notes={(OWN, "table_2"): ("x",)}), "item: 'table_2'"),
    "a figure of the text": (
        of_papers(figures=(PrintedFigure(system=OWN, figure="2", item="", state="missing",
                                         note=""),)), ""
    ),
    "a figure that is not there": (
        of_papers(figures=(PrintedFigure(system=OWN, figure="2", item="figure_2",
                                         state="in part", note="x"),)),
        "figures.csv: item: 'figure_2'",
    ),
    "a claim on nothing": (of_claim(tables=["table_1", "table_2"]), "tables: 'table_2': expected"),
    "a claim of sameness": (of_claim(quantifier="same", margin=None), "margin: missing"),
    "one that nothing can test": (
        of_claim(quantifier="same", margin=None, compact="No data."), ""
    ),
    "a claim without a test": (of_claim(compact=""), "compact: missing"),
    "the other direction": (
        of_claim(expect="more"), "expect: 'more': of rounds less is better, and no printed number"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "words"), READ.values(), ids=READ)
def test_what_is_read_has_this_fault_alone(
    read: tuple[Workbench, Published], edit: Edit, words: str
) -> None:
    bench, papers = read
    # Further cells are in no table.
    lines = [
        line
        for line in faults_of(bench, edit(papers), OWN)
        if "printed cell" not in line or "printed cell" in words
    ]
    assert [words in line for line in lines] == [True] * bool(words), lines


@pytest.mark.parametrize("some", ["a", "abc", "abcd"])
def test_cells_in_no_table_are_counted_and_the_first_are_named(
    read: tuple[Workbench, Published], some: str
) -> None:
    bench, papers = read
    (line,) = faults_of(bench, more_cells(*some)(papers), OWN)
    counts, *_, names = line.removeprefix(f"{FILES['cells']}: table_1: ").split(": ")
    assert counts.startswith(f"{len(some)} of {20 + len(some)} printed cells ")
    assert [name.split(", ")[1] for name in names.split("; ")] == [*some[:3]]
    assert names.endswith("...") == (len(some) > 3)


@pytest.mark.parametrize(
    ("metric", "unit", "better", "faults"),
    [
        (ACCURACY, "percent", "more", []),
        (ACCURACY, "fraction", "more", ["unit"]),
        (ACCURACY, "own", "less", ["unit", "better"]),
        (OfRounds(name="loss"), "own", "less", []),
        (OfRounds(name="loss"), "percent", "less", []),  # without a unit it may be one
        (OfRounds(name="loss"), "fraction", "more", ["better"]),
    ],
)
def test_a_table_s_numbers_have_the_printed_unit_and_direction(
    read: tuple[Workbench, Published], metric: Any, unit: Any, better: Any, faults: list[str]
) -> None:
    bench, papers = read
    experiment = bench.experiments[OWN]
    table = experiment.tables["table_1"].model_copy(update={"metric": metric})
    experiment = experiment.model_copy(update={"tables": {"table_1": table}})
    papers = replace(each_cell(kind=PrintedMetric(unit=unit, better=better))(papers), claims=())
    lines = [*faults_of(replace(bench, experiments={OWN: experiment}), papers, OWN)]
    start = "reports/papers/mcmahan/paper.yaml: metrics.rounds."
    assert [line.removeprefix(start).partition(":")[0] for line in lines] == faults


def test_the_claim_of_the_page_is_judged(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With two seeds, three rounds and a target that both reach: no more than undecided."""
    change("compact", "rounds: 30", "rounds: 3")
    change("compact", "rounds_to: 70", "rounds_to: 10")
    change("compact", "    title: Rounds", "    seeds: { compact: [1, 2] }\n    title: Rounds")
    for kind in ("iid", "shards"):
        for share in ("0.01", "0.1"):
            for seed in ("1", "2"):
                words = [f"mcmahan/compact-{kind}-{share}", "fedavg", "--seed", seed]
                assert main(["run", *words]) == 0
    assert main(["table", "mcmahan", "compact_1", "--scale", "compact"]) == 0
    capsys.readouterr()
    assert main(["claims", "--json"]) == 0
    (claim,) = json.loads(capsys.readouterr().out)
    assert claim["printed"] == "supports (8 of 8)"
    assert (claim["compact"], claim["compact_seeds"]) == ("undecided", 2)
    assert main(["export", "mcmahan", "compact_1", "--scale", "compact", "--to", "appendix"]) == 0
    works = Path("appendix/references.bib").read_text(encoding="utf-8")
    assert "@inproceedings{mcmahan2017fedavg" in works and "@misc{mcmahan," in works
    bench_read, papers = load(), published.load()
    site.write_site(bench_read, papers, [], "compact")
    whole = Path("reports/site/index.html").read_text(encoding="utf-8")
    start = whole.partition("<main")[2].partition("</main>")[0]
    assert not re.search(
        r", ,|\(scale compact\), *[,.]|settings, *[.;]|[a-z]\.[A-Z]| 1 claims",
        " ".join(re.sub("<[^>]*>", "", start).split()),
    )


def test_beside_a_workbench_the_line_says_where_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check-paper", "mine"]) == 2
    assert "config/config.yaml" in capsys.readouterr().err


def test_a_table_that_a_spreadsheet_saved_is_read(tmp_path: Path) -> None:
    """It begins with a mark of its encoding, and has rows of empty cells."""
    path = PAPERS / "own/cells.csv"
    (tmp_path / path).parent.mkdir(parents=True)
    head, row = ",".join(COLUMNS["cells.csv"]), "table_1,,,,,accuracy,,,"
    empty = "," * row.count(",")
    lines = (head, row, empty, row, empty)
    (tmp_path / path).write_text("\r\n".join((*lines, "")), encoding="utf-8-sig")
    assert [each["item"] for each in rows_of(tmp_path, path)] == ["table_1"] * 2
