"""What a table's page and the list of coverage count and say, over made-up cells of every kind."""

import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedrepro.config.tables import Summary
from fedrepro.config.targets import RunKey
from fedrepro.report.cells import coverage
from fedrepro.report.cells.cell import (
    CellRun,
    ComputedTable,
    Result,
    TableCell,
    TableColumn,
    TableRow,
    kinds_of_machine,
)
from fedrepro.report.pages import overview
from fedrepro.report.pages import table as page
from fedrepro.report.pages.templates import TEMPLATES, environment
from fedrepro.report.papers.published import Printed
from fedrepro.report.papers.verdict import Verdict
from support.places import ROOT

WORDS = ("agrees", "undecided", "differs", "not comparable")
BASES = (None, "joint", "draw", "borrowed", "paired", "not comparable")


def run_of(seed: int = 1, **about: Any) -> CellRun:
    told = {"method": "m", "state": "finished", "why": "", "value": 1.0, "reference": False}
    told |= {"changed": (), "folder": "", "page": f"runs/{seed}.html"}
    return CellRun(seed=seed, **(told | about))


def result_of(setting: str = "s/a", n: int = 1, runs: tuple[CellRun, ...] = ()) -> Result:
    runs = runs or (run_of(),)
    mean = 1.0 if n else None
    return Result(setting, ("m",), "m" if n else None, {}, runs, None, "", n, mean, None, None)


def printed(name: str, method: str = "M") -> Printed:
    return Printed("D", name, method, "acc", 1.0, None, "1.0", 1, "")


def cell(place: tuple[int, int] = (0, 0), **about: Any) -> TableCell:
    told = {"printed": None, "result": result_of(), "demo": None, "selection": ""}
    told |= {"difference": None, "verdict": None}
    return TableCell(*place, **(told | about))


def some_cells(seed: int) -> list[TableCell]:
    """Cells that share printed numbers, with and without a number, a verdict and a surrogate."""
    rnd = random.Random(seed)
    made = []
    for at in range(40):
        name = rnd.choice(["", *(f"p{number}" for number in range(12))])
        n = rnd.choice([0, 1, 3])
        word = rnd.choice([*WORDS, ""])
        made.append(
            cell(
                divmod(at, 4),
                printed=printed(name) if name else None,
                result=result_of(n=n),
                demo=rnd.choice([None, result_of("s/demo", 0), result_of("s/demo", 2)]),
                verdict=Verdict(word, "", basis=rnd.choice(BASES)) if word else None,
                surrogate_for=rnd.choice(["", "", "other"]),
            )
        )
    return made


@pytest.mark.parametrize("seed", range(5))
def test_the_counts_of_a_page_are_of_the_first_answer_to_each_printed_cell(seed: int) -> None:
    cells = some_cells(seed)
    first: list[TableCell] = []
    for each in cells:
        same = [
            other
            for other in first
            if each.printed and other.printed == each.printed
            and other.surrogate_for == each.surrogate_for
        ]  # fmt: skip
        if not same:
            first.append(each)
    own = [each for each in first if not (each.printed and each.surrogate_for)]
    told = page._counts(cells)
    assert told["printed"] == len({each.printed for each in own if each.printed})
    assert told["computed"] == len([each for each in own if each.result.n])
    assert told["demo"] == len([each for each in first if each.demo and each.demo.n])
    for key, word in zip(("agree", "undecided", "differ", "not_comparable"), WORDS, strict=True):
        having = [each for each in own if each.verdict and each.verdict.word == word]
        assert told[key] == len([each for each in having if each.result.n])
    rest = [each for each in cells if not any(each is one for one in first)]
    more = [each for each in rest if each.printed and not each.surrogate_for and each.verdict]
    assert page._further(cells) == Counter(each.verdict.word for each in more)
    # A false verdict in at most 5 or 6 % of tests of difference, half as many of equivalence.
    bases = Counter(each.verdict.basis for each in cells if each.verdict)
    usual = sum(bases[each] for each in ("draw", "borrowed", "paired"))
    tested = page._tested(cells)
    assert tested["verdicts"] == usual + bases["joint"]
    assert tested["differs"] == pytest.approx(0.05 * usual + 0.06 * bases["joint"])
    assert tested["agrees"] == pytest.approx(0.025 * usual + 0.03 * bases["joint"])
    assert page._tested([]) == {"verdicts": 0, "differs": 0, "agrees": 0}


