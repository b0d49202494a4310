"""Tables of costs and the toy figure: what is computed without a run, from its JSON to the page."""

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedrepro.analysis import studies
from fedrepro.cli.site import described_methods
from fedrepro.config.loading import load
from fedrepro.config.targets import ComputedTarget
from fedrepro.config.workbench import Workbench
from fedrepro.report import site
from fedrepro.report.cells import computed, coverage
from fedrepro.report.drawing import planes
from fedrepro.report.papers import published
from fedrepro.support import checksummed_json
from support.refusals import refused
from support.report_world import make_system

COSTS = Path("results/studies/fedgo_cost.json")
TOY = Path("results/studies/fedgo_toy.json")


@pytest.fixture(scope="module")
def counted() -> str:
    return json.dumps(studies.make("fedgo_cost"))


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return load(make_system(tmp_path, "fedgo"))


def write(bench: Workbench, path: Path, text: str) -> None:
    """A study's file; sealed if the text is that of keys with values."""
    try:
        checksummed_json.write(
            bench.root / path, json.loads(text), checksummed_json.of_results(path)
        )
    except (ValueError, TypeError):
        (bench.root / path).parent.mkdir(parents=True, exist_ok=True)
        (bench.root / path).write_text(text, encoding="utf-8")


def target(bench: Workbench, item: str) -> ComputedTarget:
    found = bench.target("fedgo", item)
    assert isinstance(found, ComputedTarget)
    return found


def page(bench: Workbench, item: str) -> str:
    """A page's text without tags, every run of blanks as one."""
    path = site.write_page(bench, bench.target("fedgo", item), published.load(bench.root))
    text = (bench.root / path).read_text(encoding="utf-8")
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def rows(bench: Workbench, *names: str) -> dict[str, list[int]]:
    wanted = ("printed", "targets", "computed", "arithmetic_agree", "arithmetic_differ")
    return {
        row["table"]: [row[name] for name in wanted]
        for row in coverage.coverage(bench)
        if row["system"] == "fedgo" and row["table"] in names
    }


def test_costs_count_as_arithmetic(bench: Workbench, counted: str) -> None:
    """The three accuracies of Table 14 are trained: they have targets in a table of their own."""
    names = ("table_14", "table_17", "section_g", "section_g_2")
    before = rows(bench, *names)
    assert {name: found[1:] for name, found in before.items()} == {
        "table_14": [9, 0, 0, 0], "table_17": [27, 0, 0, 0],
        "section_g": [3, 0, 0, 0], "section_g_2": [4, 0, 0, 0],
    }  # fmt: skip
    write(bench, COSTS, counted)
    assert rows(bench, *names) == {
        "table_14": [9, 9, 6, 6, 0], "table_17": [27, 27, 23, 21, 2],
        "section_g": [3, 3, 3, 2, 1], "section_g_2": [4, 4, 4, 4, 0],
    }  # fmt: skip


def test_what_is_not_as_printed_names_its_entry(bench: Workbench, counted: str) -> None:
    write(bench, COSTS, counted)
    papers = published.load(bench.root)
    ledger = {entry.number for entry in papers.ledger if entry.system == "fedgo"}
    for item in ("table_14", "table_17", "section_g", "section_g_2"):
        about = {entry.number for entry in papers.discrepancies("fedgo", item)}
        for cell in computed.compute(bench, target(bench, item), papers):
            as_printed = cell.verdict is not None and cell.verdict.word == "agrees"
            assert bool(cell.entry) != as_printed, cell.printed
            assert as_printed or cell.entry in ledger & about


def test_a_large_number_agrees_within_its_last_printed_digit(
    bench: Workbench, counted: str
) -> None:
    """The clients' 3.40e10 is 3.401e10 to us; a unit more or less still agrees, two do not."""
    found = json.loads(counted)
    setting = "100 rounds, 20 clients; (G1)+(D1)"
    (cell,) = (
        each
        for each in found["cells"]
        if (each["setting"], each["metric"]) == (setting, "MFLOPs_client-side")
    )
    words = {}
    for value in (3.40e10, 3.41e10, 3.42e10):
        cell["value"] = value
        write(bench, COSTS, json.dumps(found))
        cells = computed.compute(bench, target(bench, "table_17"), published.load(bench.root))
        (verdict,) = (
            each.verdict
            for each in cells
            if (each.printed.setting, each.printed.metric) == (setting, "MFLOPs_client-side")
        )
        assert verdict and verdict.basis == "arithmetic"
        words[value] = verdict.word
    assert list(words.values()) == ["agrees", "agrees", "differs"]


def test_pages_of_costs(bench: Workbench, counted: str) -> None:
    assert "not counted yet" in page(bench, "table_17")
    write(bench, COSTS, counted)
    text = page(bench, "table_17")
    assert "printed cells 27 computed 23 ✓ agree 21 ≠ differ 2" in text
    assert "Clients, millions of FLOPs" in text
    assert re.search(r"3\.52.·.10 10 3\.50.·.10 10 ≠ differs why: discrepancy A23", text), text
    assert "StyleGAN-XL is not here to be counted why: discrepancy A17" in text
    text = page(bench, "table_14")
    assert "Multiply-adds (MACs) of a sample, millions; printed as MFLOPs" in text
    assert "Table 14, Accuracy" in text
    assert "662528 ✓ agrees" in text and "17.6 ✓ agrees" in text
    assert "90 42.7" not in text


