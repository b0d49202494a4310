"""docs/another_paper.md carried through, and the faults that `fedrepro check-paper` finds."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.report import site
from fedrepro.report.cells.paper_faults import faults_of
from fedrepro.report.papers import published
from fedrepro.report.papers.published import PrintedMetric
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
    "labels": ("compact", COLUMN, COLUMN + COLUMN, "label: 'FedAvg': 2 times"),
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
    "one seed": ([STD, ("paper", "over: none", "over: seeds, ddof: 1")], "spread.seeds: 1:"),
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