def test_packages_and_machines_are_told_where_numbers_differ_in_them() -> None:
    def of(*made_on: str, value: float | None = 1.0) -> TableCell:
        runs = tuple(run_of(at, made_on=each, value=value) for at, each in enumerate(made_on))
        return cell(result=result_of(runs=runs))

    one = "fedrepro 2, torch 2.1, numpy 2, x86_64, cpu a"
    two = "fedrepro 2, torch 2.1, numpy 1, x86_64, cpu b"
    assert kinds_of_machine([of(one), of(one.replace("fedrepro 2", "fedrepro 1"))]) == []
    assert kinds_of_machine([of(one, one), of(one)]) == []
    assert kinds_of_machine([of(one), of("")]) == []
    assert kinds_of_machine([of(one), of(two, value=None)]) == []
    assert kinds_of_machine([of(one, two)]) == kinds_of_machine([of(one), of(two)]) == [
        "numpy 1, cpu b", "numpy 2, cpu a"
    ]  # fmt: skip
    rival = replace(result_of(runs=(run_of(made_on=one), run_of(method="x", made_on=two))))
    assert kinds_of_machine([cell(result=rival)]) == []  # of the chosen method only
    demo = cell(result=of(one).result, demo=of(two).result)
    assert len(kinds_of_machine([demo])) == 2


def test_each_run_of_another_class_counts_once() -> None:
    odd = run_of(1, arithmetic="stacked"), run_of(2, arithmetic="stacked"), run_of(3)
    other = result_of("s/b", runs=(run_of(1, arithmetic="2 threads"),))
    cells = (cell(result=result_of(runs=odd)), cell(result=result_of(runs=odd[:1]), demo=other))
    table = replace(table_of(["M"], [[""]]), cells=cells)
    assert page._other_arithmetic(table) == {"stacked": 2, "2 threads": 1}
    assert page._other_arithmetic(replace(table, cells=(cell(),))) == {}


def test_cells_of_a_row_are_alike_if_other_published_runs_share_a_demo() -> None:
    demo, other = result_of("s/demo"), result_of("s/demo", runs=(run_of(2),))
    a, b = result_of("s/a"), result_of("s/b")
    assert not page._alike([cell((0, 0), result=a), cell((0, 1), result=b)])
    assert page._alike([cell((0, 0), result=a, demo=demo), cell((0, 1), result=b, demo=demo)])
    assert not page._alike([cell((0, 0), result=a, demo=demo), cell((1, 0), result=b, demo=demo)])
    assert not page._alike([cell((0, 0), result=a, demo=demo), cell((0, 1), result=b, demo=other)])
    assert not page._alike([cell((0, 0), result=a, demo=demo), cell((0, 1), result=a, demo=demo)])


def bench_of(**methods: tuple[str, dict[str, Any]]) -> Any:
    """A workbench whose methods have these compositions and values."""
    datasets = {"d": SimpleNamespace(title="Data"), "e": SimpleNamespace(title="Other data")}
    return SimpleNamespace(
        composition_of=lambda _, method: methods[method], datasets=datasets,
        setting=lambda name: SimpleNamespace(
            dataset="e" if name.endswith("other") else "d", note=f"note of {name}", name=name
        ),
    )  # fmt: skip


