"""A cell without a spread of its own borrows one; only some rounds count."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedrepro.config.tables import Summary
from fedrepro.config.targets import RunKey
from fedrepro.report.cells import cell_verdict
from fedrepro.report.cells.cell import CellRun, Result, fewer, last, until
from fedrepro.report.cells.cell_verdict import borrowed_spreads, paired_spreads
from fedrepro.report.papers.estimate import Borrowed, Estimate, Paired
from fedrepro.report.papers.published import PrintedCell, PrintedMetric, Published, Spread, System
from fedrepro.run.results import RunRecord

SEEDS = (5, 1, 3)  # the authors' own, on data set d
SPREAD = Spread.model_validate({
    "over": "seeds", "source": "x", "seeds": 3, "ddof": 1,
    "own_splits": {"datasets": ["d"], "seeds": [*SEEDS], "source": "x"},
})  # fmt: skip
ABOUT = dict.fromkeys(("system", "name", "title", "changes", "paper"), "s")
PAPERS = Published(systems={"s": System.model_validate({**ABOUT, "spread": SPREAD})})


def printed(method: str, unit: Any = "percent", **keys: str) -> PrintedCell:
    place = {"dataset": "d", "setting": "one", "metric": "acc", "table": "1", "item": "table_1"}
    return PrintedCell(
        **place | keys, system="s", method=method, mean=70.0, std=1.0, text="70.0", decimals=1,
        doubt="", kind=PrintedMetric(unit=unit),
    )  # fmt: skip


def result(method: str, values: dict[int, float | None], setting: str = "s/one") -> Result:
    runs = tuple(
        CellRun(method, seed, "finished", "", value, False, (), "", None)
        for seed, value in values.items()
    )
    there = [value for value in values.values() if value is not None]
    estimate = Estimate.of(there) if there else Estimate(0, 0.0, None, None)
    return Result(
        setting, (method,), method if there else None, {}, runs, None, "", estimate.n,
        estimate.mean, estimate.std, estimate.half_width,
    )  # fmt: skip


def bench(*stand_ins: str, root: Path = Path()) -> Any:
    return SimpleNamespace(root=root, surrogate_for=lambda setting: setting in stand_ins)


# --- the authors' seeds and splits ----------------------------------------------------------------
A, B, C = (
    dict(zip(SEEDS, values, strict=True))
    for values in ((70.0, 71.0, 73.5), (60.0, 62.0, 61.0), (50.0, 50.5, 54.0))
)
OF_A = Paired.of([*A.values()], [[*B.values()], [*C.values()]], 0.05)


@pytest.mark.parametrize(
    ("cell", "other", "values", "others"),
    [
        (printed("D"), "d", {5: 80.0, 1: 80.0, 3: 99.0}, 3),
        (printed("D"), "d", {5: 80.0, 4: None, 1: 80.0, 3: 99.0}, 3),
        (printed("D"), "d", {5: 80.0, 1: 80.0}, 2),  # a seed is missing
        (printed("D"), "d", {5: 80.0, 1: 80.0, 3: None}, 2),
        (printed("D"), "d", {5: 80.0, 1: 80.0, 3: 99.0, 4: 1.0}, 2),  # one is not theirs
        (printed("D", dataset="e"), "d", {5: 80.0, 1: 80.0, 3: 99.0}, 2),  # nor are the splits
        (printed("D", setting="two"), "d", {5: 80.0, 1: 80.0, 3: 99.0}, 2),  # another row
        (printed("D", metric="loss"), "d", {5: 80.0, 1: 80.0, 3: 99.0}, 2),
        (printed("D"), "d@released", {5: 80.0, 1: 80.0, 3: 99.0}, 2),  # another reading
        (None, "d", {5: 80.0, 1: 80.0, 3: 99.0}, 2),
        (printed("D"), "d", {5: 70.04, 1: 71.0, 3: 73.46}, 2),  # a twin
    ],
)
def test_a_method_is_paired_with_those_of_its_row_on_the_authors_seeds(
    cell: PrintedCell | None, other: str, values: dict[int, float | None], others: int
) -> None:
    cells = [printed("A"), printed("B"), cell, printed("C")]
    results = [result("a", {**A}), result("b", {**B}), result(other, values), result("c", {**C})]
    found = paired_spreads(bench(), cells, results, PAPERS)
    assert found[0].others == others and (found[0] == OF_A) == (others == 2)
    assert (2 in found) == (others == 3 or 70.04 in values.values())
    without = paired_spreads(bench("s/two"), cells, [*results[:2], result(
        other, values, "s/two"), results[3]], PAPERS)  # fmt: skip
    assert without[0] == OF_A and 2 not in without


def test_nothing_is_paired_on_other_data_or_without_the_authors_seeds() -> None:
    results = [result("a", {**A}), result("b", {**B})]
    elsewhere = [printed(name, dataset="e") for name in "AB"]
    assert paired_spreads(bench(), elsewhere, results, PAPERS) == {}
    unknown = SPREAD.model_copy(update={"own_splits": None})
    system = PAPERS.systems["s"].model_copy(update={"spread": unknown})
    cells = [printed(name) for name in "AB"]
    assert {*paired_spreads(bench(), cells, results, PAPERS)} == {0, 1}
    assert paired_spreads(bench(), cells, results, Published(systems={"s": system})) == {}


@pytest.mark.parametrize(("apart", "others"), [(0.0004, 1), (0.0006, 2)])
def test_twins_are_told_by_the_unit_that_is_printed(apart: float, others: int) -> None:
    scaled = [{seed: value / 100 for seed, value in values.items()} for values in (A, B, B)]
    scaled[2][3] += apart
    cells = [printed(name, "fraction") for name in "ABC"]
    results = [result(name, {**values}) for name, values in zip("abc", scaled, strict=True)]
    assert paired_spreads(bench(), cells, results, PAPERS)[0].others == others


# --- a spread of another row ----------------------------------------------------------------------
def target(columns: list[Any], series: list[tuple[int, float]], **summary: Any) -> Any:
    """A table whose cells are in these columns, a row each, and whose runs have this curve."""
    quantity = SimpleNamespace(series=lambda record: series, of_a_run=False)
    metric = SimpleNamespace(quantity=quantity)
    number: dict[str, Any] = {"metric": metric, "summary": Summary(**summary)}
    cells = [
        SimpleNamespace(row=SimpleNamespace(label=f"row {at}"), column=column, **number)
        for at, column in enumerate(columns)
    ]
    return SimpleNamespace(cells=cells)


@pytest.fixture(autouse=True)
def _finished(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(root: Path, run: RunKey) -> RunRecord:
        return RunRecord(root, run, run.folder, False, "finished")

    monkeypatch.setattr(cell_verdict, "find_run", find)


FIRST, SECOND = SimpleNamespace(label="first"), SimpleNamespace(label="second")
FLAT = [(each, 70.0) for each in range(1, 9)]


def lent(curve: list[tuple[int, float]], root: Path, *rows: Any, **summary: Any) -> Any:
    """What the first row's one seed borrows of further rows: column, cell and result of each."""
    columns, cells, results = zip((FIRST, printed("A"), result("a", {1: 70.0})), *rows, strict=True)
    world = bench("s/stand-in", root=root)
    return borrowed_spreads(world, target([*columns], curve, **summary), cells, results)


