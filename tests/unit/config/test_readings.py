"""A setting's released reading: what it holds, how one asks for it, what a run of it does."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedrepro.config.loading import load
from fedrepro.config.metrics import OverClients
from fedrepro.config.settings import Setting
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.data.partition.schemes import Dirichlet
from fedrepro.engine.round import choose_cohort
from fedrepro.papers.superfed.cohorts_numpy_legacy import sampler
from fedrepro.report.cells import coverage
from fedrepro.report.cells.readings import Readings
from fedrepro.report.cells.tables import compute
from fedrepro.report.papers import published
from fedrepro.run.schedules import schedule
from fedrepro.support.errors import UserError
from fedrepro.support.typed_yaml import WHOLE_FILE, validate
from support.places import ROOT
from support.refusals import Fault, refused
from support.tiny_run import carry_out, run_spec
from support.worlds import federation

SUPERFED = Path("config/experiments/superfed.yaml")


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return load(ROOT)


def test_the_text_has_99_percent_and_the_scripts_999_per_mille(bench: Workbench) -> None:
    text, released = (
        bench.run_spec(f"superfed/mnist-500{reading}", "pfedme@released", 1).description()
        for reading in ("", "@released")
    )
    # The text's runs are what they were before there were readings.
    assert not {"released", "cohorts", "decay_from"} & text.keys()
    assert {key: value for key, value in released.items() if text.get(key) != value} == {
        "setting": "superfed/mnist-500@released",
        "lr_decay": 0.999,
        "decay_from": 1,
        "cohorts": {"stream": "numpy_legacy", "seed": 5959},
    }


def test_a_setting_takes_over_what_is_released_of_the_one_it_extends(bench: Workbench) -> None:
    for data, decay in (
        ("femnist", 0.995),
        ("shakespeare", 0.995),
        ("tiny_imagenet-alpha10", 0.999),
    ):
        setting = bench.setting(f"superfed/{data}@released")
        assert (setting.lr_decay, setting.decay_from, setting.cohorts) == (decay, 1, None)
    noisy = bench.setting("superfed/cifar10-noise-symmetric0.6@released")
    assert noisy.noise and (noisy.noise.kind, noisy.noise.rate) == ("pair", 0.6)
    assert noisy.noise.everywhere and noisy.lr_decay == 0.999
    assert isinstance(noisy.partition, Dirichlet) and noisy.partition.alpha == 100
    late = bench.setting("superfed/cifar10-start0.2@released")
    assert late.rounds == 300 and late.methods["superfed_mm"]["nu"] == 1.0


def test_a_reading_continues_the_same_reading_of_its_parent(bench: Workbench) -> None:
    for reading in ("", "@released"):
        for run, parent in (
            (f"superfed_mm{reading}", f"fedprox{reading}"),
            (f"superfed_mm{reading}+fedyogi@released", f"fedprox{reading}+fedyogi@released"),
            (f"ima{reading}+scaffold@released", "scaffold@released"),
        ):
            for setting in ("superfed/mnist-500", "superfed/mnist-500@released"):
                found = bench.parent_of(RunKey(setting, run, 7))
                assert found == RunKey(setting, parent, 7)


def test_every_number_stands_in_the_ledger(bench: Workbench) -> None:
    known = {(entry.system, entry.number) for entry in published.load(ROOT).ledger}
    stated = {
        (system, number)
        for system, experiment in bench.experiments.items()
        for setting in experiment.settings.values()
        for number in setting.released
    }
    assert len(stated) >= 5
    assert stated <= known


def test_tables_ask_for_either_reading(bench: Workbench) -> None:
    table = bench.table("superfed", "table_2_3_released", "paper")
    needed = {(run.setting, run.method) for run in table.runs}
    for clients in (50, 100, 500):
        for reading in ("", "@released"):
            assert (f"superfed/mnist-{clients}{reading}", "pfedme@released") in needed
    demo = bench.table("superfed", "table_2_3_released", "demo")
    assert {run.setting for run in demo.runs} == {"superfed/mnist5k-demo"}


def test_what_stands_in_is_no_released_reading_of_a_printed_cell(
    bench: Workbench, tmp_path: Path
) -> None:
    bench = replace(bench, root=tmp_path)
    papers = published.load(ROOT)
    entry = bench.datasets["mnist"].model_copy(update={"surrogate_for": "fmnist"})
    marked = replace(bench, datasets={**bench.datasets, "mnist": entry})
    for each, cells in ((bench, 66), (marked, 33)):
        table = compute(each, each.table("superfed", "table_2_3_released", "paper"), papers)
        found = coverage.count_released(
            Readings(each, papers, {("superfed", "table_2_3_released"): table})
        )
        assert found["superfed"]["printed"] == cells


@pytest.mark.parametrize("item", ["table_2_3_released", "table_2_6_released"])
def test_released_settings_are_measured_as_released(bench: Workbench, item: str) -> None:
    """Over mini-batches (item 24), where settings are the released ones and nowhere else."""
    table = bench.table("superfed", item, "paper").table
    for row in table.rows:
        metric = table.metric_of(row)
        assert isinstance(metric, OverClients)
        assert metric.of.endswith("_batch") == row.setting.endswith("@released"), row.label
        assert (metric.over_clients, metric.weighted) == ("average", False)


def asked_for(bench: Workbench, name: str) -> str:
    with pytest.raises(UserError) as caught:
        bench.setting(name)
    return str(caught.value)


def test_a_reading_that_is_not_there(bench: Workbench, tmp_path: Path) -> None:
    with refused(
        "value",
        file="config/experiments/ima.yaml",
        key="setting",
        value="ima/fmnist-shards2@released",
        names=("`released`", "ima/fmnist-shards2"),
    ):
        bench.setting("ima/fmnist-shards2@released")
    with refused("value", key="setting", near="superfed/mnist-500@released"):
        bench.setting("superfed/mnist-500@relased")
    written = (ROOT / SUPERFED).read_text(encoding="utf-8")
    row = 'setting: "mnist-{clients}@released"\n        demo: mnist5k-demo'
    assert row in written
    (tmp_path / SUPERFED.parent).mkdir(parents=True)
    for name in ("config.yaml", "datasets.yaml"):
        (tmp_path / "config" / name).symlink_to(ROOT / "config" / name)
    wrong = written.replace(row, row + "@released", 1)
    (tmp_path / SUPERFED).write_text(wrong, encoding="utf-8")
    names = ("tables.table_2_3_released.rows.MNIST", "`released`")
    with refused(file=str(SUPERFED), value="mnist5k-demo@released", names=names) as raised:
        load(tmp_path)
    assert raised.value.key.endswith(" settings.demo")


@pytest.mark.parametrize(
    ("released", "fault"),
    [
        ({"22": {"lr_decy": 0.9}}, Fault(code="unknown_key", key="released.22.lr_decy")),
        ({"22": {"lr_decay": 2}}, Fault(key="released.22.lr_decay", value=2)),
        ({"22": {"decay_from": 2}}, Fault(key="released.22.decay_from", value=2)),
        (
            {"22": {"rounds": 3}, "30": {"rounds": 4}},
            Fault(code="value", key=WHOLE_FILE, names="`released`"),
        ),
    ],
)
def test_faults_are_one_line(released: object, fault: Fault) -> None:
    values = {"lr": 0.1}
    setting = {
        "dataset": "a", "partition": {"scheme": "iid", "clients": 2}, "model": "b", "rounds": 1,
        "participation": 1, "epochs": 1, "batch_size": 1, "optimizer": values,
    }  # fmt: skip
    with refused(file="x.yaml", **fault) as raised:
        validate(Setting, setting | {"released": released}, "x.yaml")
    assert "\n" not in str(raised.value)


def test_rates_from_the_first_round_on() -> None:
    rates = schedule(0.01, 0.999, first=1)
    assert [rates(round) for round in (0, 499)] == pytest.approx([0.00999, 0.01 * 0.999**500])
    assert schedule(0.01, 0.99)(0) == 0.01


def test_a_run_has_these_rates_and_cohorts(tmp_path: Path) -> None:
    spec = run_spec(
        "fedavg",
        lr_decay=0.5,
        decay_from=1,
        rounds=4,
        cohorts={"stream": "numpy_legacy", "seed": 7},
        evaluate={"every": 1, "clients": False},
    )
    carry_out(tmp_path / "x", spec)
    rounds = pd.read_parquet(tmp_path / "x" / "rounds.parquet")
    assert rounds["learning_rate"].tolist() == [0.05, 0.025, 0.0125, 0.00625]
    clients = pd.read_parquet(tmp_path / "x" / "clients.parquet")
    drawn = np.random.RandomState(7)
    wanted = [sorted(drawn.choice(6, 3, replace=False)) for _ in range(4)]
    assert [group["client"].tolist() for _, group in clients.groupby("round")] == wanted


def test_participations_are_those_of_the_stream(tmp_path: Path) -> None:
    spec = run_spec(
        "fedavg",
        rounds=4,
        cohorts={"stream": "numpy_legacy", "seed": 7},
        evaluate={"every": 4, "clients": True},
    )
    carry_out(tmp_path / "x", spec)
    clients = pd.read_parquet(tmp_path / "x" / "clients.parquet")
    drawn = np.random.RandomState(7)
    cohorts = np.concatenate([drawn.choice(6, 3, replace=False) for _ in range(4)])
    assert clients["participations"].tolist() == np.bincount(cohorts, minlength=6).tolist()


def test_the_cohorts_that_superfed_s_scripts_drew() -> None:
    """Of 100 clients in round 500, found beside the released scripts (item 45 of the ledger)."""
    world = federation("fedavg")
    known = replace(
        world,
        context=replace(world.context, clients=100, rounds=500, cohort_size=5),
        sample_cohort=sampler(5959, 100, 5, 500),
    )
    assert choose_cohort(known, 499) == [6, 66, 80, 87, 97]
    assert len({tuple(choose_cohort(known, round)) for round in range(500)}) == 500
    everyone = replace(known, context=replace(known.context, cohort_size=100))  # is not sampled
    assert choose_cohort(everyone, 3) == list(range(100))