def test_a_cell_is_computed_as_the_method_that_was_chosen() -> None:
    """By its own commands and its own setting, which a run with a page or a number has."""
    bench = bench_of(a=("fedavg", {}), b=("ima+fedprox", {"ima": {"window": 5}, "fedprox": {}}))
    runs = (
        run_of(3, method="a"), run_of(4, method="b", page=None, value=None),
        run_of(2, method="b", page=None), run_of(1, method="b", page="runs/x.html"),
    )  # fmt: skip
    result = replace(result_of(runs=runs), methods=("a", "b"), chosen="b")
    table = table_of(["M"], [[""]])
    how = page._how(bench, table, result)
    assert (how.composition, how.hyperparameters) == ("ima+fedprox", [("ima.window", 5)])
    assert [command.split()[2:] for command in how.commands] == [
        ["s/a", "b", "--seed", str(seed)] for seed in (1, 2, 4)
    ]  # fmt: skip
    assert how.setting == "s/t/a/b.yaml"
    how = page._how(bench, table, replace(result, runs=(*runs[:2], runs[3])))
    assert how.setting == "runs/x/setting.yaml"
    none = page._how(bench, table, replace(result, chosen=None, runs=runs[:2]))
    assert (none.composition, len(none.commands)) == ("fedavg", 1)
    assert page._how(bench, table, replace(result, runs=runs[1:2])).setting is None


def test_rows_of_a_demo_stand_once_for_all_that_have_its_numbers() -> None:
    """Not for those of another metric, unit or number; without a demo they stand nowhere."""
    one, other = result_of("s/demo"), result_of("s/other", 3)
    more = replace(one, mean=9.0)
    rows = [
        ("A", "accuracy", "%", (one, None)), ("B", "accuracy", "%", (one, None)),
        ("C", "loss", "%", (one, None)), ("D", "accuracy", "", (one, None)),
        ("E", "accuracy", "%", (None, one)), ("F", "accuracy", "%", (None, None)),
        ("G", "accuracy", "%", (other, None)), ("H", "accuracy", "%", (more, None)),
        ("I", "accuracy", "%", (one, None)),
    ]  # fmt: skip
    cells = [
        cell((at, column), demo=demo)
        for at, (*_, demos) in enumerate(rows)
        for column, demo in enumerate(demos)
    ]
    table = replace(
        table_of(["M", "N"], []),
        rows=tuple(TableRow(label, metric, unit, "s/a", None) for label, metric, unit, _ in rows),
        cells=tuple(cells),
    )
    found = page._demo_rows(bench_of(), table)
    assert [row.labels for row in found] == [["A", "B", "I"], *(["CDEGH"[at]] for at in range(5))]
    assert [row.data for row in found] == ["Data"] * 4 + ["Other data", "Data"]
    assert [row.setting for row in found] == ["demo"] * 4 + ["other", "demo"]
    assert [row.metric for row in found[:2]] == ["accuracy", "loss"]
    assert found[0].cells == tuple(cells[:2])


