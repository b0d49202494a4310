"""Which cells of scale compact test a claim."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedrepro.cli.check_paper import faults_at_demo
from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.metrics import MegabytesTo, OfRounds, RoundsTo
from fedrepro.config.tables import Summary
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.cell import (
    CellRun,
    ComputedTable,
    Result,
    TableCell,
    TableColumn,
    TableRow,
)
from fedrepro.report.cells.claims import compact_pairs, judge_claim, judge_compact
from fedrepro.report.cells.paper_faults import faults_of, unfilled
from fedrepro.report.cells.tables import _speed_up
from fedrepro.report.papers import published
from fedrepro.report.papers.claim import Claim, CompactTest
from fedrepro.report.papers.leads import Word
from fedrepro.report.papers.pairs import printed_pairs
from fedrepro.run.results import RunStatus
from support.places import ROOT
from support.refusals import refused
from support.report_world import make_world, write_run


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return load(ROOT)


@pytest.fixture(scope="module")
def claim() -> Claim:
    return next(each for each in published.load(ROOT).claims if each.system == "ima")


def compact_test(left: dict[str, object], right: dict[str, object]) -> CompactTest:
    return CompactTest.model_validate({"table": "compact_accuracy", "left": left, "right": right})


def test_a_star_pairs_a_method_with_itself_in_each_row(bench: Workbench, claim: Claim) -> None:
    table = bench.experiments["ima"].compact["compact_accuracy"]
    test = compact_test({"column": "* + IMA"}, {"column": "*"})
    plain = [each.label for each in table.columns if "IMA" not in each.label]
    wanted = [f"{row.label}: {name} + IMA against {name}" for row in table.rows for name in plain]
    assert [pair.words for pair in compact_pairs(bench, claim, test)] == wanted


def test_no_two_comparisons_of_a_claim_have_the_same_words(bench: Workbench) -> None:
    for each in published.load(ROOT).claims:
        if isinstance(each.compact, CompactTest):
            words = [pair.words for pair in compact_pairs(bench, each, each.compact)]
            assert len(words) == len({*words}), each.name


def test_others_are_those_that_no_star_stands_for(bench: Workbench, claim: Claim) -> None:
    test = compact_test({"column": "FedA* + IMA"}, {"column": "others"})
    compared = {pair.words.split(": ")[1] for pair in compact_pairs(bench, claim, test)}
    assert "FedAvg + IMA against FedAvg" in compared
    assert "FedAvg + IMA against FedFA + IMA" in compared
    assert "FedAvg + IMA against FedAdam + IMA" not in compared


def test_a_star_that_fits_no_label_is_an_error(bench: Workbench, claim: Claim) -> None:
    test = compact_test({"column": "* + AMI"}, {"column": "*"})
    with refused(key="accuracy.compact.left.column", value="* + AMI", names="AMI"):
        list(compact_pairs(bench, claim, test))


def test_the_papers_here_have_no_fault(bench: Workbench) -> None:
    """As `fedrepro check-paper` says."""
    papers = published.load(ROOT)
    for system in papers.systems:
        every = *unfilled(ROOT, system), *faults_of(bench, papers, system)
        assert [*every, *faults_at_demo(bench, system)] == []


def test_every_claim_with_cells_finds_them(bench: Workbench) -> None:
    tested = [each for each in published.load(ROOT).claims if isinstance(each.compact, CompactTest)]
    assert tested
    for each in tested:
        assert isinstance(each.compact, CompactTest)
        assert list(compact_pairs(bench, each, each.compact)), each.anchor


def cell_of(*runs: CellRun) -> TableCell:
    values = [run.value for run in runs if run.value is not None]
    result = Result(
        "fedgo/compact-dir0.1", ("fedavg",), "fedavg" if values else None, {}, runs, None, "",
        len(values), None, None, None,
    )  # fmt: skip
    return TableCell(0, 0, None, result, None, "", None, None)


def run_of(seed: int, value: float | None, state: RunStatus = "finished", **more: Any) -> CellRun:
    about = {"changed": (), "folder": "", "page": None, **more}
    return CellRun("fedavg", seed, state, "", value, reference=True, **about)


def never(seed: int, state: RunStatus = "finished", **more: Any) -> CellRun:
    return run_of(seed, None, state, unreached=30.0, **more)


def test_a_run_that_never_reached_the_target_counts_as_all_its_rounds() -> None:
    cell = cell_of(run_of(1, 12.0), never(2), never(3, "diverged"), never(4, changed=("rounds",)))
    assert cell.result.counted_by_seed() == {1: 12.0, 2: 30.0}
    assert cell.result.current_by_seed() == {1: 12.0}
    none = cell_of(never(1), never(2)).result
    assert none.counted_by_seed() == {1: 30.0, 2: 30.0}
    # Of several methods the best counts, which is none where none arrives.
    assert replace(none, methods=("fedavg", "fedprox")).counted_by_seed() == {}
    other = replace(
        cell.result, runs=(*cell.result.runs, replace(run_of(5, 9.0), method="fedprox"))
    )
    assert other.counted_by_seed() == {1: 12.0, 2: 30.0}


def test_a_speed_up_counts_the_seeds_in_which_only_the_wrapper_arrives() -> None:
    last = never(8, changed=("lr",))
    own = cell_of(run_of(1, 20.0), run_of(2, 15.0), never(3), never(4), run_of(5, 25.0),
                  never(6, "diverged"), run_of(7, 10.0), run_of(8, 10.0)).result  # fmt: skip
    rival = cell_of(run_of(1, 80.0), never(2), never(3), run_of(4, 6.0), run_of(6, 9.0),
                    never(7, "diverged"), last).result  # fmt: skip
    both = _speed_up(own, rival)
    assert both.by_seed == {1: 4.0}
    assert both.counted_by_seed() == {1: 4.0, 2: 2.0, 3: 1.0, 4: 0.2}
    nowhere = cell_of(never(1), never(2)).result
    assert _speed_up(nowhere, rival).counted_by_seed() == {1: 80.0 / 30.0, 2: 1.0}
    # Of which of several rivals, none of which arrives, is not known.
    several = replace(nowhere, methods=("fedavg", "fedprox"))
    assert _speed_up(own, several).counted_by_seed() == {}


def test_what_a_run_that_never_arrives_counts_as() -> None:
    """Megabytes of a run that stopped before its last round go on at the rate of those it ran."""
    rounds = {"round": [1, 2, 5], "test_accuracy": [0.1, 0.2, 0.3],
              "bytes_down": [1e6, 2e6, 2e6], "bytes_up": [1e6, 2e6, 2e6]}  # fmt: skip
    record: Any = SimpleNamespace(rounds=rounds)
    rounds_to, megabytes_to = RoundsTo(rounds_to=70), MegabytesTo(megabytes_to=70)
    assert rounds_to.unreached(record, 5) == 5.0
    assert megabytes_to.unreached(record, 5) == 2 + 4 + 12
    assert megabytes_to.unreached(record, 10) == 36
    assert MegabytesTo(megabytes_to=20)._series(record) == [(2, 6.0)]
    none: Any = SimpleNamespace(rounds={"round": []})
    assert megabytes_to.unreached(none, 5) is None
    assert OfRounds(name="loss").unreached(record, 5) is None


@pytest.mark.parametrize("scale", ["paper", "compact"])
@pytest.mark.parametrize("lost", ["left", "right"])
def test_a_claim_counts_the_seeds_that_never_arrive(
    bench: Workbench, scale: str, lost: str
) -> None:
    """Without them the left one would need fewer rounds with every seed, at both scales."""
    few = [10.0, 11.0, 10.5, 10.2, 10.8]
    many = [20.0, 21.0, 20.5, 20.3, 20.7]
    own, rival = ([run_of(at, value) for at, value in enumerate(each, 1)] for each in (few, many))
    (own if lost == "left" else rival)[4:] = [never(5)]
    sides = {"left": cell_of(*own), "right": cell_of(*rival)}
    claims_of = published.load(bench.root).claims
    asked = next(each for each in claims_of if each.anchor == "fedgo-rounds")
    if scale == "compact":
        assert isinstance(asked.compact, CompactTest)
        pair, *_ = compact_pairs(bench, asked, asked.compact)
        target = bench.table("fedgo", asked.compact.table, "compact")
        cells = [cell_of() for _ in target.cells]
        cells[pair.left], cells[pair.right] = sides["left"], sides["right"]
        table = ComputedTable(
            "fedgo", target.item, "compact", "", None, Summary(), (), (), tuple(cells)
        )  # fmt: skip
        made = judge_compact(bench, asked, {("fedgo", target.item): table}, None)
    else:
        pairs = printed_pairs(asked, published.load(bench.root))[:1]
        index = {
            (each.system, each.table, each.name): sides[side]
            for side, each in (("left", pairs[0].left), ("right", pairs[0].right))
        }
        made = judge_claim(asked, pairs, index)
    assert made
    (test,) = (row.test for row in made.comparisons if row.test)
    leads = [10.0, 10.0, 10.0, 10.1, -9.3 if lost == "left" else 19.2]
    assert (test.seeds, test.lead) == (5, pytest.approx(sum(leads) / 5))
    assert lost == "right" or made.word != Word.HOLDS


def test_nor_do_their_divergences() -> None:
    gone = run_of(2, None, "diverged", code="made by other code: core")
    changed = run_of(3, None, "diverged", changed=("rounds",))
    cell = cell_of(run_of(1, 1.0), gone, changed, run_of(4, None, "diverged"))
    assert cell.result.diverged == (4,)


def test_numbers_of_other_code_or_configuration_do_not_count() -> None:
    other = run_of(2, 2.0, code="made by other code: core"), run_of(3, 3.0, changed=("rounds",))
    assert cell_of(run_of(1, 1.0), *other).result.current_by_seed() == {1: 1.0}


def test_a_claim_is_judged_by_leads_in_its_direction(bench: Workbench) -> None:
    """Made-up numbers: FedGO leads each by 5 points and more, in every seed and row."""
    claim = next(
        each for each in published.load(ROOT).claims if each.anchor == "fedgo-above-distillation"
    )
    target = bench.table("fedgo", "compact_accuracy", "compact")
    cells = []
    for place, cell in enumerate(target.cells):
        # Others differ from each other, or they would be twins.
        lead = 5.0 if cell.column.label == "FedGO" else -0.2 * place
        runs = [run_of(seed, 70.0 + seed + lead * (1 + seed / 10)) for seed in range(1, 6)]
        shown = cell_of(*runs)
        cells.append(replace(shown, row=place // 11, column=place % 11))
    rows = tuple(TableRow(row.label, "", "%", "", None) for row in target.table.rows)
    columns = tuple(TableColumn(column.label) for column in target.table.columns)
    table = ComputedTable(
        "fedgo", "compact_accuracy", "compact", "", None, Summary(), rows, columns, tuple(cells)
    )
    tables = {("fedgo", "compact_accuracy"): table}
    found = judge_compact(bench, claim, tables, 0.5)
    assert found
    assert found.word == Word.HOLDS
    assert found.overall
    assert found.overall.lead == pytest.approx(1.3 * (5.0 + 0.2 * (7 + 8 + 9 + 18 + 19 + 20) / 6))
    assert len(found.comparisons) == 6
    assert found.comparisons[0].means == pytest.approx((79.5, 73.0 - 1.3 * 0.2 * 7))
    assert found.diverged == 0
    assert "iverged" not in found.why
    gone = run_of(6, None, "diverged")
    lost = judge_compact(bench, claim.model_copy(update={"expect": "less"}), tables, 0.5)
    assert lost
    assert lost.word == Word.DOES_NOT_HOLD
    fewer = [
        replace(cell, result=replace(cell.result, runs=cell.result.runs[:4]))
        for cell in table.cells
    ]
    early = {("fedgo", "compact_accuracy"): replace(table, cells=tuple(fewer))}
    for direction in ("more", "less"):  # as clear as with five
        soon = judge_compact(bench, claim.model_copy(update={"expect": direction}), early, 0.5)
        assert soon
        assert (soon.word, soon.needs) == (Word.UNDECIDED, "5")
        assert "4 of 5 seeds" in soon.why
    old = [
        replace(run, code="made by other code: core") for cell in cells for run in cell.result.runs
    ]
    stale = [
        replace(cell, result=replace(cell.result, runs=tuple(old[5 * place : 5 * place + 5])))
        for place, cell in enumerate(cells)
    ]
    by_other_code = {("fedgo", "compact_accuracy"): replace(table, cells=tuple(stale))}
    for computed, said in ((by_other_code, True), ({}, False)):
        none = judge_compact(bench, claim, computed, 0.5)
        assert none and none.word == Word.NOT_COMPUTED
        assert ("core" in none.why) is said
    # What is finished and has no number can have none; what has not ended, or is stale, may.
    place = next(at for at, each in enumerate(columns) if each.label == "FedDF")
    for changes, left_out in (
        ({}, True), ({"state": "not run"}, False), ({"changed": ("rounds",)}, False),
    ):  # fmt: skip
        empty = [
            replace(
                cell,
                result=replace(
                    cell.result,
                    runs=tuple(
                        replace(run, value=None, **(changes if run.seed == 5 else {}))
                        for run in cell.result.runs
                    ),
                ),
            )
            if cell.column == place
            else cell
            for cell in table.cells
        ]
        some = {("fedgo", "compact_accuracy"): replace(table, cells=tuple(empty))}
        without = judge_compact(bench, claim, some, 0.5)
        assert without and [pair.rival for pair in without.impossible] == ["FedDF"] * 2 * left_out
        assert without.word == (Word.HOLDS if left_out else Word.UNDECIDED)
        assert (("fedgo/compact-dir0.1", ("feddf",)) in without.runs) != left_out
    for column, direction, word in (
        ("FedGO", "more", Word.UNDECIDED),  # the paper's method, with the worst seed left out
        ("FedDF", "more", Word.HOLDS),
        ("FedGO", "less", Word.DOES_NOT_HOLD),
        ("FedDF", "less", Word.DOES_NOT_HOLD),  # by the other four comparisons
    ):
        other = [each.label for each in columns].index(column)
        diverged = [
            replace(cell, result=replace(cell.result, runs=(*cell.result.runs, gone)))
            if cell.column == other
            else cell
            for cell in table.cells
        ]
        some = {("fedgo", "compact_accuracy"): replace(table, cells=tuple(diverged))}
        asked = claim.model_copy(update={"expect": direction})
        found = judge_compact(bench, asked, some, 0.5)
        assert found
        assert (found.word, found.diverged) == (word, len(rows))
        assert f"{column} ({rows[0].label}), seed 6" in found.why
    silent = judge_compact(bench, claim.model_copy(update={"compact": "No data."}), tables, 0.5)
    assert silent is None


def test_a_damaged_run_is_named_where_it_takes_a_verdict_and_where_others_decide(
    bench: Workbench,
) -> None:
    asked = {each.anchor: each for each in published.load(ROOT).claims}["fedgo-above-distillation"]
    target = bench.table("fedgo", "compact_accuracy", "compact")
    cells = [
        cell_of(*(run_of(s, 70.0 + s * n) for s in range(1, 7))) for n in range(len(target.cells))
    ]

    def judged(damaged: set[int]) -> tuple[Word, bool]:
        """With these seeds of all cells."""
        runs = [
            replace(run, state="damaged", why="rounds.parquet", value=None)
            if run.seed in damaged
            else run
            for cell in cells
            for run in cell.result.runs
        ]
        made = (
            replace(cell, result=replace(cell.result, runs=tuple(runs[6 * n : 6 * n + 6])))
            for n, cell in enumerate(cells)
        )
        key = ("fedgo", "compact_accuracy")
        table = ComputedTable(*key, "compact", "", None, Summary(), (), (), tuple(made))
        found = judge_compact(bench, asked, {key: table}, 0.5)
        assert found
        return found.word, "rounds.parquet" in found.why

    whole, told = judged(set())
    assert whole != Word.NOT_COMPUTED and not told
    assert judged({6}) == (whole, True)
    assert judged({*range(1, 7)}) == (Word.NOT_COMPUTED, True)


def test_claims_names_a_run_that_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    world = load(make_world(tmp_path, rows=1, columns=2))
    run = world.table("ima", "table_1", "paper").runs[0]
    write_run(world, run, [0.5] * 40)
    assert main(["claims"]) == 0
    assert "rounds.parquet" not in capsys.readouterr().err
    with (tmp_path / run.folder / "rounds.parquet").open("ab") as file:
        file.write(b"x")
    for format in ([], ["--json"]):
        assert main(["claims", *format]) == 0
        said = capsys.readouterr().err
        assert run.words in said and "rounds.parquet" in said
