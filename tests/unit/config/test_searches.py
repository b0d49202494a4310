"""Searches of experiment files: their candidates, their settings, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from fedrepro.config.loading import load
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.searches import half_decade
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.provenance import numerics
from fedrepro.workflow.checks import check_given, check_methods
from fedrepro.workflow.graph import Graph
from support.places import ROOT
from support.refusals import Fault, refused
from support.search_world import EXPERIMENT, FILE, SEARCH, settle

READING = "own/s@validation0.2"


def test_a_candidate_continues_no_run_of_the_unchanged_method(tmp_path: Path) -> None:
    methods = {"fedprox": {"mu": 0.1, "parent": "fedavg"}}
    bench = load(settle(tmp_path, methods=methods))
    target = bench.search("own", "grid", "demo")
    assert bench.parent_of(RunKey(target.setting, "fedprox", 1)) is not None
    for run in target.runs:
        assert bench.parent_of(run) is None


def test_a_candidate_is_an_ordinary_run(tmp_path: Path) -> None:
    """Of the setting, but for what clients keep out of training."""
    bench = load(settle(tmp_path))
    target = bench.search("own", "grid", "paper")
    assert [run.method for run in target.runs[::2]] == [
        "fedprox_mu0.0", "fedprox_mu0.1", "fedprox_mu1.0",
    ]  # fmt: skip
    assert {(run.setting, run.seed) for run in target.runs} == {(READING, 1), (READING, 2)}
    plain = bench.run_spec("own/s", "fedprox", 1).description()
    tried = bench.run_spec(READING, "fedprox_mu1.0", 1).description()
    assert tried.pop("partition") == plain.pop("partition") | {"validation": 0.2}
    differing = {key for key in plain.keys() | tried.keys() if plain.get(key) != tried.get(key)}
    assert differing == {"setting", "method", "hyperparameters"}
    assert tried["hyperparameters"] == {"fedprox": {"mu": 1.0}}
    setting = bench.setting(READING)
    assert setting.partition_path(1).parent.name.endswith("-validation0.2")
    # Without a search there is no such reading.
    with refused(key="setting", value="own/s@validation0.2"):
        load(settle(tmp_path, search={})).setting(READING)


def test_two_searches_of_a_setting_share_its_reading(tmp_path: Path) -> None:
    """Clients keep the same samples; each search has all its candidates, also where no name of a
    folder says a candidate's value.
    """
    words = {"method": "ima", "grid": {"scheme": ["a b", "exponential"]}}
    for name in ("first", "last"):  # the other search is `grid`
        other = SEARCH | {"methods": [words]}
        bench = load(settle(tmp_path, search={name: other, "grid": SEARCH}))
        values = [
            bench.run_spec(READING, run.method, 1).hyperparameters
            for each in (name, "grid")
            for run in bench.search("own", each, "paper").runs[::2]
        ]
        assert values == [
            {"ima": {"scheme": "a b"}}, {"ima": {"scheme": "exponential"}},
            *({"fedprox": {"mu": mu}} for mu in (0.0, 0.1, 1.0)),
        ]  # fmt: skip


def test_another_grid_makes_no_run_again(tmp_path: Path) -> None:
    """What Snakemake compares of a run is the same before and after."""

    class Wildcards:
        def __init__(self, **values: str) -> None:
            self.__dict__.update(values)

    def compared(**search: Any) -> dict[tuple[str, str], Any]:
        graph = Graph(load(settle(tmp_path, search)))
        found = {}
        for run in graph.bench.search("own", "grid", "paper").runs:
            cards = Wildcards(setting=run.setting, method=run.method, seed=str(run.seed))
            spec = graph.bench.spec_of(run)
            found[run.method, str(run.seed)] = (
                spec.digest,
                graph.inputs_of_run(cards),
                graph.parent_of_run(cards),
                numerics.of_run(spec),
            )
        return found

    before = compared()
    grid = {"halved": [False, True], "mu": [1.0, 0.0, 0.1, 5.0]}
    methods = [{"method": "fedprox", "grid": {"mu": [5.0, 1.0, 0.0, 0.1]}}]
    after = compared(methods=methods, title="Another", metric="loss")
    assert len(before) == 6 and len(after) == 8
    assert before.items() <= after.items()
    page = Graph(load(settle(tmp_path)))
    cards = Wildcards(system="own", item="grid")
    definition = page.page_definition(cards)
    inputs = page.inputs_of_page(cards)
    assert len(inputs) == 18 and inputs[0].endswith("fedprox_mu0.0/seed1/manifest.json")
    changed = Graph(load(settle(tmp_path, {"methods": methods})))
    assert changed.page_definition(cards) != definition
    # The order of the keys of a grid is no matter either.
    wide = [{"method": "fedprox", "grid": grid}]
    turned = [{"method": "fedprox", "grid": dict(reversed(grid.items()))}]
    assert compared(methods=wide) == compared(methods=turned)


def published(root: Path, **searched: Any) -> dict[str, Any]:
    bench = load(settle(root, {"methods": [searched]}))
    (trial,) = bench.search("own", "grid", "paper").trials
    assert trial.published in trial.candidates
    return dict(trial.published.values)


def test_the_published_choice_is_always_a_candidate(tmp_path: Path) -> None:
    assert published(tmp_path, method="fedprox", grid={"mu": [1.0]}) == {"mu": 0.1}  # `methods`
    assert published(tmp_path, method="qfedavg", grid={"q": [5.0]}) == {"q": 1.0}  # its default
    said = published(tmp_path, method="fedprox", grid={"mu": [0.5]}, published={"mu": 2})
    assert said == {"mu": 2}
    both = published(
        tmp_path, method="ima+fedprox", grid={"ima.window": [3], "fedprox.mu": [0.1, 1]}
    )
    assert both == {"ima.window": 5, "fedprox.mu": 0.1}
    # A code's reading has its own default.
    released = {"method": "qfedavg@released", "grid": {"sample_weighted": [True, False]}}
    assert published(tmp_path, **released) == {"sample_weighted": False}


def test_a_variant_can_be_searched(tmp_path: Path) -> None:
    methods = {"mine": {"variant_of": "fedprox", "mu": 0.3, "halved": True}}
    searched = {"methods": [{"method": "ima+mine@released", "grid": {"mine.mu": [0.7]}}]}
    bench = load(settle(tmp_path, searched, methods=methods))
    (grid, theirs) = bench.search("own", "grid", "paper").trials[0].candidates
    assert [grid.method, theirs.method] == ["ima+mine_mu0.7@released", "ima+mine_mu0.3@released"]
    spec = bench.run_spec(READING, grid.method, 1)
    assert spec.composition == "ima+fedprox@released"
    assert spec.hyperparameters == {"ima": {}, "fedprox": {"mu": 0.7, "halved": True}}


@pytest.mark.parametrize(
    ("search", "fault"),
    [
        ({"validation": 0}, Fault(key="grid.validation", value=0)),
        ({"validation": 1.0}, Fault(key="grid.validation", value=1.0)),
        ({"validation": "0.2"}, Fault(key="grid.validation", value="0.2")),
        ({"setting": "t"}, Fault(key="grid.setting", value="t")),
        ({"demo": "s@released"}, Fault(key="grid.demo", value="s@released")),
        ({"methods": []}, Fault(key="grid.methods", value=[])),
        ({"metric": {"quality": "stand_in"}}, Fault(key="grid.metric.quality", value="stand_in")),
        ({"metric": "ensemble_loss"}, Fault(key="grid.metric", names=("accuracy", "loss"))),
        (
            {"metric": {"of": "accuracy", "over_clients": "worst", "mix": "best"}},
            Fault(key="grid.metric", names="`mix: fixed`"),
        ),
        ({"metod": []}, Fault(code="unknown_key", key="grid.metod", near="methods")),
    ],
)
def test_a_wrong_search_is_one_line(tmp_path: Path, search: dict[str, Any], fault: Fault) -> None:
    with refused(file=str(FILE), **fault) as raised:
        load(settle(tmp_path, search))
    assert raised.value.key.startswith("search.")


@pytest.mark.parametrize(
    ("searched", "fault"),
    [
        ([{"method": "fedprox", "grid": {}}], Fault(key="methods.0.grid", value={})),
        ([{"method": "fedprox", "grid": {"mu": []}}], Fault(key="methods.0.grid.mu", value=[])),
        (
            [{"method": "fedprox", "grid": {"mu": [1, 2, 1]}}],
            Fault(key="methods.0.grid", value={"mu": [1, 2, 1]}, names="mu"),
        ),
        (
            [{"method": "fedprox", "grid": {"mu": [[1]]}}],
            Fault(key="methods.0.grid.mu.0", value=[1]),
        ),
        (
            [{"method": "fedprox", "grid": {"mu": [*range(40)], "nu": [*range(40)]}}],
            Fault(key="methods.0.grid", names="1,000"),
        ),
        (
            [{"method": "fedprox", "grid": {"mu": [mu]}} for mu in (1, 2)],
            Fault(key="search.grid", names=("fedprox", "twice")),
        ),
        (
            [{"method": "fedprox", "grid": {"mu": [1]}, "published": {"nu": 1}}],
            Fault(key="methods.fedprox.published", value="nu", near="mu"),
        ),
        (
            [{"method": "fedprox", "grid": {"muu": [1]}}],
            Fault(key="methods.fedprox.grid", value="muu", near="mu"),
        ),
        (
            [{"method": "ima+fedprox", "grid": {"mu": [1]}}],
            Fault(key="methods.ima+fedprox.grid", value="mu", names=("ima", "fedprox")),
        ),
        (
            [{"method": "fedprox", "grid": {"fedavg.mu": [1]}}],
            Fault(key="methods.fedprox.grid", value="fedavg.mu"),
        ),
        (
            [{"method": "fedprox", "grid": {"mu": [1e-300]}}],
            Fault(key="methods.fedprox.grid", names="120"),
        ),
        (
            [{"method": "fedprox", "grid": {"mu": ["a-b", "a/b"]}}],
            Fault(key="methods.fedprox.grid", value="fedprox_mua_b"),
        ),
        (  # not that its values are missing, which no method of this name has
            [{"method": "fedprx", "grid": {"mu": [1]}}],
            Fault(key="methods.fedprx", value="fedprx", names="fedprox"),
        ),
        (
            [{"method": "ima+fedprx", "grid": {"fedprx.mu": [1]}}],
            Fault(key="methods.ima+fedprx", value="fedprx"),
        ),
    ],
)
def test_a_wrong_grid_is_one_line(tmp_path: Path, searched: list[Any], fault: Fault) -> None:
    with refused("value", file=str(FILE), **fault) as raised:
        load(settle(tmp_path, {"methods": searched}))
    assert raised.value.key.startswith("search.grid")


def test_what_only_composing_shows_is_one_line(tmp_path: Path) -> None:
    for searched, fault in (
        ({"method": "fedprox", "grid": {"mu": [-1]}}, Fault(key="mu", value=-1)),
        ({"method": "wgan_gp", "grid": {"penalty": [1]}}, Fault(key="method", value="wgan_gp")),
    ):
        bench = load(settle(tmp_path, {"methods": [searched]}))
        with refused("value", file=f"search.grid.methods.{searched['method']}", **fault):
            check_methods(bench)


def test_nothing_that_saw_the_validation_samples_is_given(tmp_path: Path) -> None:
    """Inputs that clients train are trained again, without those samples, or are refused."""
    source = {"setting": "s", "method": "fedevg"}
    searched = {"methods": [{"method": "feddf", "grid": {"server_rate": [2.0]}}]}

    def bench(inputs: dict[str, Any], others: dict[str, Any]) -> Workbench:
        own = EXPERIMENT["settings"]["s"]
        settings = {"s": own | {"inputs": inputs}, "t": own | {"inputs": others}}
        return load(settle(tmp_path, searched, settings=settings))

    made = bench({"unlabelled": source}, {})
    check_given(made)
    for run in made.search("own", "grid", "paper").runs:
        spec = made.spec_of(run)
        assert spec.inputs_that_saw_held_out == []
        given = spec.inputs["unlabelled"]
        assert isinstance(given, RunSpec)
        assert given.setting.partition == spec.setting.partition
        assert given.setting.partition.validation
    assert made.run_spec("own/s", "fedevg", 1).setting.partition.validation == 0
    with refused(key="feddf_server_rate2.0", value="unlabelled"):  # of other clients
        check_given(bench({"unlabelled": {**source, "seed": 7}}, {}))
    with refused(key="feddf_server_rate2.0", value="unlabelled"):  # one step further away
        inputs = {"unlabelled": {"setting": "t", "method": "generated"}}
        check_given(bench(inputs, {"generator": {**source, "seed": 7}}))


def test_a_variant_in_a_circle_and_a_name_that_is_taken(tmp_path: Path) -> None:
    methods = {"a": {"variant_of": "b"}, "b": {"variant_of": "a"}}
    bench = load(settle(tmp_path, methods=methods))
    with refused(names=("methods", "variant_of")):
        bench.run_spec("own/s", "a", 1)
    taken = {"fedprox": {"mu": 0.1}, "fedprox_mu1.0": {"variant_of": "fedprox", "mu": 2.0}}
    with refused(key="search.grid.methods.fedprox.grid", value="fedprox_mu1.0"):
        load(settle(tmp_path, methods=taken))
    taken["fedprox_mu1.0"]["mu"] = 1.0  # the candidate itself, by hand
    assert load(settle(tmp_path, methods=taken)).run_spec("own/s", "fedprox_mu1.0", 1)
    own = EXPERIMENT["settings"]["s"]
    settings = {"s": own | {"partition": {**own["partition"], "validation": 0.1}}}
    with refused(key="settings.s.partition.validation", value=0.1, names="partition.validation"):
        load(settle(tmp_path, settings=settings))


def test_the_demo_search_is_cheap() -> None:
    target = load(ROOT).search("aaggff", "search_heart", "demo")
    assert len(target.runs) <= 6


def test_a_name_does_not_depend_on_the_order_of_values(tmp_path: Path) -> None:
    """Else the same run would be made twice."""
    bench = load(settle(tmp_path))
    values: list[dict[str, Any]] = [{"mu": 0.5, "halved": True}, {"halved": True, "mu": 0.5}]
    names = {bench.with_variant(bench.setting("own/s"), "fedprox", each)[2] for each in values}
    assert len(names) == 1


@pytest.mark.parametrize(
    "values", [{"mu": 0.25}, {"mu": -3, "halved": True}, {"mu": 1e-7, "halved": None}]
)
def test_a_run_with_values_of_its_own_is_found_by_its_name(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    """What `run --set` has made can be read, continued and made again."""
    bench = load(settle(tmp_path))
    changed, _, name = bench.with_variant(bench.setting("own/s"), "fedprox", values)
    for method in (name, f"ima+{name}"):
        spec = bench.run_spec("own/s", method, 1)
        assert spec.description() == changed.run_spec("own/s", method, 1).description()
        assert spec.hyperparameters["fedprox"] == values
        assert bench.parent_of(RunKey("own/s", name, 1)) is None


@pytest.mark.parametrize(
    "name", ["fedprox_nu0.1", "fedprox_mu", "fedprox_mu0.1_mu0.2", "fedprox_mu010", "mu0.1"]
)
def test_what_is_no_hyperparameter_s_value_is_no_name(tmp_path: Path, name: str) -> None:
    bench = load(settle(tmp_path))
    assert bench.run_spec("own/s", name, 1).composition == name  # refused when it is looked up


def test_a_table_of_published_settings_only_and_a_method_with_a_value(tmp_path: Path) -> None:
    root = settle(tmp_path)
    (root / "config/experiments/pub.yaml").write_text(
        "system: pub\ntitle: Published settings\npaper: none\ntables:\n  t:\n    title: One\n"
        "    rows: [{ label: Theirs, setting: own/s }]\n"
        "    columns: [{ label: FedProx, method: fedprox_mu0.5 }]\n",
        encoding="utf-8",
    )
    bench = load(root)
    (run, *_) = bench.table("pub", "t").runs
    spec = bench.run_spec(run.setting, run.method, run.seed)
    assert spec.setting.name == "own/s" and spec.hyperparameters == {"fedprox": {"mu": 0.5}}


KEYS = {"optimizer.lr": [0.01, 0.03], "epochs": [1]}


def test_a_setting_s_keys_are_searched(tmp_path: Path) -> None:
    """Every candidate is a run of the setting with other values of these keys, and of no others."""
    searched = [{"method": "fedavg", "keys": KEYS, "published": {"optimizer.lr": 0.1}}]
    bench = load(settle(tmp_path, {"methods": searched}))
    target = bench.search("own", "grid", "paper")
    assert [run.setting.removeprefix(READING) for run in target.runs[::2]] == [
        "_epochs1_optimizer.lr0.01", "_epochs1_optimizer.lr0.03", "_epochs1_optimizer.lr0.1",
    ]  # fmt: skip
    plain = bench.run_spec(READING, "fedavg", 1).description()
    tried = bench.run_spec(target.runs[0].setting, "fedavg", 1).description()
    differing = {key for key in plain.keys() | tried.keys() if plain.get(key) != tried.get(key)}
    assert differing == {"setting", "optimizer"}
    assert plain["optimizer"] | {"lr": 0.01} == tried["optimizer"]


def test_keys_and_hyperparameters_are_searched_together(tmp_path: Path) -> None:
    searched = [{"method": "fedprox", "keys": {"optimizer.lr": [1.0]}, "grid": {"mu": [0.0, 1.0]}}]
    bench = load(settle(tmp_path, {"methods": searched}))
    runs = {(run.setting, run.method) for run in bench.search("own", "grid", "paper").runs}
    name = f"{READING}_optimizer.lr1.0"
    assert {(name, "fedprox_mu0.0"), (name, "fedprox_mu1.0")} < runs
    assert bench.run_spec(name, "fedprox_mu1.0", 1).hyperparameters == {"fedprox": {"mu": 1.0}}


@pytest.mark.parametrize(
    "searched",
    [
        {"method": "fedavg", "grid": {"lr": [0.01, 1.0]}},
        {"method": "fedavg", "grid": {"optimizer.lr": [0.01, 1.0]}, "published": {"lr": 0.1}},
        {"method": "fedavg", "keys": {"lr": [0.01, 1.0]}},
    ],
)
def test_a_grid_may_have_keys_of_the_setting_and_short_names(
    tmp_path: Path, searched: dict[str, Any]
) -> None:
    full = {"method": "fedavg", "keys": {"optimizer.lr": [0.01, 1.0]}}
    short, long = (
        load(settle(tmp_path / name, {"methods": [each]})).search("own", "grid", "paper")
        for name, each in (("short", searched), ("long", full))
    )
    assert short.runs == long.runs
    assert f"{READING}_optimizer.lr1.0" in {run.setting for run in short.runs}


def test_in_a_grid_a_name_of_both_is_the_hyperparameter_s(tmp_path: Path) -> None:
    searched = [{"method": "fedavg+fedadam", "grid": {"fedadam.lr": [0.5], "optimizer.lr": [0.2]}},
                {"method": "afl", "grid": {"lr": [0.3]}}]  # fmt: skip
    runs = load(settle(tmp_path, {"methods": searched})).search("own", "grid", "paper").runs
    names = {(run.setting.removeprefix(READING), run.method) for run in runs}
    assert ("_optimizer.lr0.2", "fedavg+fedadam_lr0.5") in names
    assert ("", "afl_lr0.3") in names


def test_values_of_the_setting_itself_do_not_make_candidates_again(tmp_path: Path) -> None:
    """The selected rate is written into the setting after the search."""
    searched = {"methods": [{"method": "fedavg", "keys": {"optimizer.lr": [0.01, 0.1]}}]}

    def described(rate: float) -> list[dict[str, Any]]:
        settings = {"s": EXPERIMENT["settings"]["s"] | {"optimizer": {"lr": rate}}}
        bench = load(settle(tmp_path, searched, settings=settings))
        runs = bench.search("own", "grid", "paper").runs
        return [bench.run_spec(run.setting, run.method, run.seed).description() for run in runs]

    assert described(0.1) == described(0.01)


@pytest.mark.parametrize(
    ("keys", "key", "value"),
    [
        ({}, "methods.0.keys", {}),
        ({"optimizer.rate": [1.0]}, "methods.fedavg.keys", "optimizer.rate"),
        ({"clients": [1.0]}, "methods.fedavg.keys", "clients"),
        ({"lr": [1.0], "optimizer.lr": [2.0]}, "methods.fedavg.keys", "lr"),
        ({"optimizer": [1.0]}, "methods.fedavg.keys", "optimizer"),
        ({"partition.validation": [0.1]}, "methods.fedavg.keys", "partition.validation"),
        ({"optimizer.lr": [0.1, -0.1]}, "methods.fedavg.keys.optimizer.lr", -0.1),
        ({"epochs": [0]}, "methods.fedavg.keys.epochs", 0),
    ],
)
def test_a_wrong_key_is_one_line(
    tmp_path: Path, keys: dict[str, Any], key: str, value: object
) -> None:
    with refused("value", file=str(FILE), key=f"search.grid.{key}", value=value) as raised:
        load(settle(tmp_path, {"methods": [{"method": "fedavg", "keys": keys}]}))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("value", [0.01, 0.3, 1.0, 30, 10, 0.0316, 7.5, 1e-5])
def test_half_decades_lead_up_and_back(value: float) -> None:
    up, down = half_decade(value, up=True), half_decade(value, up=False)
    assert up is not None and down is not None and down < value < up
    assert all(f"{each:e}"[0] in "13" and set(f"{each:e}"[2:8]) == {"0"} for each in (up, down))
    assert half_decade(down, up=True) == (value if f"{value:e}"[0:3] in ("1.0", "3.0") else up)


def test_nothing_is_a_half_decade_below_zero() -> None:
    assert half_decade(0.0, up=True) is half_decade(0.0, up=False) is None
    assert half_decade(1, up=False) is None and half_decade(3, up=False) == 1


def test_a_search_gets_no_further_than_its_key(tmp_path: Path) -> None:
    searched = [{"method": "fedavg", "keys": {"participation": [0.3, 1.0]}}]
    bench = load(settle(tmp_path, {"methods": searched}))
    assert f"{READING}_participation0.1" in bench.settings
    assert f"{READING}_participation3.0" not in bench.settings