def test_a_demo_s_runs_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all rows whose runs are among them."""

    def demo(*seeds: int) -> Result:
        return result_of("s/demo", runs=tuple(run_of(seed) for seed in seeds))

    demos = [demo(1, 2), demo(1), demo(1, 3), None, demo(2, 1)]
    cells = tuple(cell((at, 0), demo=each) for at, each in enumerate(demos))
    table = replace(table_of(["M"], [[""]] * 5), cells=cells)
    asked: list[tuple[int, str]] = []

    def scene(_: Any, target: Any, cells: Any, scale: str) -> Any:
        asked.append((cells[0].row, scale))
        return SimpleNamespace(setting=f"s/{cells[0].row}") if cells[0].demo else None

    monkeypatch.setattr(page.row_figures, "scene_of", scene)
    stages = page._stages(bench_of(), None, table)  # type: ignore[arg-type]
    assert [stage.labels for stage in stages] == [["r0", "r1", "r4"], ["r2"]]
    assert [stage.note for stage in stages] == ["note of s/0", "note of s/2"]
    assert asked == [(0, "demo"), (2, "demo"), (3, "demo")]


def test_a_row_whose_runs_stand_above_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only if all of them do, with a page; and each row has its own cells and best."""
    papers = [
        result_of("s/a", runs=tuple(run_of(seed, page=pages) for seed in seeds))
        for seeds, pages in (((1, 2), "x"), ((1,), "x"), ((1, 3), "x"), ((4,), None), ((5,), None))
    ]
    cells = tuple(cell((at, 0), result=paper) for at, paper in enumerate(papers))
    table = replace(table_of(["M"], [[""]] * 5), cells=cells)
    for name in ("_wanted", "_note", "_how", "about_setting"):
        monkeypatch.setattr(page, name, lambda *_: ())
    monkeypatch.setattr(page.row_figures, "scene_of", lambda *asked: (asked[2][0].row, asked[3]))
    bench: Any = SimpleNamespace(root=Path())

    def metric_of(row: int) -> Any:
        return SimpleNamespace(quantity=SimpleNamespace(of_a_run=row))

    target: Any = SimpleNamespace(table=SimpleNamespace(rows=range(5), metric_of=metric_of))
    rows = page._rows(bench, target, table, "ABCDE")  # type: ignore[arg-type]
    assert [row.curve for row in rows] == [True, False, False, False, False]
    assert [row.above and row.above.anchor for row in rows] == [None, "row-1", None, None, None]
    scenes = [(at, "paper") for at in range(5)]
    assert [row.scene for row in rows] == [scenes[0], None, *scenes[2:]]
    assert [row.best for row in rows] == [*"ABCDE"] and [row.cells for row in rows] == [
        (each,) for each in cells
    ]
    assert [len(row.runs) for row in rows] == [2, 1, 2, 0, 0]


def test_a_cell_s_note_tells_how_it_differs_from_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[Any] = []
    monkeypatch.setattr(page, "is_of_shared_model", lambda *asked: shared.append(asked) or False)
    quantity = SimpleNamespace(words="the loss", unit="nats", mixture="at a half")
    metric = SimpleNamespace(quantity=quantity)
    spec = SimpleNamespace(
        rows=["row"], columns=[SimpleNamespace(metric=None), SimpleNamespace(metric=metric)],
        metric_of=lambda row, column=None: (row, column and column.metric),
    )  # fmt: skip
    target: Any = SimpleNamespace(table=spec)
    row = TableRow("r", "accuracy", "%", "s/a", "s/demo")

    def note(column: int, *results: Result) -> str:
        paper, demo = (*results, None)[:2]
        return page._note(bench_of(), target, row, cell((0, column), result=paper, demo=demo))

    assert note(0, result_of("s/a"), result_of("s/demo")) == ""
    assert note(1, result_of("s/a")).split(", ") == ["the loss", "nats", "at a half"]
    both = note(0, result_of("s/b"), result_of("s/a"))
    assert both.count(";") == 1 and "s/b" in both.split(";")[0] and "s/a" in both.split(";")[1]
    assert shared[1][1:] == (("row", metric), "s/a", ("m",))
    monkeypatch.setattr(page, "is_of_shared_model", lambda *_: True)
    assert note(0, result_of("s/a")) != ""


def test_a_summary_has_its_rounds() -> None:
    macros: Any = environment(ROOT / TEMPLATES).get_template("macros.html.j2").module
    numbers = [re.findall(r"\d+", macros.rounds(*about)) for about in
               ((3, 40), (2, None), (1, 7), (1, None))]  # fmt: skip
    assert numbers == [["3", "40"], ["2"], ["7"], []]


def test_columns_name_the_parts_of_their_first_method() -> None:
    bench = bench_of(a=("ima+fedprox@released", {}), b=("fedavg", {}))
    columns = [
        SimpleNamespace(label="A", methods_at=lambda scale: ("a",) if scale == "demo" else ("b",)),
        SimpleNamespace(label="B", methods_at=lambda scale: ("b", "a")),
    ]
    target: Any = SimpleNamespace(
        table=SimpleNamespace(columns=columns), cells=[SimpleNamespace(setting="s/a")], scale="demo"
    )
    assert page._methods(bench, target) == [
        {"label": "A", "parts": ["ima", "fedprox"]}, {"label": "B", "parts": ["fedavg"]}
    ]  # fmt: skip


