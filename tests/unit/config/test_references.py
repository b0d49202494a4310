"""Every name in an experiment file is looked up, and of two definitions the right one is used."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from fedrepro.config.config_file import Overrides, Seeds
from fedrepro.config.experiment import COMPACT, how_to_add
from fedrepro.config.loading import load
from fedrepro.config.run_spec import Execution
from fedrepro.config.searches import LONGEST, Searched, values_in
from fedrepro.config.searches import TEXT as TEXT_OF_A_SETTING
from fedrepro.config.settings import ArtifactFromData, ArtifactFromFile, Setting
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.support.errors import UserError
from fedrepro.support.typed_yaml import Typed, validate
from support.places import ROOT
from support.refusals import refused
from support.search_world import EXPERIMENT, SEARCH, settle

S: dict[str, Any] = EXPERIMENT["settings"]["s"]
ROWS = [{"label": "r", "setting": "s"}, {"label": "q", "setting": "t", "demo": "s"}]
COLUMNS = [{"label": "A", "method": "fedavg"}, {"label": "B", "method": "fedprox"}]
TABLE = {"title": "T", "rows": ROWS, "columns": COLUMNS}
LINES = {"kind": "lines", "title": "L", "rows": ROWS, "columns": COLUMNS}
SHEETS = {"kind": "sheets", "title": "S", "panels": ROWS, "columns": COLUMNS}
POINT = {"at": 1, "setting": "s", "methods": ["fedavg"]}
TREND = {"kind": "trend", "title": "T", "lines": ["one"]}


def bench_of(root: Path, changes: dict[str, Any] | None = None, **experiment: Any) -> Workbench:
    settings = {"s": S, "t": {"extends": "s"}} | experiment.pop("settings", {})
    return load(settle(root, changes, settings=settings, **experiment))


def row(**keys: Any) -> dict[str, Any]:
    return {"tables": {"u": {**TABLE, "rows": [ROWS[0], {**ROWS[1], **keys}]}}}


def figure(spec: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"figures": {"f": {**spec, **keys}}}


def second(**keys: Any) -> dict[str, Any]:
    return {"settings": {"t": {"extends": "s", **keys}}}


RUN = {"setting": "s", "method": "fedevg"}
NAMES: list[tuple[dict[str, Any], str, Any]] = [
    (second(dataset="hart"), "settings.t.dataset", "hart"),
    (second(model="logistik"), "settings.t.model", "logistik"),
    (second(evaluator={"model": "logistik"}), "settings.t.evaluator.model", "logistik"),
    (second(stands_for="u"), "settings.t.stands_for", "u"),
    (second(inputs={"a": RUN, "b": {**RUN, "setting": "u"}}), "settings.t.inputs.b.setting", "u"),
    (second(inputs={"a": RUN, "b": {"dataset": "u"}}), "settings.t.inputs.b.dataset", "u"),
    (second(extends="u"), "settings.t.extends", "u"),
    (row(setting="u"), "tables.u.rows.q.setting", "u"),
    (row(demo="u"), "tables.u.rows.q.demo", "u"),
    (row(demo="s@released"), "tables.u.rows.q.demo", "s@released"),
    (row(setting="own/u"), "tables.u.rows.q.setting", "own/u"),
    (row(column_settings={"B": "*-x"}), "rows.q.column_settings.B", "s-x"),
    (row(demo_column_settings={"A": "s", "B": "u"}), "rows.q.demo_column_settings.B", "u"),
    (row(column_settings={"A": "s", "C": "s"}), "tables.u.rows.q.column_settings", "C"),
    (row(demo_column_settings={"C": "s"}), "tables.u.rows.q.column_settings", "C"),
    ({"tables": {"u": {**TABLE, "column_settings": {"A": "s", "C": "s"}}}},
     "tables.u.column_settings", "C"),
    ({"tables": {"u": {**TABLE, "column_settings": {"A": "s", "B": "u"}}}},
     "tables.u.column_settings.B", "u"),
    (figure(LINES, rows=[ROWS[0], {**ROWS[1], "demo": "u"}]), "figures.f.rows.q.demo", "u"),
    (figure(LINES, column_settings={"C": "s"}), "figures.f.column_settings", "C"),
    (figure(SHEETS, column_settings={"C": "s"}), "figures.f.column_settings", "C"),
    (figure(SHEETS, column_settings={"B": "*-x"}), "figures.f.column_settings.B", "s-x"),
    (figure(TREND, panels=[{"label": "p", "x": "x", "points": [POINT, {**POINT, "demo": "u"}]}]),
     "panels.p.points.1.demo", "u"),
    (figure({"kind": "landscape", "title": "H", "setting": "s", "columns": COLUMNS}, demo="u"),
     "figures.f.demo", "u"),
    ({"search": {"x": {**SEARCH, "setting": "u", "methods": [
        {"method": "fedavg", "keys": {"optimizer.lr": [1.0]}}]}}}, "search.x.setting", "u"),
    ({"computed": {"c": {"kind": "client_statistics", "title": "C", "settings": {"D": "u"}}}},
     "computed.c.settings.D", "u"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "key", "value"), NAMES)
def test_a_name_that_stands_for_nothing_is_refused_where_it_stands(
    tmp_path: Path, changes: dict[str, Any], key: str, value: Any
) -> None:
    """The last of several, too."""
    with refused(key=key, value=value):
        bench_of(tmp_path, **{"search": {}, **changes})


ITEMS: dict[str, dict[str, Any]] = {
    "tables": TABLE, "search": SEARCH, "figures": LINES,
    "computed": {"kind": "responses", "title": "C"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("tables", "compact"), ("tables", "computed"), ("computed", "figures"),
        ("figures", "search"), ("search", "compact_search"),
    ],
)  # fmt: skip
def test_an_item_s_name_is_its_own_among_all_sections(tmp_path: Path, one: str, other: str) -> None:
    sections = {"search": {}, one: {"x": ITEMS[one]}}
    if other.startswith("compact"):
        section = "search" if other == "compact_search" else "tables"
        file = tmp_path / COMPACT / "own.yaml"
        file.parent.mkdir(parents=True)
        compact = {"settings": {}, section: {"x": ITEMS[section]}}
        file.write_text(yaml.safe_dump(compact), encoding="utf-8")
    else:
        sections[other] = {"x": ITEMS[other]}
    with refused(key=other, value="x"):
        bench_of(tmp_path, **sections)


def test_a_compact_file_s_methods_and_settings_join_those_of_the_experiment(tmp_path: Path) -> None:
    file = tmp_path / COMPACT / "own.yaml"
    file.parent.mkdir(parents=True)
    compact: dict[str, Any] = {
        "methods": {"mine": {"variant_of": "fedprox", "mu": 0.4}},
        "settings": {"compact-s": {"extends": "t", "rounds": 5}},
        "tunes": {"optimizer.lr": "Section 3"},
    }
    file.write_text(yaml.safe_dump(compact), encoding="utf-8")
    bench = bench_of(tmp_path)
    spec = bench.run_spec("own/compact-s", "mine", 1)
    assert (spec.setting.rounds, spec.setting.dataset) == (5, "heart")
    assert spec.hyperparameters == {"fedprox": {"mu": 0.4}}
    assert bench.experiments["own"].tunes == {"optimizer.lr": "Section 3"}
    for key, entry in (("methods", {"fedprox": {"mu": 2.0}}), ("settings", {"t": S})):
        again = {**compact, key: {**compact[key], **entry}}
        file.write_text(yaml.safe_dump(again), encoding="utf-8")
        with refused(key=key, value=next(iter(entry)), file="config/compact/own.yaml"):
            bench_of(tmp_path)


def test_the_nearest_setting_s_key_wins_as_a_whole(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, settings={
        "c": {"extends": "b", "epochs": 7},
        "b": {"extends": "a", "optimizer": {"lr": 0.5}, "rounds": 4},
        "a": {"extends": "s", "optimizer": {"lr": 0.2, "momentum": 0.9}, "rounds": 3, "epochs": 2},
    })  # fmt: skip
    last = bench.setting("own/c")
    assert (last.epochs, last.rounds, last.batch_size) == (7, 4, 20)
    assert (last.optimizer.lr, last.optimizer.momentum) == (0.5, 0.0)
    assert (bench.setting("own/a").epochs, bench.setting("own/s").epochs) == (2, 1)
    for circle in ({"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "a"}):
        with pytest.raises(UserError, match="extend"):
            bench_of(tmp_path, settings={name: {"extends": its} for name, its in circle.items()})


def test_the_nearest_statement_of_a_hyperparameter_wins(tmp_path: Path) -> None:
    bench = bench_of(
        tmp_path, search={},
        methods={
            "fedprox": {"mu": 0.1, "halved": True}, "mine": {"variant_of": "fedprox", "mu": 0.3},
            "ours": {"variant_of": "mine", "squared": True},
            "fedprox_mu0.9": {"variant_of": "mine", "mu": 0.9},
        },
        settings={"t": {"extends": "s", "methods": {"fedprox": {"mu": 0.5, "squared": False},
                                                    "mine": {"halved": False}}}},
    )  # fmt: skip
    stated = {
        (setting, method): bench.run_spec(f"own/{setting}", method, 1).hyperparameters["fedprox"]
        for setting in "st"
        for method in ("fedprox", "mine", "ours", "ours_mu0.7", "fedprox_mu0.9_squaredtrue")
    }
    plain, changed = {"mu": 0.1, "halved": True}, {"mu": 0.5, "halved": True, "squared": False}
    longest = {"mu": 0.9, "squared": True}  # a name's longest beginning that is a method's
    assert stated == {
        ("s", "fedprox"): plain, ("s", "mine"): plain | {"mu": 0.3},
        ("s", "ours"): plain | {"mu": 0.3, "squared": True},
        ("s", "ours_mu0.7"): plain | {"mu": 0.7, "squared": True},
        ("s", "fedprox_mu0.9_squaredtrue"): plain | longest,
        ("t", "fedprox_mu0.9_squaredtrue"): changed | longest | {"halved": False},
        ("t", "fedprox"): changed, ("t", "mine"): changed | {"mu": 0.3, "halved": False},
        ("t", "ours"): changed | {"mu": 0.3, "halved": False, "squared": True},
        ("t", "ours_mu0.7"): changed | {"mu": 0.7, "halved": False, "squared": True},
    }  # fmt: skip


def test_a_setting_s_longest_name_is_the_one_that_values_follow(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, settings={"s_epochs5": {"extends": "s", "epochs": 5, "rounds": 9}})
    found = bench.setting("own/s_epochs5_rounds3")
    assert (found.epochs, found.rounds, found.name) == (5, 3, "own/s_epochs5_rounds3")
    assert bench.setting("own/s_epochs5").rounds == 9
    assert bench.setting("own/t_epochs5").rounds == S["rounds"]
    with refused(key="setting", value="own/s_rounds3_epochs5"):  # in their order only
        bench.setting("own/s_rounds3_epochs5")


def test_another_value_leaves_what_is_not_stated_unstated(tmp_path: Path) -> None:
    """A scale that nobody gave is refused beside label_flip; a day's length is kept."""
    keys = {
        "attack": {"kind": "label_flip", "share": 0.2}, "availability": {"period": 4},
        "noise": {"kind": "pair", "rate": 0.1},
    }  # fmt: skip
    plain = bench_of(tmp_path, settings={"t": {"extends": "s", **keys}}).setting("own/t")
    changed = plain.with_keys({"attack.share": 0.4, "availability.dropout": 0.1, "noise.rate": 0.3})
    assert changed.attack and (changed.attack.kind, changed.attack.share) == ("label_flip", 0.4)
    assert "scale" not in changed.attack.model_fields_set
    assert changed.availability is not None
    assert (changed.availability.period, changed.availability.dropout) == (4, 0.1)
    assert changed.noise and (changed.noise.kind, changed.noise.rate) == ("pair", 0.3)


