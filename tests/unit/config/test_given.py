"""What settings give is resolved, or refused in one line, before anything runs."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedrepro.config.loading import load
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.settings import ArtifactFromData
from fedrepro.workflow.checks import check_given
from fedrepro.workflow.graph import Graph
from support.given_experiment import EXPERIMENT
from support.given_run import METHODS
from support.places import ROOT
from support.refusals import Fault, refused


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDREPRO_METHODS", str(METHODS))
    (tmp_path / "config/experiments").mkdir(parents=True)
    shutil.copy(ROOT / "config/datasets.yaml", tmp_path / "config")
    (tmp_path / "config/config.yaml").write_text("scale: demo\n")
    (tmp_path / "config/experiments/ima.yaml").write_text(EXPERIMENT)
    return tmp_path


def test_data_and_files_that_are_given_are_part_of_a_run(root: Path) -> None:
    """And, of data, an input of its job; a file's content counts by its SHA-256."""

    def run(source: str) -> RunSpec:
        text = EXPERIMENT.replace("unlabelled: server", f"unlabelled: {source}")
        (root / "config/experiments/ima.yaml").write_text(text)
        return load(root).run_spec("ima/taught", "taught", 3)

    def described(source: str) -> str:
        return str(run(source).description()["given"]["unlabelled"])

    for source, share in (("{dataset: fmnist}", 1.0), ("{dataset: fmnist, share: 0.5}", 0.5)):
        assert run(source).inputs["unlabelled"] == ArtifactFromData(dataset="fmnist", share=share)
        assert described(source).endswith(f" fmnist share {share:g}")
    wildcards = SimpleNamespace(setting="ima/taught", method="taught", seed="3")
    assert "results/data/fmnist/meta.json" in Graph(load(root)).inputs_of_run(wildcards)
    known = "a" * 64
    assert described(f"{{file: x.safetensors, sha256: {known}}}") == f"file {known}"
    assert described("{file: x.safetensors}") == "file None"
    assert "x.safetensors" not in Graph(load(root)).inputs_of_run(wildcards)


def test_a_description_has_what_its_method_needs_and_nothing_else(root: Path) -> None:
    bench = load(root)
    taught = bench.run_spec("ima/taught", "taught", 3)
    judges = taught.inputs["judges"]
    assert isinstance(judges, RunSpec) and judges.seed == 3
    maker = judges.inputs["maker"]
    assert isinstance(maker, RunSpec) and maker.seed == 0
    given = {"unlabelled": "server", "judges": f"run {judges.digest}"}
    assert taught.description()["given"] == given
    assert "given" not in bench.run_spec("ima/taught", "fedavg", 3).description()
    check_given(bench)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "unlabelled: server",
            "unlabeled: server",
            Fault(code="missing", key="settings.taught.inputs.unlabelled", near="unlabeled"),
        ),
        (
            "iid, clients: 4, server: 0.1",
            "iid, clients: 4",
            Fault(key="taught.inputs.unlabelled", value="server", names="`server: share`"),
        ),
        (
            "{setting: judges, method",
            "{setting: judge, method",
            Fault(key="settings.taught.inputs.judges.setting", value="judge", near="judges"),
        ),
        (
            "{setting: maker, method: maker, seed: 0}",
            "{setting: judges, method: judges}",
            Fault(key="inputs", names=("ima/judges", "circular")),
        ),
        (
            "    inputs:\n",
            "    byzantine: 2\n    inputs:\n",
            Fault(key="settings.taught.byzantine", value=2, names="fedavg"),
        ),
        (
            "maker: {setting: maker, method: maker, seed: 0}",
            "maker: server",
            Fault(key="inputs.maker", value="server"),
        ),
        (
            "    inputs:\n",
            "    save_models_at: {taught: [1, 2]}\n    inputs:\n",
            Fault(key="settings.taught.save_models_at.taught", value=2, names="1"),
        ),
    ],
)
def test_what_is_not_given_is_one_line(root: Path, old: str, new: str, fault: Fault) -> None:
    assert old in EXPERIMENT
    (root / "config/experiments/ima.yaml").write_text(EXPERIMENT.replace(old, new))
    with refused(file="config/experiments/ima.yaml", **fault) as raised:
        check_given(load(root))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "name: adam, lr: 0.02",
            "lr: 0.02, betas: [0.5, 0.9]",
            Fault(key="settings.taught.optimizer.betas", names="adam"),
        ),
        (
            "lr: 0.02",
            "lr: 0.02, momentum: 0.9",
            Fault(key="settings.taught.optimizer.momentum", names="`betas`"),
        ),
        (
            "seed: 0",
            "seeds: 0",
            Fault(code="unknown_key", key="settings.taught.inputs.maker.seeds"),
        ),
        ("server\n", "{file: x, sha256: ab}\n", Fault(key="sha256", value="ab")),
        (
            "unlabelled: server\n",
            "unlabelled: {dataset: minst}\n",
            Fault(key="settings.taught.inputs.unlabelled.dataset", value="minst", near="mnist"),
        ),
        ("server\n", "{dataset: mnist, share: 0}\n", Fault(key="share", value=0)),
        ("    inputs:\n", "    byzantine: -1\n    inputs:\n", Fault(key="byzantine", value=-1)),
        (
            "setting: taught}",
            "setting: taught, column_settings: {FedAvgg: maker}}",
            Fault(key="rows.Tiny.column_settings", value="FedAvgg", near="FedAvg"),
        ),
        (
            "setting: taught}",
            "setting: taught, column_settings: {FedAvg: makers}}",
            Fault(key="rows.Tiny.column_settings.FedAvg", value="makers"),
        ),
        (
            "    rows:\n",
            "    column_settings: {FedAvg: '*-x'}\n    rows:\n",
            Fault(key="tables.table_1.column_settings.FedAvg", value="taught-x"),
        ),
        (
            "method: taught}\n",
            "method: taught, metric: {least: accuracy}}\n",
            Fault(key="metric.least", value="accuracy"),
        ),
    ],
)
def test_wrong_values_of_new_keys_are_one_line(
    root: Path, old: str, new: str, fault: Fault
) -> None:
    assert old in EXPERIMENT
    (root / "config/experiments/ima.yaml").write_text(EXPERIMENT.replace(old, new))
    with refused(file="config/experiments/ima.yaml", **fault) as raised:
        load(root)
    assert "\n" not in str(raised.value)