def test_a_row_s_landed_files_are_those_of_all_its_settings(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        folder = tmp_path / f"reports/papers/s/compact/{name}"
        folder.mkdir(parents=True)
        (folder / "rounds.parquet").touch()
    cells = [cell(result=result_of(f"s/{name}")) for name in ("b", "a", "b", "gone")]
    assert page._landed(tmp_path, cells) == tuple(
        f"s/compact/{name}/rounds.parquet" for name in ("a", "b")
    )


def table_of(labels: list[str], names: list[list[str]]) -> ComputedTable:
    """A table whose columns answer printed cells, given as "method row"; "" for none."""
    cells = [
        cell((row, column), printed=printed(name.split()[1], name.split()[0]) if name else None)
        for row, line in enumerate(names)
        for column, name in enumerate(line)
    ]
    rows = tuple(TableRow(f"r{at}", "accuracy", "%", "s/a", None) for at in range(len(names)))
    columns = tuple(map(TableColumn, labels))
    return ComputedTable("s", "t", "paper", "T", "1", Summary(), rows, columns, tuple(cells))


def test_a_paper_s_methods_come_first_and_further_readings_are_folded() -> None:
    labels = ["Avg", "Own", "Own as released", "Avg + P", "Other", "Half"]
    names = [
        ["Avg 1", "Own 1", "Own 1", "Avg+P 1", "Other 1", "Half 1"],
        ["Avg 2", "Own 2", "Own 2", "Avg+P 2", "Other 2", "Other 2"],
    ]
    table = table_of(labels, names)
    assert page.order_of(table, ["Own"]) == ({1, 2}, [1, 0, 3, 4, 5], [2])
    # A plug-in stays beside the method that it wraps.
    assert page.order_of(table, ["+P"]) == ({3}, [0, 1, 3, 4, 5], [2])
    assert page.order_of(table, ["Other", "+P"]) == ({3, 4}, [4, 0, 1, 3, 5], [2])
    assert page.order_of(table, []) == (set(), [0, 1, 3, 4, 5], [2])
    # Without printed numbers, by the label.
    plain = table_of(["Avg", "Own", "Avg + P"], [["", "", ""]])
    assert page.order_of(plain, ["Own", "+P"]) == ({1, 2}, [1, 0, 2], [])


@pytest.mark.parametrize(
    ("rounds", "stop", "words"),
    [([5, 5], False, "4 runs of 5 rounds"), ([5, 2000], False, "4 runs of 5 to 2,000 rounds"),
     ([5, 5], True, "4 runs of at most 5 rounds")],
)  # fmt: skip
def test_a_row_without_a_result_says_what_it_takes(
    rounds: list[int], stop: bool, words: str
) -> None:
    def setting(name: str) -> SimpleNamespace:
        return SimpleNamespace(rounds=rounds[name == "s/b"], stop=stop and name == "s/b")

    bench: Any = SimpleNamespace(setting=setting)
    left = tuple(run_of(seed, state="not run", value=None) for seed in (1, 2))
    cells = [cell(result=result_of(name, 0, left)) for name in ("s/a", "s/b", "s/b")]
    assert page._wanted(bench, cells) == words
    assert page._wanted(bench, [cell(result=result_of("s/a", 0, left[:1]))]).startswith("1 run of ")
    failed = result_of("s/a", 0, (left[0], run_of(2, state="failed", value=None)))
    assert page._wanted(bench, [*cells, cell(result=failed)]) == ""


# --- coverage -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("has_value", "word", "basis", "counted"),
    [
        (False, "not comparable", None, {}),
        (True, None, None, {}),
        (True, "agrees", "draw", {"agree": 1}),
        (True, "undecided", "draw", {"undecided": 1}),
        (True, "differs", "joint", {"differ": 1}),
        (True, "not comparable", None, {"not_comparable": 1}),
        (True, "agrees", "arithmetic", {"arithmetic_agree": 1}),
        (True, "differs", "arithmetic", {"arithmetic_differ": 1}),
    ],
)
def test_a_printed_cell_counts_by_its_verdict_if_it_has_a_number(
    has_value: bool, word: Any, basis: Any, counted: dict[str, int]
) -> None:
    verdict = Verdict(word, "", basis=basis) if word else None
    wanted = {"targets": 1, "computed": int(has_value), **counted}
    assert coverage.counts_of(has_value, verdict) == wanted