# --- runs -----------------------------------------------------------------------------------------
def test_a_run_is_executed_as_the_configuration_says(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    text = "executor: parallel\ndevice: cuda:1\nthreads: 3\ncheckpoint_every: 7\n"
    (tmp_path / "config/config.yaml").write_text(text, encoding="utf-8")
    spec = load(tmp_path).run_spec("own/s", "fedavg", 1)
    assert spec.execution == Execution("parallel", "cuda:1", 3, 7)
    assert spec.digest == bench.run_spec("own/s", "fedavg", 1).digest
    overridden = load(tmp_path, Overrides(device="cpu")).config
    assert (overridden.device, overridden.executor, overridden.threads) == ("cpu", "parallel", 3)
    (tmp_path / "config/config.yaml").write_text("# nothing\n", encoding="utf-8")
    assert load(tmp_path).run_spec("own/s", "fedavg", 1).execution == Execution()
    assert Execution() == Execution("auto", "cpu", 1, 10)


def test_a_description_has_the_rounds_that_its_method_saves_and_no_caveats(tmp_path: Path) -> None:
    more = {
        "save_models_at": {"fedavg": [2, 1], "fedprox": [1]}, "note": "A caveat.",
        "stands_for": "s", "resources": {"mem_mb": 5}, "evaluator": {"model": "twonn"},
        "released": {"A1": {"rounds": 3}},
    }  # fmt: skip
    bench = bench_of(tmp_path, settings={"t": {"extends": "s", **more}})
    plain, found = (bench.run_spec(f"own/{name}", "fedavg", 1).description() for name in "st")
    assert found == {**plain, "setting": "own/t", "keep": [1, 2]}
    assert bench.run_spec("own/t", "fedprox", 1).description()["keep"] == [1]
    assert "keep" not in bench.run_spec("own/t", "scaffold", 1).description()
    released = bench.run_spec("own/t@released", "fedavg", 1).description()
    assert released == {**found, "setting": "own/t@released", "rounds": 3}


def test_pretrained_weights_are_part_of_a_run(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, settings={"t": {"extends": "s", "model": "efficientnet_b0"}})
    name, entry = bench.weights["efficientnet_b0"]
    assert bench.catalogue_weights[name] == entry
    assert bench.run_spec("own/t", "fedavg", 1).description()["weights"] == entry.sha256
    assert "weights" not in bench.run_spec("own/s", "fedavg", 1).description()


def test_what_names_no_measure_follows_the_task(tmp_path: Path) -> None:
    """Of numbers there is no accuracy; a measure that is stated stays."""
    stops = {"patient": {"patience": 2}, "stated": {"patience": 2, "measure": "accuracy"}}
    bench = bench_of(
        tmp_path, settings={name: {"extends": "s", "stop": stop} for name, stop in stops.items()},
        search={"plain": SEARCH, "stated": {**SEARCH, "metric": "accuracy"}},
    )  # fmt: skip
    entry = bench.datasets["heart"].model_copy(update={"task": "regression"})
    numbers = replace(bench, datasets={**bench.datasets, "heart": entry})
    for each, measure in ((bench, "accuracy"), (numbers, "loss")):
        described = [
            each.run_spec(f"own/{name}", "fedavg", 1).description()["stop"] for name in stops
        ]
        assert [stop["measure"] for stop in described] == [measure, "accuracy"]
        assert [stop["patience"] for stop in described] == [2, 2]
        metrics = [each.search("own", item, "paper").search.metric for item in ("plain", "stated")]
        assert [metric.model_dump() for metric in metrics] == [measure, "accuracy"]


def test_seeds_of_an_item_come_before_the_system_s_and_the_configuration_s(tmp_path: Path) -> None:
    own = {"demo": [7], "compact": [8], "paper": [9, 6]}
    bench = bench_of(tmp_path, seeds={"demo": [1, 2], "compact": [3], "paper": [5, 4]})
    assert [bench.seeds(scale, "own") for scale in ("demo", "compact", "paper")] == [
        (1, 2), (3,), (5, 4),
    ]  # fmt: skip
    assert [bench.seeds(scale, "own", Seeds(**own)) for scale in ("demo", "compact", "paper")] == [  # type: ignore[arg-type]
        (7,), (8,), (9, 6),
    ]  # fmt: skip
    path = bench.histogram_of("own/s")
    assert path == bench.setting("own/s").partition_path(5).with_suffix(".json")
    assert not bench.is_prepared("own/s")
    (tmp_path / "results/data/heart").mkdir(parents=True)
    (tmp_path / "results/data/heart/meta.json").touch()
    assert bench.is_prepared("own/s") and bench.surrogate_for("own/s") is None
    (tmp_path / "config/config.yaml").write_text(
        "seeds: {demo: [4], compact: [6, 7], paper: [8]}\n", encoding="utf-8"
    )
    bench = load(tmp_path)
    assert bench.seeds("compact", "own") == (3,)
    (tmp_path / "config/experiments/own.yaml").write_text(
        yaml.safe_dump({key: value for key, value in EXPERIMENT.items() if key != "search"}),
        encoding="utf-8",
    )
    bench = load(tmp_path)
    assert [bench.seeds(scale, "own") for scale in ("demo", "compact", "paper")] == [
        (4,), (6, 7), (8,),
    ]  # fmt: skip


def test_folders_of_plug_ins_are_each_their_own_and_there(tmp_path: Path) -> None:
    bench_of(tmp_path)
    config = tmp_path / "config/config.yaml"
    config.write_text("plugins: {methods: a, models: b, data: c/d}\n", encoding="utf-8")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with refused(key="plugins.data", value="c/d"):
        load(tmp_path)
    (tmp_path / "c").mkdir()
    (tmp_path / "c/d").write_text("no folder", encoding="utf-8")
    with refused(key="plugins.data", value="c/d"):
        load(tmp_path)
    (tmp_path / "c/d").unlink()
    (tmp_path / "c/d").mkdir()
    folders = load(tmp_path).plugins
    assert (folders.root, folders.methods, folders.models, folders.data) == (
        tmp_path, tmp_path / "a", tmp_path / "b", tmp_path / "c/d",
    )  # fmt: skip
    assert folders.losses is None and folders.partitions is None


# --- tables whose runs stop or have landed --------------------------------------------------------
@pytest.mark.parametrize(("target", "fits"), [(60, False), (50, True)])
@pytest.mark.parametrize("section", ["tables", "compact"])
def test_a_target_that_a_run_stops_before_is_refused_at_every_scale(
    tmp_path: Path, section: str, target: int, fits: bool
) -> None:
    """The last row's demo stops, and only the last column asks for rounds."""
    columns = [COLUMNS[0], {**COLUMNS[1], "metric": {"rounds_to": target}}]
    table = {**TABLE, "rows": [ROWS[0], {**ROWS[1], "demo": "u"}], "columns": columns}
    keys: dict[str, Any] = {
        "settings": {"u": {"extends": "s", "stop": {"at": 50}}}, "search": {}, "tables": {},
    }  # fmt: skip
    if section == "compact":
        file = tmp_path / COMPACT / "own.yaml"
        file.parent.mkdir(parents=True)
        compact = {"settings": {}, "tables": {"x": table}}
        file.write_text(yaml.safe_dump(compact), encoding="utf-8")
    else:
        keys["tables"] = {"x": table}
    if fits:
        assert bench_of(tmp_path, **keys).target("own", "x")
        return
    with refused(key="tables.x.rows.q.metric.rounds_to", value=float(target)):
        bench_of(tmp_path, **keys)


@pytest.mark.parametrize(
    ("rounds", "metric", "fits"),
    [
        (2, {"of": "accuracy", "over_clients": "worst"}, False),
        (1, {"of": "accuracy", "over_clients": "worst"}, True),
        (2, {"of": "accuracy", "over_clients": "average", "weighted": False}, True),
        (2, "accuracy", True),
    ],
)
@pytest.mark.parametrize("section", ["tables", "search"])
def test_landed_rounds_are_enough_for_compact_tables_and_searches(
    tmp_path: Path, section: str, rounds: int, metric: Any, fits: bool
) -> None:
    file = tmp_path / COMPACT / "own.yaml"
    file.parent.mkdir(parents=True)
    summary = {"rounds": rounds}
    columns = [COLUMNS[0], {**COLUMNS[1], "metric": metric}]
    items = {
        "tables": {**TABLE, "columns": columns, "summary": summary},
        "search": {**SEARCH, "metric": metric, "summary": summary},
    }
    compact = {"settings": {}, section: {"x": items[section]}}
    file.write_text(yaml.safe_dump(compact), encoding="utf-8")
    if fits:
        assert bench_of(tmp_path, search={}).target("own", "x")
        return
    with refused(key=f"{section}.x.summary.rounds", value=rounds, file="config/compact/own.yaml"):
        bench_of(tmp_path, search={})


# --- searches -------------------------------------------------------------------------------------
def test_a_search_at_scale_demo_keeps_validation_samples_of_its_small_setting(
    tmp_path: Path,
) -> None:
    bench = bench_of(tmp_path, {"demo": "t", "seeds": {"demo": [4], "paper": [2, 3]}})
    demo, paper = (bench.search("own", "grid", scale) for scale in ("demo", "paper"))
    assert {(run.setting, run.seed) for run in demo.runs} == {("own/t@validation0.2", 4)}
    assert {run.setting for run in paper.runs} == {"own/s@validation0.2"}
    assert {run.seed for run in paper.runs} == {2, 3}
    for target in (demo, paper):
        spec = bench.run_spec(target.setting, "fedprox_mu1.0", 1)
        assert spec.setting.partition.validation == 0.2
        assert spec.hyperparameters == {"fedprox": {"mu": 1.0}}
    kept = {"extends": "s", "partition": {**S["partition"], "validation": 0.1}}
    with refused(key="settings.t.partition.validation", value=0.1):
        bench_of(tmp_path, {"demo": "t"}, settings={"t": kept})


@pytest.mark.parametrize(("digits", "fits"), [(LONGEST - 10, True), (LONGEST - 9, False)])
def test_a_candidate_s_name_has_at_most_120_characters(
    tmp_path: Path, digits: int, fits: bool
) -> None:
    """They name a folder."""
    value = 10 ** (digits - 1)
    changes = {"methods": [{"method": "fedprox", "grid": {"mu": [value]}}]}
    if not fits:
        with refused(key="search.grid.methods.fedprox.grid"):
            bench_of(tmp_path, changes)
        return
    run, *_ = bench_of(tmp_path, changes).search("own", "grid", "paper").runs
    assert len(run.method) == 120


def test_a_candidate_s_name_has_each_part_s_values_by_name(tmp_path: Path) -> None:
    searched = Searched.model_validate({
        "method": "ima+fedprox@released", "keys": {"optimizer.lr": [0.1], "epochs": [2]},
        "grid": {"fedprox.mu": [0.5, 1], "ima.window": [3], "fedprox.halved": [True]},
    })  # fmt: skip
    first, last, published = searched.candidates({
        "optimizer.lr": 0.2, "epochs": 2, "fedprox.mu": 0.5, "ima.window": 4,
        "fedprox.halved": False,
    })  # fmt: skip
    names = [each.method for each in (first, last, published)]
    assert names == [
        "ima_window3+fedprox_halvedtrue_mu0.5@released",
        "ima_window3+fedprox_halvedtrue_mu1@released",
        "ima_window4+fedprox_halvedfalse_mu0.5@released",
    ]
    assert [each.suffix for each in (first, last, published)] == [
        "_epochs2_optimizer.lr0.1", "_epochs2_optimizer.lr0.1", "_epochs2_optimizer.lr0.2",
    ]  # fmt: skip
    assert searched.variants(last) == {
        "ima_window3": {"variant_of": "ima", "parent": None, "window": 3},
        "fedprox_halvedtrue_mu1": {
            "variant_of": "fedprox", "parent": None, "mu": 1, "halved": True,
        },
    }  # fmt: skip
    assert len(searched.candidates(first.values)) == 2


DEFAULTS = {"mu": 0.1, "mu_max": 1, "scheme": "exponential", "free": None}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("_mu0.5_mu_max2", {"mu": 0.5, "mu_max": 2}), ("_muminus3", {"mu": -3}),
        ("_mu_max2", {"mu_max": 2}), ("_mutrue", {"mu": True}), ("_munull", {"mu": None}),
        ("_mu0.5_schemecyclic", {"mu": 0.5, "scheme": "cyclic"}), ("_free2", {"free": 2}),
        ("_mu_max2_mu0.5", {}), ("_mu0.5_mu0.6", {}), ("_mucyclic", {}), ("_freecyclic", {}),
        ("_mu05", {}), ("_mu0.50", {"mu": 0.5}), ("_nu1", {}), ("", {}), ("_schemea-b", {}),
    ],
)  # fmt: skip
def test_values_are_read_from_a_name_as_they_are_written(name: str, values: dict[str, Any]) -> None:
    found = values_in(name, DEFAULTS)
    assert found == ({} if name == "_mu0.50" else values)
    assert [type(each) for each in found.values()] == [type(values[key]) for key in found]
    assert values_in("_freea-b", DEFAULTS, TEXT_OF_A_SETTING) == {"free": "a-b"}
    assert values_in("_mua", DEFAULTS, TEXT_OF_A_SETTING) == {}