def other(std: float, seeds: int, setting: str = "s/two") -> Result:
    values = [70.0 - std, 70.0 + std, *[70.0] * (seeds - 2)]
    scale = std / (Estimate.of(values).std or 1.0)
    return result(
        "a", {at: 70.0 + scale * (each - 70.0) for at, each in enumerate(values)}, setting
    )


def test_the_widest_spread_is_lent_by_rows_of_the_column_and_data(tmp_path: Path) -> None:
    """By the limit that it makes: of .5 over two seeds more than of .8 over five."""
    row = (FIRST, printed("A", setting="two"), other(0.8, 5))
    for lender in (
        (SECOND, printed("A", setting="two"), other(9.0, 2)),
        (FIRST, printed("A", setting="two", dataset="e"), other(9.0, 2)),
        (FIRST, printed("A", setting="two", metric="loss"), other(9.0, 2)),
        (FIRST, None, other(9.0, 2)),
        (FIRST, printed("A", setting="two"), other(9.0, 2, "s/one")),
        (FIRST, printed("A", setting="two"), other(9.0, 2, "s/stand-in")),
        (FIRST, printed("A", setting="two"), result("a", {1: 70.0, 2: 70.0}, "s/two")),
    ):
        alone = lent(FLAT, tmp_path, lender)
        assert alone == {}
        both = lent(FLAT, tmp_path, lender, row)[0]
        assert (both.std, both.degrees) == (pytest.approx(0.8), 4) and "row 2" in both.source
    wide = (FIRST, printed("A", setting="two"), other(0.5, 2))
    for rows in ((row, wide), (wide, row)):
        found = lent(FLAT, tmp_path, *rows)
        assert {*found} == {0} and found[0].std == pytest.approx(0.5)
    # Several seeds have a spread of their own, and none has nothing to compare.
    for values in ({1: 70.0, 2: 71.0}, {1: None}):
        rows = ((FIRST, printed("A", setting="two"), result("a", values, "s/three")), row)
        assert {*lent(FLAT, tmp_path, *rows)} == {0}
    unprinted = (FIRST, None, result("a", {1: 70.0}, "s/three"))
    assert {*lent(FLAT, tmp_path, unprinted, row)} == {0}