def test_sums_leave_out_further_readings_of_the_same_cells() -> None:
    """Rows of a system: its printed tables, what repeats them, their sum, and other readings."""
    tables = {("a", "table_1"): (), ("a", "table_2"): (), ("b", "table_1"): (), ("a", "empty"): ()}
    papers: Any = SimpleNamespace(systems={"a": 0, "b": 0}, tables=tables)
    counts: dict[tuple[str, str], Counter[str]] = {
        ("a", "table_1"): Counter(printed=5, targets=4, computed=3, agree=2),
        ("a", "table_2"): Counter(printed=7, targets=7, computed=1, differ=1),
        ("b", "table_1"): Counter(printed=2, targets=1, computed=1, arithmetic_agree=1),
        ("a", "table_1_released"): Counter(printed=5, targets=5, computed=5, agree=5),
        ("a", "empty"): Counter(),
    }
    readings = {
        "released": {"a": Counter(printed=3, computed=2), "b": Counter(printed=1)},
        "any": {"a": Counter(printed=9)},
    }
    rows = coverage.rows_of(counts, papers, readings)
    shown = [
        (row["system"], row["table"], row["printed"], row["targets"], row["computed"], row["agree"])
        for row in rows
    ]
    assert shown == [
        ("a", "table_1", 5, 4, 3, 2),
        ("a", "table_2", 7, 7, 1, 0),
        ("a", "table_1_released", 5, 5, 5, 5),
        ("a", "all", 12, 11, 4, 2),
        ("a", "released", 3, 0, 2, 0),
        ("a", "any", 9, 0, 0, 0),
        ("b", "table_1", 2, 1, 1, 0),
        ("b", "all", 2, 1, 1, 0),
        ("b", "released", 1, 0, 0, 0),
        ("all", "all", 14, 12, 5, 2),
        ("all", "released", 4, 0, 2, 0),
        ("all", "any", 9, 0, 0, 0),
    ]
    assert rows[9]["differ"] == rows[9]["arithmetic_agree"] == 1


def test_a_run_of_a_compact_table_counts_once_and_with_any_number() -> None:
    runs = (run_of(1, value=0.0), run_of(2, value=None), run_of(3, value=0.5), run_of(9, value=1.0))
    cells = (cell((0, 0), result=result_of("s/a", 3, runs)), cell((0, 1), result=result_of("s/b")))
    again = (cell((0, 2), result=result_of("s/a", 3, runs)),)
    rows, columns = (TableRow("r", "accuracy", "%", "s/a", None),), (TableColumn("c"),)
    table = ComputedTable(
        "s", "t", "compact", "T", None, Summary(), rows, columns, (*cells, *again)
    )
    asked = tuple(RunKey(f"s/{name}", "m", seed) for name in "ab" for seed in (1, 2, 3))
    target: Any = SimpleNamespace(scale="compact", runs=asked)
    none: Any = None
    assert overview._progress_of(none, target, table) == (3, 6)
    assert overview._progress_of(none, target, None) == (0, 6)
    assert (
        overview._progress_of(none, SimpleNamespace(**vars(target) | {"scale": "paper"}), table)
        is None
    )