def test_a_search_goes_on_at_the_ends_of_what_was_tried() -> None:
    searched = Searched.model_validate({
        "method": "fedavg",
        "keys": {
            "optimizer.lr": [0.1, 0.01, 0.03], "epochs": [1, 3], "augment": ["flip", None],
            "stop.patience": [3, 10, None],
        },
    })  # fmt: skip
    for key, best, values in (
        ("optimizer.lr", 0.1, [0.01, 0.03, 0.1, 0.3]), ("optimizer.lr", 0.03, [0.1, 0.01, 0.03]),
        ("optimizer.lr", 0.01, [0.003, 0.01, 0.03, 0.1]), ("epochs", 3, [1, 3, 10]),
        ("epochs", 1, [1, 3]), ("augment", "flip", ["flip", None]),
        ("stop.patience", 10, [3, 10, None]),
    ):  # fmt: skip
        longer = searched.gone_on(key, best)
        assert longer.keys == {**searched.keys, key: values}
    assert searched.as_far_as_it_may_go().keys == {
        "optimizer.lr": [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0],
        "epochs": [1, 3, 10, 30, 100], "augment": ["flip", None], "stop.patience": [3, 10, None],
    }  # fmt: skip


# --- values of the command line -------------------------------------------------------------------
def test_a_name_that_another_method_has_is_not_taken(tmp_path: Path) -> None:
    other = {"variant_of": "fedprox", "mu": 0.3}
    methods = {"fedprox": {"mu": 0.1}, "mine": {"variant_of": "fedprox", "halved": True}}
    for same, entry in (
        (True, other), (True, {**other, "parent": "fedavg"}), (False, {**other, "mu": 0.4}),
        (False, {**other, "halved": True}), (False, {**other, "variant_of": "scaffold"}),
        (False, {**other, "variant_of": "mine"}),
    ):  # fmt: skip
        bench = bench_of(tmp_path, search={}, methods={**methods, "fedprox_mu0.3": entry})
        setting = bench.setting("own/s")
        if same:
            changed, _, name = bench.with_variant(setting, "fedprox", {"mu": 0.3})
            spec = changed.run_spec("own/s", name, 1)
            assert (name, spec.hyperparameters) == ("fedprox_mu0.3", {"fedprox": {"mu": 0.3}})
        else:
            with refused(key="methods", value="fedprox_mu0.3"):
                bench.with_variant(setting, "fedprox", {"mu": 0.3})


