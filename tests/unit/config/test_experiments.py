"""What follows from the experiment files: settings, tables, runs."""

import json
from pathlib import Path

import pytest

from fedrepro.cli.configuration import SCHEMAS, text_of
from fedrepro.config.config_file import Seeds
from fedrepro.config.experiment import Experiment
from fedrepro.config.loading import load
from fedrepro.config.tables import Place
from fedrepro.config.targets import RunKey
from fedrepro.config.values import SCALES, Scale
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells import tables
from fedrepro.report.papers import published
from fedrepro.support.typed_yaml import validate
from support.places import ROOT
from support.refusals import refused


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
        ("cifar10-resnet-shards2", "cifar10", "ima_resnet18", 400),
        ("cifar10-resnet-dirichlet0.1", "cifar10", "ima_resnet18", 400),
        ("cifar100-vgg-pachinko", "cifar100_superclasses", "ima_vgg11", 300),
        ("cifar100-resnet-pachinko", "cifar100_superclasses", "ima_resnet18", 400),
        ("digit_five-labels2", "digit_five", "ima_digits_cnn", 200),
        ("digit_five-dirichlet0.1", "digit_five", "ima_digits_cnn", 200),
        ("pacs-shards2", "pacs", "ima_alexnet", 400),
        ("pacs-dirichlet0.1", "pacs", "ima_alexnet", 400),
    ],
)
def test_ima_settings_are_those_of_its_table_vii(
    bench: Workbench, name: str, dataset: str, model: str, rounds: int
) -> None:
    run = bench.run_spec(f"ima/{name}", "ima+fedavg", 1).description()
    assert (run["dataset"], run["model"], run["rounds"]) == (dataset, model, rounds)
    domains = {"digit_five": 5, "pacs": 4}.get(dataset, 1)
    dealt = run["partition"]["within"] if domains > 1 else run["partition"]
    assert dealt["clients"] * domains == (80 if dataset == "pacs" else 100)
    share = 0.2 if dataset == "pacs" else 0.1
    assert (run["participation"], run["epochs"], run["batch_size"]) == (share, 5, 50)
    assert run["optimizer"] == {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.001}
    assert run["lr_decay"] == 0.99
    assert run["hyperparameters"]["ima"] == {"window": 5, "start": 0.75, "decay": 0.03}
    if "dirichlet" in name:
        assert (dealt["alpha"], dealt["minimum"]) == (0.1, 10)
    elif "pachinko" in name:
        assert (dealt["coarse"], dealt["fine"]) == (0.1, 10)
    else:
        assert dealt["classes_per_client"] == 2
    scored = {"groups": True, "per_class": 1000} if domains > 1 else {}
    assert run["evaluate"] == {"every": 1, "clients": False, **scored}
    sharpness = bench.run_spec(f"ima/{name}", "fedasam", 1).description()["hyperparameters"]
    small = {"rho": 0.7, "eta": 0.2} if model.endswith("cnn") else {"rho": 0.2, "eta": 0.05}
    assert sharpness == {"fedasam": small}  # Table V


def test_table_1_has_the_same_rows_and_columns_at_both_scales(bench: Workbench) -> None:
    paper, demo = bench.table("ima", "table_1", "paper"), bench.table("ima", "table_1", "demo")
    labels = [(cell.row.label, cell.column.label) for cell in paper.cells]
    assert labels == [(cell.row.label, cell.column.label) for cell in demo.cells]
    assert len(labels) == 12 * 16
    assert len(demo.runs) == 2 * 16  # two settings stand in for all rows
    # FedProx, FedFA and their IMA twins have three coefficients each.
    assert len(paper.runs) == 12 * (16 + 4 * 2) * 3
    assert all(run.setting.endswith("-demo") for run in demo.runs)
    assert not {run.folder for run in demo.runs} & {run.folder for run in paper.runs}


def test_every_printed_cell_of_ima_has_a_target(bench: Workbench) -> None:
    papers = published.load(ROOT)
    for (_, item), cells in papers.tables.items():
        if cells and cells[0].system == "ima":
            target = bench.table("ima", item, "paper")
            found = [tables.printed_cell(target, cell, papers) for cell in target.cells]
            assert None not in found
            assert {cell.name for cell in cells} == {cell.name for cell in found if cell}


