"""The runs and files behind every kind of table and figure at every scale, written down by hand."""

from pathlib import Path
from typing import Any

import pytest

from fedrepro.config.loading import load
from fedrepro.config.settings import Setting, Stop
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from support.refusals import refused
from support.search_world import EXPERIMENT, settle

S = EXPERIMENT["settings"]["s"]
SETTINGS = ("t", "other", "s-x", "small", "small-x", "tiny")
COLUMNS = [{"label": "One", "method": "fedavg"}, {"label": "Two", "method": "fedprox"}]
TABLES: dict[str, Any] = {
    "table_1": {
        "title": "Instead",
        "seeds": {"demo": [4], "paper": [2, 9]},
        "column_settings": {"B": "other"},
        "rows": [
            {
                "label": "r", "setting": "s", "demo": "small", "column_settings": {"C": "*-x"},
                "demo_instead": {"D": "tiny"},
            },
            {"label": "q", "setting": "t", "wrapper": "ima"},
        ],
        "columns": [
            {"label": "A", "method": "fedavg"},
            {"label": "B", "method": ["fedprox", "scaffold"]},
            {"label": "C", "method": "fedavg", "demo": "fedprox"},
            {"label": "D", "method": "fedavg", "wrapper": "topk"},
        ],
    },
    "table_2": {
        "title": "A ratio",
        "metric": {"rounds_to": 50, "speed_up": True},
        "rows": [{"label": "r", "setting": "s", "wrapper": "ima"}],
        "columns": [{"label": "A", "method": ["fedavg", "fedprox"]}],
    },
    "table_3": {
        "title": "Some judged",
        "metric": {"of": "accuracy", "over_clients": "worst"},
        "rows": [
            {"label": "r", "setting": "s", "metric": "loss"}, {"label": "q", "setting": "t"},
        ],
        "columns": [
            {"label": "A", "method": "fedavg", "metric": {"quality": "accuracy"}},
            {"label": "B", "method": ["fedprox"], "mix": "best"},
            {"label": "C", "method": ["fedavg", "scaffold"], "metric": {"quality": "stand_in"}},
        ],
    },
}  # fmt: skip
FIGURES: dict[str, Any] = {
    "curves": {
        "kind": "lines", "title": "Lines", "columns": COLUMNS, "column_settings": {"Two": "other"},
        "rows": [
            {"label": "a", "setting": "s", "demo": "small"},
            {"label": "b", "setting": "t", "metric": "loss"},
        ],
    },
    "sheets": {
        "kind": "sheets", "title": "Sheets", "columns": COLUMNS,
        "column_settings": {"Two": "other"},
        "panels": [{"label": "a", "setting": "s", "demo": "small"}, {"label": "b", "setting": "t"}],
    },
    "regrets": {
        "kind": "regret", "title": "Regrets", "method": "fedavg",
        "panels": [{"label": "a", "setting": "s", "demo": "small"}, {"label": "b", "setting": "t"}],
    },
    "terms": {
        "kind": "decomposition", "title": "Terms", "method": "fedavg", "samples": 70,
        "show": [["loss"]], "panels": [{"label": "a", "setting": "s", "demo": "small"}],
    },
    "energies": {"kind": "shares", "title": "Energies"},
    "map": {
        "kind": "heat_map", "title": "Map", "setting": "s", "demo": "small",
        "x": {"label": "x", "values": [1, 2, 3]}, "y": {"label": "y", "values": [1, 2, 3]},
        "panels": [
            {
                "label": "p",
                "methods": [[f"fedprox_mu{row}.{at}" for at in range(3)] for row in range(3)],
            }
        ],
    },
    "hills": {
        "kind": "landscape", "title": "Hills", "setting": "s", "demo": "small", "columns": COLUMNS,
    },
    "shares": {
        "kind": "partitions", "title": "Shares",
        "panels": [
            {"label": "a", "setting": "s", "demo": "small"}, {"label": "b", "setting": "t"},
            {"label": "c", "setting": "t"},
        ],
    },
    "plane": {
        "kind": "planes", "title": "Plane", "grid": {"points": 5, "samples": 10},
        "demo_grid": {"points": 3, "samples": 4},
        "panels": [
            {
                "label": "a", "setting": "s", "demo": "small", "method": "fedavg",
                "through": ["2.1", "2.2", "last"], "demo_through": ["1.1", "1.2", "last"],
            },
            {"label": "b", "setting": "t", "method": "fedavg", "through": ["1", "2", "last"]},
        ],
    },
    "line": {
        "kind": "segments", "title": "Line", "grid": {"points": 5, "samples": 10},
        "panels": [{"label": "a", "setting": "s", "method": "fedavg", "through": ["1", "last"]}],
    },
    "trend": {
        "kind": "trend", "title": "Trend", "lines": ["one", "two"],
        "panels": [
            {
                "label": "p", "x": "x",
                "points": [
                    {"at": 1, "setting": "s", "demo": "small", "methods": ["fedavg", "fedprox"]},
                    {"at": 2, "setting": "t", "methods": ["fedavg", "scaffold"]},
                ],
            }
        ],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    settings = {"s": S} | {name: {"extends": "s"} for name in SETTINGS}
    root = settle(
        tmp_path_factory.mktemp("targets"), settings=settings, tables=TABLES, figures=FIGURES,
        computed={kind: {"kind": kind, "title": "C"} for kind in ("costs", "responses")},
        seeds={"demo": [1], "paper": [1, 2, 3]},
    )  # fmt: skip
    return load(root)


def cells(bench: Workbench, item: str, scale: str) -> list[tuple[str, ...]]:
    """The setting of each cell, without its system, and its methods."""
    target = bench.table("own", item, scale)
    return [(cell.setting.removeprefix("own/"), *cell.methods) for cell in target.cells]


def test_a_table_s_cells_have_the_settings_and_methods_of_the_scale(bench: Workbench) -> None:
    """What replaces a row's setting in a column replaces its demo only with a star, or by name."""
    second = [
        ("t", "ima+fedavg"), ("other", "ima+fedprox", "ima+scaffold"), ("t", "ima+fedavg"),
        ("t", "ima+topk+fedavg"),
    ]  # fmt: skip
    assert cells(bench, "table_1", "paper") == [
        ("s", "fedavg"), ("other", "fedprox", "scaffold"), ("s-x", "fedavg"), ("s", "topk+fedavg"),
        *second,
    ]  # fmt: skip
    second[2] = ("t", "ima+fedprox")
    assert cells(bench, "table_1", "demo") == [
        ("small", "fedavg"), ("small", "fedprox", "scaffold"), ("small-x", "fedprox"),
        ("tiny", "topk+fedavg"), *second,
    ]  # fmt: skip


@pytest.mark.parametrize(("scale", "seeds"), [("paper", [2, 9]), ("demo", [4])])
def test_a_table_s_runs_are_each_method_with_each_seed_once(
    bench: Workbench, scale: str, seeds: list[int]
) -> None:
    target = bench.table("own", "table_1", scale)
    wanted = dict.fromkeys(
        RunKey(f"own/{setting}", method, seed)
        for setting, *methods in cells(bench, "table_1", scale)
        for method in methods
        for seed in seeds
    )
    assert target.runs == target.required == (*wanted,) and target.analyses == ()
    assert target.path == Path(f"results/tables/{scale}/own/table_1.json")
    assert target.page == Path("reports/site/own/table_1.html") and target.study is None
    studies = [bench.target("own", item, scale).study for item in ("costs", "responses")]
    assert studies == [Path("results/studies/fedgo_cost.json"), None]


def test_a_ratio_needs_the_runs_without_the_wrapper_too(bench: Workbench) -> None:
    (cell,) = (target := bench.table("own", "table_2", "paper")).cells
    assert (cell.methods, cell.rivals) == (("ima+fedavg", "ima+fedprox"), ("fedavg", "fedprox"))
    assert {run.method for run in target.runs} == {*cell.methods, *cell.rivals}
    assert len(target.runs) == 4 * 3


# By figure and scale: setting and methods in their order, and whether only the first seed counts.
NEEDS: dict[str, tuple[list[tuple[str, str]], list[tuple[str, str]], bool]] = {
    "curves": (
        [("s", "fedavg"), ("other", "fedprox"), ("t", "fedavg")],
        [("small", "fedavg"), ("small", "fedprox"), ("t", "fedavg"), ("other", "fedprox")],
        False,
    ),
    "map": (
        [("s", f"fedprox_mu{row}.{at}") for row in range(3) for at in range(3)],
        [("small", f"fedprox_mu{row}.{at}") for row in (0, 2) for at in (0, 2)],
        False,
    ),
    "hills": (
        [("s", "fedavg"), ("s", "fedprox")], [("small", "fedavg"), ("small", "fedprox")], True,
    ),
    "shares": ([], [], False),
    "energies": ([], [], False),
    "plane": ([("s", "fedavg"), ("t", "fedavg")], [("small", "fedavg"), ("t", "fedavg")], True),
    "line": ([("s", "fedavg")], [("s", "fedavg")], True),
    "sheets": (
        [("s", "fedavg"), ("other", "fedprox"), ("t", "fedavg")],
        [("small", "fedavg"), ("small", "fedprox"), ("t", "fedavg"), ("other", "fedprox")],
        True,
    ),
    "regrets": ([("s", "fedavg"), ("t", "fedavg")], [("small", "fedavg"), ("t", "fedavg")], False),
    "terms": ([("s", "fedavg")], [("small", "fedavg")], False),
    "trend": (
        [("s", "fedavg"), ("s", "fedprox"), ("t", "fedavg"), ("t", "scaffold")],
        [("small", "fedavg"), ("small", "fedprox")],
        False,
    ),
}  # fmt: skip
ANALYSES = {
    ("hills", "paper"): ["s/fedavg/seed1", "s/fedprox/seed1"],
    ("hills", "demo"): ["small/fedavg/seed1", "small/fedprox/seed1"],
    ("plane", "paper"): ["s/fedavg/seed1/2.1-2.2-last_5x10", "t/fedavg/seed1/1-2-last_5x10"],
    ("plane", "demo"): ["small/fedavg/seed1/1.1-1.2-last_3x4", "t/fedavg/seed1/1-2-last_3x4"],
    ("line", "paper"): ["s/fedavg/seed1/1-last_5x10"],
    ("line", "demo"): ["s/fedavg/seed1/1-last_5x10"],
    ("sheets", "paper"): ["s/fedavg/seed1", "other/fedprox/seed1", "t/fedavg/seed1"],
    ("sheets", "demo"): [
        "small/fedavg/seed1", "small/fedprox/seed1", "t/fedavg/seed1", "other/fedprox/seed1",
    ],
    ("regrets", "paper"): [f"{name}/fedavg/seed{seed}" for name in "st" for seed in (1, 2, 3)],
    ("regrets", "demo"): ["small/fedavg/seed1", "t/fedavg/seed1"],
    ("terms", "paper"): ["s/fedavg/seeds1-2-3_70"],
    ("terms", "demo"): ["small/fedavg/seeds1_70"],
}  # fmt: skip
FOLDERS = {"sheets": "quality", "regrets": "regrets", "terms": "decompositions"}


@pytest.mark.parametrize("item", NEEDS)
@pytest.mark.parametrize("scale", ["paper", "demo"])
def test_a_figure_s_runs_and_analyses_are_those_of_the_scale(
    bench: Workbench, item: str, scale: str
) -> None:
    target = bench.target("own", item, scale)
    paper, demo, first_only = NEEDS[item]
    seeds = [1] if scale == "demo" or first_only else [1, 2, 3]
    assert [*target.runs] == [
        RunKey(f"own/{setting}", method, seed)
        for setting, method in (demo if scale == "demo" else paper)
        for seed in seeds
    ]
    folder = f"results/{FOLDERS.get(item, 'landscapes')}/own"
    files = [f"{folder}/{name}.json" for name in ANALYSES.get((item, scale), [])]
    assert [str(path) for path in target.analyses] == files
    shared = {"paper": ["s", "t"], "demo": ["small", "t"]}[scale] if item == "shares" else []
    assert target.figure.shared_out(scale) == shared
    assert target.required == target.runs
    studied = Path("results/studies/fedevg_assumption.json") if item == "energies" else None
    assert target.study == studied
    # At scale compact it is shown, and waits for nothing.
    beside = bench.target("own", item, "compact")
    assert beside.runs == bench.target("own", item, "paper").runs and beside.required == ()


def test_the_runs_of_a_setting_are_those_of_tables_and_figures(bench: Workbench) -> None:
    assert bench.seeds_of("own/s", "fedavg", ["paper"]) == {1, 2, 3, 9}
    assert bench.seeds_of("own/s", "fedavg", ["demo"]) == {1}  # the segments' has no demo
    assert bench.seeds_of("own/small", "fedprox", ["demo"]) == {1, 4}
    assert bench.seeds_of("own/small", "fedprox", ["paper"]) == set()
    assert bench.seeds_of("own/t", "scaffold", ["paper", "demo"]) == {1, 2, 3}
    runs = bench.runs_of("own/tiny", ["paper", "demo"])
    assert runs == {RunKey("own/tiny", "topk+fedavg", 4)}


def test_a_run_has_one_name_and_one_folder() -> None:
    run = RunKey("own/s@released", "ima+fedprox_mu0.1", 12)
    assert RunKey.parse(run.name) == run and run.system == "own"
    assert str(run.folder) == "results/runs/own/s@released/ima+fedprox_mu0.1/seed12"
    assert run.command == "fedrepro run own/s@released ima+fedprox_mu0.1 --seed 12"
    assert str(run.analysis("quality")).endswith("ima+fedprox_mu0.1/seed12.json")
    assert str(run.analysis("landscapes", "a_5x9")).endswith("/seed12/a_5x9.json")


# --- keys of a setting ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("stop", "validation", "accuracy", "ends"),
    [
        (None, 0, 99, False),
        ({"patience": 3}, 0, 99, False),
        ({"at": 80}, 0, 0.0, False),  # any number will do
        ({"at": 80}, 0, 80, False),
        ({"at": 80}, 0, 80.1, True),
        ({"at": 80}, 0, 79.9, False),
        ({"at": 80}, 0.2, 10, True),  # it stops by other samples
        ({"measure": "loss", "at": 0.5}, 0, 10, True),
    ],
)
def test_a_run_may_stop_before_it_has_an_accuracy(
    bench: Workbench, stop: dict[str, Any] | None, validation: float, accuracy: float, ends: bool
) -> None:
    plain = bench.setting("own/s")
    partition = plain.partition.model_copy(update={"validation": validation})
    its = {"stop": Stop.model_validate(stop) if stop else None, "partition": partition}
    assert plain.model_copy(update=its).ends_before(accuracy) is ends


def test_a_key_with_another_value_is_the_only_difference(bench: Workbench) -> None:
    """For every key that is one word or number: changed, read again, and refused if it can't be."""
    plain = bench.setting("own/s")
    others = {
        "optimizer.lr": 0.7, "optimizer.momentum": 0.9, "optimizer.weight_decay": 0.01,
        "rounds": 9, "epochs": 3, "batch_size": 7, "participation": 0.5, "lr_decay": 0.9,
        "evaluate.every": 2, "evaluate.clients": False, "partition.test_fraction": 0.3,
        "model": "twonn", "noise.rate": 0.1,
    }  # fmt: skip
    known = plain.scalars
    for key, value in others.items():
        assert key in known and known[key] != value, key
        if key == "noise.rate":  # without its other key it is none
            with refused("missing", key="noise.kind"):
                plain.with_keys({key: value})
            continue
        changed = plain.with_keys({key: value})
        assert {name for name, each in changed.scalars.items() if each != known[name]} == {key}
        assert changed.scalars[key] == value and changed.name == plain.name
        assert plain.scalars == known
        last = key.rpartition(".")[2]
        alike = [name for name in known if name.rpartition(".")[2] == last]
        assert plain.named(key) == [key]
        if last not in known:
            assert plain.named(last) == alike
    both = plain.with_keys({"optimizer.lr": 0.7, "optimizer.momentum": 0.9, "rounds": 9})
    assert (both.optimizer.lr, both.optimizer.momentum, both.rounds) == (0.7, 0.9, 9)
    assert plain.with_keys({"noise.rate": 0.1, "noise.kind": "pair"}).noise.rate == 0.1
    for key, value in {
        "rounds": 0,
        "optimizer.lr": -1,
        "participation": 1.5,
        "epochs": 1.5,
    }.items():
        with refused("value", file="own/s", key=key, value=value):
            plain.with_keys({key: value})


def test_the_released_reading_has_each_key_of_each_discrepancy(bench: Workbench) -> None:
    released = {
        "A1": {"rounds": 5, "batch_size": 3},
        "A2": {"lr_decay": 0.5, "decay_from": 1, "model": "twonn"},
        "A3": {"optimizer": {"lr": 0.9}, "methods": {"fedprox": {"mu": 3.0}}},
    }
    plain = Setting.model_validate({**S, "released": released})
    plain._name = "own/s"
    reading = plain.as_released()
    assert reading.name == "own/s@released" and plain.name == "own/s" and not reading.released
    described = {
        key: getattr(reading, key) for key in ("rounds", "batch_size", "lr_decay", "model")
    }
    assert described == {"rounds": 5, "batch_size": 3, "lr_decay": 0.5, "model": "twonn"}
    assert (reading.optimizer.lr, reading.decay_from) == (0.9, 1)
    assert reading.methods == {"fedprox": {"mu": 3.0}}
    kept = {"dataset", "partition", "participation", "epochs", "evaluate"}
    assert all(getattr(reading, key) == getattr(plain, key) for key in kept)
    shared = reading.validated("s@released@validation0.2", 0.2, {"x": {"variant_of": "fedprox"}})
    assert shared.partition.validation == 0.2 and plain.partition.validation == 0
    assert shared.methods == {"fedprox": {"mu": 3.0}, "x": {"variant_of": "fedprox"}}
    assert shared.name == "own/s@released@validation0.2" and reading.methods != shared.methods


def test_only_what_a_cell_s_metric_judges_is_judged_and_once(bench: Workbench) -> None:
    """A column's metric comes before its row's, a row's before the table's."""
    target = bench.table("own", "table_3", "paper")
    assert [str(path) for path in target.analyses] == [
        f"results/quality/own/{setting}/{method}/seed{seed}.json"
        for setting in "st"
        for method in ("fedavg", "scaffold")
        for seed in (1, 2, 3)
    ]
    metrics = [target.table.metric_of(cell.row, cell.column) for cell in target.cells]
    assert [metric.analysis for metric in metrics] == ["quality", None, "quality"] * 2
    assert [metric.quantity.unit for metric in metrics[:2]] == ["%", ""]
    assert metrics[1].quantity.selection == "" != metrics[4].quantity.selection
    assert target.table.metric_of(target.cells[3].row).quantity.selection == ""


def test_what_a_figure_shows_has_its_row_s_metric_or_its_own(bench: Workbench) -> None:
    def shown(item: str, scale: Any) -> list[tuple[Any, ...]]:
        return [
            (each.label, each.metric.model_dump(), each.setting, *each.methods)
            for each in bench.target("own", item, scale).figure.shown(scale)  # type: ignore[attr-defined]
        ]

    assert shown("curves", "paper") == [
        ("One", "accuracy", "s", "fedavg"), ("Two", "accuracy", "other", "fedprox"),
        ("One", "loss", "t", "fedavg"), ("Two", "loss", "other", "fedprox"),
    ]  # fmt: skip
    assert shown("map", "demo") == [
        ("p", "accuracy", "small", f"fedprox_mu{row}.{at}") for row in (0, 2) for at in (0, 2)
    ]
    assert shown("trend", "demo") == [
        ("one", "accuracy", "small", "fedavg"), ("two", "accuracy", "small", "fedprox"),
    ]  # fmt: skip
    assert not shown("shares", "paper") and not shown("plane", "paper")