@pytest.mark.parametrize("only", [None, "own", "pub"])
def test_tables_are_those_of_a_system_or_with_a_setting(tmp_path: Path, only: str | None) -> None:
    wide = {**TABLE, "column_settings": {"B": "v"}}
    settings = {"v": {"extends": "s"}, "w": {"extends": "s"}}
    bench_of(tmp_path, search={}, settings=settings, tables={"one": TABLE, "two": wide})
    (tmp_path / "config/experiments/pub.yaml").write_text(yaml.safe_dump({
        "system": "pub", "title": "P", "paper": "none",
        "tables": {"three": {**TABLE, "rows": [{"label": "r", "setting": "own/v"}]}},
    }), encoding="utf-8")  # fmt: skip
    bench = load(tmp_path)
    every = {("own", "one"), ("own", "two"), ("pub", "three")}
    of_system = {key for key in every if only in (None, key[0])}
    assert bench.tables("paper", only).keys() == of_system
    for setting, having in (("own/v", {"two", "three"}), ("own/t", {"one", "two"}), ("own/w", ())):
        found = bench.tables("paper", only, setting)
        assert found.keys() == {key for key in of_system if key[1] in having}
    assert bench.tables("demo", only, "own/t").keys() == set()  # its demo stands there
    assert bench.runs_of("own/v", ["demo"]) == {
        RunKey("own/v", method, 1) for method in ("fedavg", "fedprox")
    }