def test_tables_2_and_3_of_ima_wrap_the_methods_of_table_1(bench: Workbench) -> None:
    wanted = {name: bench.table("ima", f"table_{name}", "paper") for name in "123"}
    alone = {run for run in wanted["1"].runs if run.setting == "ima/cifar10-cnn-dirichlet0.1"}
    # Six methods, of which two have three coefficients, from three further rounds; eight methods
    # with four further schedules.
    assert len(set(wanted["2"].runs) - alone) == (6 + 4) * 3 * 3
    assert len(set(wanted["3"].runs) - alone) == (8 + 4) * 4 * 3
    faster = next(cell for cell in wanted["2"].cells if cell.row.label == "IMA from 150, speed-up")
    assert (faster.methods, faster.rivals) == (("ima_150+fedavg",), ("fedavg",))
    for name, start in (("ima_150", 150), ("ima_200", 200), ("ima_250", 250), ("ima", 300)):
        spec = bench.run_spec("ima/cifar10-cnn-dirichlet0.1", f"{name}+fedavg", 1)
        assert spec.hyperparameters["ima"]["start"] * spec.setting.rounds == start
    readings = (bench.table("ima", f"table_{number}_released", "paper") for number in "13")
    released = [cell for reading in readings for cell in reading.cells]
    soft = ("fedgma",)  # the mask of Tenison et al., beside the released code
    assert len({cell.methods for cell in released} - {soft}) == 4 + 16
    names = {method for cell in released for method in cell.methods} - {*soft}
    assert all("@released" in method for method in names)
    cyclic = bench.run_spec("ima/cifar10-cnn-dirichlet0.1", "ima_cyclic+fedfa", 1)
    assert cyclic.hyperparameters["ima"]["scheme"] == "cyclic"


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
    run = RunKey("ima/fmnist-shards2", "ima+fedavg", 1)
    assert run.folder == Path("results/runs/ima/fmnist-shards2/ima+fedavg/seed1")
    partition = bench.setting("ima/fmnist-shards2").partition_path(2)
    assert partition == Path("results/partitions/fmnist/shards-clients100-classes2/seed2.npz")


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_those_of_the_models(name: str) -> None:
    written = (ROOT / "config/schema" / name).read_text(encoding="utf-8")
    assert written == text_of(SCHEMAS[name]), "run `fedrepro schema`"


def test_seeds_of_ones_own_come_before_the_system_s() -> None:
    bench = load(ROOT)
    system = next(name for name, each in bench.experiments.items() if each.seeds)
    own = Seeds(demo=[77], paper=[78, 79])
    assert bench.seeds("demo", system, own) == (77,)
    assert bench.seeds("paper", system, own) == (78, 79)
    assert bench.seeds("paper", system) != (78, 79)


@pytest.mark.parametrize(
    ("scale", "column_setting", "setting"),
    [
        ("paper", "other", "row-other"), ("demo", "other", "small"),
        ("paper", "*-x", "row-x"), ("demo", "*-x", "small-x"), ("demo", None, "small"),
    ],
)  # fmt: skip
def test_a_column_s_setting_is_not_put_in_place_of_a_demo(
    scale: Scale, column_setting: str | None, setting: str
) -> None:
    place = Place(label="A", setting="row", demo="small")
    entries = {"B": column_setting.replace("other", "row-other")} if column_setting else {}
    assert place.setting_for("B", scale, entries) == setting


def test_the_runs_of_a_setting_are_those_of_all_tables_and_figures(bench: Workbench) -> None:
    """Found without building the tables that do not have it."""
    targets = [target for scale in SCALES for target in bench.targets(scale).values()]
    every = {run for target in targets for run in target.runs}
    for setting in sorted(bench.settings)[::12]:
        assert bench.runs_of(setting, SCALES) == {run for run in every if run.setting == setting}


@pytest.mark.parametrize("name", ["methods", "compare", "runs", "claims", "reference", "assets"])
def test_a_system_is_not_called_as_a_folder_of_other_pages(name: str) -> None:
    content = {"system": name, "title": "T", "paper": "none"}
    with refused(key="system"):
        validate(Experiment, content, "x.yaml")
    assert validate(Experiment, content | {"system": "own"}, "x.yaml").system == "own"