@pytest.mark.parametrize(
    ("curve", "summary", "values"),
    [
        ([0, 90, 60, 90, 60, 70, 70], {}, [60, 90, 60, 70, 70]),  # five rounds
        ([0, 90, 60, 90, 60, 70, 70], {"rounds": 6}, [90, 60, 90, 60, 70, 70]),  # or those averaged
        ([0, 90, 60, 90, 60, 70, 70], {"up_to": 4}, [0, 90, 60, 90]),
        ([60, 90, 75], {}, [60, 90, 75]),
        ([60, 90], {}, None),  # too few
        ([60, 90, math.nan, 80], {}, [60, 90, 80]),
        ([70, 70, 70, 71], {}, None),  # less than what is lent
    ],
)
def test_rounds_that_scatter_more_than_seeds_are_the_wider_spread(
    tmp_path: Path, curve: list[float], summary: dict[str, int], values: list[float] | None
) -> None:
    row = (FIRST, printed("A", setting="two"), other(0.8, 5))
    found = lent([*enumerate(map(float, curve), 1)], tmp_path, row, **summary)[0]
    if values is None:
        assert found.std == pytest.approx(0.8)
    else:
        std = Estimate.of(values).std
        assert (found.std, found.degrees) == (pytest.approx(std), len(values) - 1)
    # They do not stand in for other seeds.
    assert lent([*enumerate(map(float, curve), 1)], tmp_path, **summary) == {}


def test_a_borrowed_limit_is_of_two_single_draws() -> None:
    assert Borrowed(0.5, 4, "x").limit == pytest.approx(2.776445 * 0.5 * math.sqrt(2))


# --- the rounds that count ------------------------------------------------------------------------
def test_the_last_evaluated_rounds_count_up_to_the_last_one_that_does() -> None:
    curve = [(2, 10.0), (4, 20.0), (6, 60.0), (8, math.nan)]
    assert until(curve, None) == curve
    assert until(curve, 6) == curve[:3] and until(curve, 5) == curve[:2] and until(curve, 1) == []
    assert (last(curve[:3], 2), last(curve[:3], 1), last(curve[:3], 9)) == (40.0, 60.0, 30.0)
    assert last(curve, 2) is None and last([], 1) is None
    assert [bool(fewer(curve, rounds)) for rounds in (3, 4, 5)] == [False, False, True]