@pytest.mark.parametrize(
    ("published", "chosen"), [({}, 0.1), ({"lr": 0.5}, 0.5), ({"optimizer.lr": 0.03}, 0.03)]
)
def test_a_key_s_published_value_comes_before_the_setting_s(
    tmp_path: Path, published: dict[str, Any], chosen: float
) -> None:
    searched = {"method": "fedavg", "keys": {"lr": [0.01, 0.03]}, "published": published}
    (trial,) = bench_of(tmp_path, {"methods": [searched]}).search("own", "grid", "paper").trials
    assert trial.published.values == {"optimizer.lr": chosen}
    assert len(trial.candidates) == (2 if chosen == 0.03 else 3)


def test_a_hyperparameter_s_published_value_is_that_of_the_searched_setting(
    tmp_path: Path,
) -> None:
    searched = [{"method": "ima+fedprox", "grid": {"fedprox.mu": [1.0], "ima.window": [3]}}]
    methods = {"fedprox": {"mu": 0.7}}
    bench = bench_of(
        tmp_path, {"setting": "t", "methods": searched},
        settings={"t": {"extends": "s", "methods": methods}},
    )  # fmt: skip
    (trial,) = bench.search("own", "grid", "paper").trials
    assert trial.published.values == {"fedprox.mu": 0.7, "ima.window": 5}