def test_pages_in_words(bench: Workbench, counted: str) -> None:
    assert "not counted yet" in page(bench, "table_2")
    write(bench, COSTS, counted.replace("T*eps_M + eps_D", "T*eps_M"))
    text = page(bench, "table_2")
    assert "printed cells 16 computed 16" in text and "Non-negligible ✓ agrees" in text
    text = page(bench, "table_16")
    assert "T*eps_M + eps_D T*eps_M ≠ differs" in text
    assert "epshat_G + T*epshat_M epshat_G + T*epshat_M ✓ agrees" in text


@pytest.mark.parametrize("damage", ["{", '{"cells": [{"table": 2}]}', "[]"])
def test_damaged_costs_are_told_in_one_line(bench: Workbench, damage: str) -> None:
    write(bench, COSTS, damage)
    with refused("damaged", file="fedgo_cost.json") as raised:
        page(bench, "table_17")
    assert "\n" not in str(raised.value)


def made_up_toy(**changes: Any) -> str:
    return json.dumps(
        {
            "reach": 4.0,
            "seeds": [1, 2],
            "points": [[1.0, 1.0, 0], [-1.0, 1.0, 1]],
            "holders": [0, 2],
            "server_points": [[0.5, -0.5], [3.0, 3.0]],
            "regions": {"uniform": [[0, 0], [1, 0]], "odds": [[0, 1], [0, 1]]},
            "accuracy": {"uniform": [0.5, 0.7], "odds": [0.8, 0.9]},
            "nearest": {"uniform": [0.25, 0.25], "odds": [0.5, 1.0]},
            "right": {"odds": [0.9, 1.0]},
        }
        | changes
    )


def test_the_toy_figure(bench: Workbench) -> None:
    """At every scale it is the published one: no page calls it a demonstration."""
    assert "Not computed yet: fedrepro study fedgo_toy" in page(bench, "figure_1")
    write(bench, TOY, made_up_toy())
    text = page(bench, "figure_1")
    assert "uniform 60.0 (50.0 to 70.0) 25.0 (25.0 to 25.0) – 2" in text
    assert "odds 85.0 (80.0 to 90.0) 75.0 (50.0 to 100.0) 95.0 (90.0 to 100.0) 2" in text
    assert "the mean accuracy goes from 60.0 to 85.0 %" in text
    assert "scale demo" not in text
    whole = (bench.root / "reports/site/fedgo/figure_1.html").read_text(encoding="utf-8")
    assert 'aria-label="Regions of three classes under the aggregation odds: 80.0 %' in whole
    # As in the paper, client 1 has most of the third quadrant, and client 4 of the first.
    for number, owned in (
        (1, "1 points: 1 of class 2"),
        (2, "0 points: "),
        (4, "1 points: 1 of class 1"),
    ):
        assert f"aria-label=\"Client {number}'s {owned}" in html.unescape(whole)
    assert "aria-label=\"The server's 2 points, without classes." in html.unescape(whole)
    start = site.write_site(
        bench, published.load(bench.root), described_methods(bench.plugins), "demo"
    )
    text = (bench.root / start).read_text(encoding="utf-8")
    row = text.partition('href="fedgo/figure_1.html"')[2].partition("</tr>")[0]
    assert "computed" in row and "runs" not in row and "not computed" not in row


def test_a_damaged_toy_is_told_in_one_line(bench: Workbench) -> None:
    for damage in ("{", made_up_toy(points=[[1.0]]), made_up_toy(accuracy={})):
        write(bench, TOY, damage)
        with refused("damaged", file="fedgo_toy.json"):
            page(bench, "figure_1")


def test_the_figure_of_fedevgs_assumption(tmp_path: Path) -> None:
    bench = load(make_system(tmp_path, "fedevg"))

    def drawn() -> str:
        target = bench.target("fedevg", "figure_assumption")
        path = site.write_page(bench, target, published.load(bench.root))
        return " ".join(re.sub(r"<[^>]*>", " ", (bench.root / path).read_text()).split())

    study = Path("results/studies/fedevg_assumption.json")
    assert "Not computed yet: fedrepro study fedevg_assumption" in drawn()
    case = {"weights": [0.6, 0.4], "followed": [0.25, 0.75], "p": [0.01, 0.5]}
    case["sampled"] = [[0.3, 0.7], [0.2, 0.8]]
    write(bench, study, json.dumps({"cases": {"unequal": case}}))
    text = drawn()
    assert "unequal client 1 60.0 25.0 25.0 unequal client 2 40.0 75.0 75.0" in text
    assert "Constants unequal: two-sample tests against the mixture give p = 0.01, 0.50." in text
    write(bench, study, json.dumps({"cases": {"unequal": case | {"sampled": []}}}))
    with refused("damaged", file="fedevg_assumption.json"):
        drawn()


@pytest.mark.parametrize(
    "grid", [[[0]], [[0, 0, 1], [0, 0, 1], [1, 0, 0]], [[0, 1], [1, 0]], [[2, 2], [2, 2]]]
)
def test_blocks_cover_every_cell_once(grid: Sequence[Sequence[int]]) -> None:
    found = [[[] for _ in row] for row in grid]  # type: list[list[list[int]]]
    blocks = planes.blocks(grid)
    for bottom, top, left, right, each in blocks:
        for row in range(bottom, top):
            for column in range(left, right):
                found[row][column].append(each)
    assert found == [[[each] for each in row] for row in grid]
    if len({each for row in grid for each in row}) == 1:
        assert len(blocks) == 1
