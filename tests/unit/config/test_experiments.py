"""What follows from the experiment files: settings, tables, runs."""

import csv
import json
from pathlib import Path

import pytest

from fedrepro.cli.schema import SCHEMAS, text_of
from fedrepro.config.loading import load
from fedrepro.config.targets import Run
from fedrepro.config.workbench import Workbench
from support.places import ROOT


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return load(ROOT)


def test_an_extending_setting_takes_over_what_it_does_not_give(bench: Workbench) -> None:
    base, extended = bench.setting("ima/fmnist-shards2"), bench.setting("ima/cifar10-cnn-shards2")
    assert (extended.dataset, extended.rounds) == ("cifar10", 400)
    assert extended.optimizer == base.optimizer
    assert extended.partition == base.partition


@pytest.mark.parametrize(
    ("name", "dataset", "model", "rounds"),
    [
        ("fmnist-shards2", "fmnist", "ima_fmnist_cnn", 300),
        ("fmnist-dirichlet0.1", "fmnist", "ima_fmnist_cnn", 300),
        ("cifar10-cnn-shards2", "cifar10", "ima_cifar_cnn", 400),
        ("cifar10-cnn-dirichlet0.1", "cifar10", "ima_cifar_cnn", 400),
    ],
)
def test_ima_settings_are_those_of_its_table_vii(
    bench: Workbench, name: str, dataset: str, model: str, rounds: int
) -> None:
    run = bench.run_spec(f"ima/{name}", "ima+fedavg", 1).description()
    assert (run["dataset"], run["model"], run["rounds"]) == (dataset, model, rounds)
    assert run["partition"]["clients"] == 100
    assert (run["participation"], run["epochs"], run["batch_size"]) == (0.1, 5, 50)
    assert run["optimizer"] == {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.001}
    assert run["lr_decay"] == 0.99
    assert run["hyperparameters"]["ima"] == {"window": 5, "start": 0.75, "decay": 0.03}
    if "dirichlet" in name:
        assert (run["partition"]["alpha"], run["partition"]["minimum"]) == (0.1, 10)
    else:
        assert run["partition"]["classes_per_client"] == 2


def test_table_1_has_the_same_rows_and_columns_at_both_scales(bench: Workbench) -> None:
    paper, demo = bench.table("ima", "table_1", "paper"), bench.table("ima", "table_1", "demo")
    labels = [(cell.row.label, cell.column.label) for cell in paper.cells]
    assert labels == [(cell.row.label, cell.column.label) for cell in demo.cells]
    assert len(labels) == 4 * 10
    assert len(demo.runs) == 40
    assert len(paper.runs) == 4 * 14 * 3  # FedProx and its IMA twin have three coefficients each
    assert all(run.setting.endswith("-demo") for run in demo.runs)
    assert not {run.folder for run in demo.runs} & {run.folder for run in paper.runs}


def test_every_cell_of_table_1_has_a_printed_value(bench: Workbench) -> None:
    printed = set()
    for path in sorted((ROOT / "reports/papers").rglob("cells.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                printed.add((row["dataset"], row["setting"], row["method"]))
    for cell in bench.table("ima", "table_1", "paper").cells:
        where = cell.row.published
        assert (where["dataset"], where["setting"], cell.column.published) in printed


def test_a_variant_is_resolved_to_the_part_it_uses(bench: Workbench) -> None:
    run = bench.run_spec("ima/fmnist-shards2", "ima+fedprox_mu0.1@released", 7).description()
    assert run["method"] == "ima+fedprox_mu0.1@released"
    assert run["composition"] == "ima+fedprox@released"
    assert run["hyperparameters"]["fedprox"] == {"mu": 0.1}
    assert run["seed"] == 7


def test_a_description_is_json(bench: Workbench) -> None:
    run = bench.run_spec("ima/fmnist-shards2", "fedadam", 1).description()
    assert json.loads(json.dumps(run)) == run


def test_runs_and_tables_know_their_files(bench: Workbench) -> None:
    table = bench.table("ima", "table_1", "demo")
    assert table.path == Path("results/tables/demo/ima/table_1.json")
    assert table.page == Path("reports/site/ima/table_1.html")
    run = Run("ima/fmnist-shards2", "ima+fedavg", 1)
    assert run.folder == Path("results/runs/ima/fmnist-shards2/ima+fedavg/seed1")
    partition = bench.setting("ima/fmnist-shards2").partition_path(2)
    assert partition == Path("results/partitions/fmnist/shards-clients100-classes2/seed2.npz")


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_those_of_the_models(name: str) -> None:
    written = (ROOT / "config/schema" / name).read_text(encoding="utf-8")
    assert written == text_of(SCHEMAS[name]), "run `fedrepro schema`"