def test_the_league_s_rows_alone_have_readings_with_validation_samples(tmp_path: Path) -> None:
    """A fifth of the samples, unless clients keep some anyway."""
    kept = {"extends": "s", "partition": {**S["partition"], "validation": 0.1}}
    rows = [
        {"label": "1", "setting": "a", "league": "g"},
        {"label": "2", "setting": "b", "league": "g"},
        {"label": "3", "setting": "c"}, {"label": "4", "setting": "d", "league": "h"},
        {"label": "5", "setting": "own/s", "league": "h"},
    ]  # fmt: skip
    compact = {
        "settings": {"a": kept | {"partition": S["partition"]}, "b": kept,
                     "c": {"extends": "s"}, "d": {"extends": "t"}},
        "tables": {"x": {**TABLE, "rows": rows}},
        "search": {"y": {**SEARCH, "setting": "a"}},
    }  # fmt: skip
    file = tmp_path / COMPACT / "own.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump(compact), encoding="utf-8")
    bench = bench_of(tmp_path, search={})
    names = {name: each for name, each in bench.settings.items() if "@validation" in name}
    assert names.keys() == {"own/a@validation0.2", "own/d@validation0.2"}
    assert {each.partition.validation for each in names.values()} == {0.2}
    assert "fedprox_mu1.0" in names["own/a@validation0.2"].methods  # the search's


def test_measures_of_one_s_own_are_read_as_they_say(tmp_path: Path) -> None:
    """One of rounds that falls, and one that methods report of each client's training."""
    (tmp_path / "measures").mkdir()
    for name, per in (("drift", "round"), ("spent", "client")):
        (tmp_path / f"measures/{name}.py").write_text(
            '"""A measure."""\nfrom fedrepro.measures.base import Measure\n\n\n'
            f'class Own(Measure):\n    words, unit, per = "{name}", "s", "{per}"\n'
            "    higher_is_better = False\n"
        )

    def with_measures(changes: dict[str, Any] | None = None, **experiment: Any) -> Workbench:
        root = settle(tmp_path, changes, **experiment)
        config = "plugins: {measures: measures}\n"
        (root / "config/config.yaml").write_text(config, encoding="utf-8")
        return load(root)

    rows = [
        {**ROWS[0], "metric": {"least": "drift"}},
        {**ROWS[0], "label": "q", "metric": {"of": "spent", "over_clients": "average"}},
    ]
    bench = with_measures(search={}, tables={"x": {**TABLE, "rows": rows}})
    least, average = (
        target.table.metric_of(cell.row)
        for target in [bench.table("own", "x", "paper")] for cell in target.cells[::2]
    )  # fmt: skip
    run: Any = SimpleNamespace(
        rounds={"round": [1, 2], "drift": [3.0, 2.0]}, mixtures={},
        clients={
            "round": [2, 2], "spent": [1.0, 4.0], "train_samples": [1, 2], "test_samples": [9, 1],
        },
    )  # fmt: skip
    assert least.quantity.series(run) == [(2, 2.0)]
    assert least.curve.quantity.series(run) == [(1, 3.0), (2, 2.0)]
    assert average.quantity.series(run) == [(2, 3.0)]
    with refused(key="search.grid.metric"):  # it is not computed on validation samples
        with_measures({"metric": {"of": "spent", "over_clients": "average"}})


def test_the_command_that_adds_a_system_is_named_where_it_is_not_there(tmp_path: Path) -> None:
    bench_of(tmp_path)
    assert "--with ima" in how_to_add("ima/fmnist-shards2", tmp_path)
    assert how_to_add("own/s", tmp_path) == how_to_add("ima/fmnist-shards2", ROOT) == ""


# --- what identifies a run ------------------------------------------------------------------------
# By key of a setting, values that make other runs: each of a part's keys has one, at least.
OTHERS: dict[str, list[Any]] = {
    "byzantine": [1, 2], "dataset": ["berka"], "model": ["twonn"], "rounds": [9], "epochs": [3],
    "partition": [{**S["partition"], "clients": 3}, {"scheme": "iid", "clients": 4}],
    "participation": [0.5], "batch_size": [7], "lr_decay": [0.9, {"factor": 0.9, "every": 2}],
    "optimizer": [
        {"lr": 0.2}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "weight_decay": 0.1},
        {"lr": 0.1, "name": "adam"}, {"lr": 0.1, "name": "adam", "betas": [0.9, 0.99]},
    ],
    "lr_schedule": ["cosine", [1.0], [1.0, 0.5]], "decay_from": [1],
    "cohorts": [{"stream": "numpy_legacy", "seed": seed} for seed in (1, 2)],
    "evaluate": [
        {"clients": False}, {"clients": True, "every": 2}, {"clients": True, "groups": True},
        {"clients": True, "groups": True, "per_class": 3},
    ],
    "noise": [
        {"kind": "pair", "rate": 0.1}, {"kind": "symmetric", "rate": 0.1},
        {"kind": "pair", "rate": 0.2}, {"kind": "pair", "rate": 0.1, "everywhere": True},
    ],
    "attack": [
        {"kind": "sign_flip", "share": 0.1}, {"kind": "gaussian", "share": 0.1},
        {"kind": "sign_flip", "share": 0.2}, {"kind": "sign_flip", "share": 0.1, "scale": 2},
    ],
    "availability": [
        {"dropout": 0.1}, {"partial": 0.1}, {"deadline": 2}, {"deadline": 2, "spread": 0.5},
        {"deadline": 2, "late": "partial"}, {"period": 4},
    ],
    "class_weights": ["balanced", [1.0, 2.0]], "scaling": ["unit", "symmetric"],
    "augment": ["flip"], "precision": ["bfloat16", "tf32"],
    "stop": [{"patience": 2}, {"at": 90}, {"patience": 2, "measure": "loss"}],
    "save_models_at": [{"fedavg": [1]}, {"fedavg": [2]}],
}  # fmt: skip
# Not part of a run; what stands in `methods` is part of it as hyperparameters.
OUTSIDE: dict[str, Any] = {
    "note": "A caveat.", "stands_for": "t", "resources": {"mem_mb": 5},
    "evaluator": {"model": "twonn"}, "methods": {"fedprox": {"mu": 3.0}},
    "released": {"A1": {"rounds": 3}},
}  # fmt: skip


def test_every_key_of_a_setting_but_those_outside_makes_another_run(tmp_path: Path) -> None:
    """Two runs that differ in one are never taken for one; a key at its default changes nothing."""
    plain = bench_of(tmp_path).run_spec("own/s", "fedavg", 1)

    def digest_of(**keys: Any) -> str:
        setting = validate(Setting, {**S, **keys}, "here")
        setting._name = "own/s"
        return replace(plain, setting=setting).digest

    digests = [digest_of(**{key: value}) for key in OTHERS for value in OTHERS[key]]
    # These need a folder of plug-ins.
    own = [plain.setting.model_copy(update={"loss": name}) for name in ("mine", "other")]
    watched = plain.setting.evaluate.model_copy(update={"measures": ["mine"]})
    own.append(plain.setting.model_copy(update={"evaluate": watched}))
    digests += [replace(plain, setting=setting).digest for setting in own]
    assert len({plain.digest, *digests}) == 1 + len(digests)
    assert {digest_of(**{key: value}) for key, value in OUTSIDE.items()} == {plain.digest}
    elsewhere = {"loss", "extends", "inputs"}
    assert {*OTHERS, *OUTSIDE, *elsewhere} == {*Setting.model_fields}
    defaults = {key: Setting.model_fields[key].default for key in OTHERS}
    stated = {key: value for key, value in defaults.items() if value is None or value in (0, 1.0)}
    assert digest_of(**stated) == plain.digest
    for key, values in OTHERS.items():
        part = getattr(validate(Setting, {**S, key: values[0]}, "here"), key)
        if isinstance(part, Typed) and key != "partition":
            named = {name for value in values for name in value}
            assert named | {"measures"} >= {*type(part).model_fields}, key


def test_every_part_of_a_specification_but_its_execution_makes_another_run(tmp_path: Path) -> None:
    plain = bench_of(tmp_path).run_spec("own/s", "fedavg", 1)
    name, entry = load(tmp_path).weights["efficientnet_b0"]
    shares = {"mnist": (0.5, 0.25, 0.12345678, 0.12345679), "fmnist": (0.5,)}
    sources: list[Any] = [
        "server",
        *(ArtifactFromFile(file=Path("x"), sha256=letter * 64) for letter in "ab"),
        *(
            ArtifactFromData(dataset=name, share=share)
            for name, own in shares.items()
            for share in own
        ),
        plain,
        replace(plain, seed=2),
    ]
    others = [
        replace(plain, seed=2), replace(plain, method="b"), replace(plain, composition="b"),
        replace(plain, hyperparameters={"fedavg": {"a": 1}}),
        replace(plain, hyperparameters={"fedavg": {"a": 1.5}}),
        replace(plain, hyperparameters={"b": {"a": 1}}), replace(plain, weights=(name, entry)),
        *(replace(plain, inputs={"unlabelled": source}) for source in sources),
        replace(plain, inputs={"b": "server"}),
        replace(plain, inputs={"b": "server", "unlabelled": "server"}),
    ]  # fmt: skip
    digests = {each.digest for each in (plain, *others)}
    assert len(digests) == 1 + len(others)
    for same in (
        replace(plain, execution=Execution("parallel", "cuda", 4, 3)),
        replace(plain, data_size=None),
    ):
        assert same.digest == plain.digest
    moved = replace(plain, inputs={"unlabelled": ArtifactFromFile(file=Path("y"), sha256="a" * 64)})
    assert moved.digest in digests  # its content counts, not its name
    numbers = {0.5: "0.5", 1.0: "1", 0.0333: "0.0333", 1e-05: "1e-05"}
    for share, written in numbers.items():  # as in results that have landed
        given = replace(
            plain, inputs={"b": ArtifactFromData(dataset="mnist", share=share)}
        ).description()["given"]
        assert given == {"b": f"data mnist share {written}"}
