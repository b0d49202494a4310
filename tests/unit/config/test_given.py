"""What settings give is resolved, or refused in one line, before anything runs."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedrepro.config.loading import load
from fedrepro.config.run_spec import RunSpec
from fedrepro.support.errors import UserError
from fedrepro.workflow.checks import check_given
from fedrepro.workflow.graph import Graph
from support.given_experiment import EXPERIMENT
from support.given_run import METHODS
from support.places import ROOT


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

    def described(source: str) -> str:
        text = EXPERIMENT.replace("unlabelled: server", f"unlabelled: {source}")
        (root / "config/experiments/ima.yaml").write_text(text)
        run = load(root).run_spec("ima/taught", "taught", 3)
        return str(run.description()["given"]["unlabelled"])

    assert described("{dataset: fmnist}") == "data fmnist share 1"
    assert described("{dataset: fmnist, share: 0.5}") == "data fmnist share 0.5"
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
    ("old", "new", "line"),
    [
        (
            "unlabelled: server",
            "unlabeled: server",
            "config/experiments/ima.yaml: settings.taught.inputs.unlabelled: missing: "
            "method taught requires it: expected 'server', a run or a file; did you mean "
            "'unlabeled'?",
        ),
        (
            "iid, clients: 4, server: 0.1",
            "iid, clients: 4",
            "taught.inputs.unlabelled: 'server': expected a partition with `server: share`",
        ),
        (
            "{setting: judges, method",
            "{setting: judge, method",
            "settings.taught.inputs.judges.setting: 'judge': expected a setting of this file; did "
            "you mean 'judges'?",
        ),
        (
            "{setting: maker, method: maker, seed: 0}",
            "{setting: judges, method: judges}",
            "circular: a run cannot be its own input",
        ),
        (
            "    inputs:\n",
            "    byzantine: 2\n    inputs:\n",
            "settings.taught.byzantine: 2: expected none for method fedavg, which uses no "
            "discriminators",
        ),
        (
            "maker: {setting: maker, method: maker, seed: 0}",
            "maker: server",
            "inputs.maker: 'server':",
        ),
        (
            "    inputs:\n",
            "    save_models_at: {taught: [1, 2]}\n    inputs:\n",
            "settings.taught.save_models_at.taught: 2: expected a round of the run, at most 1",
        ),
    ],
)
def test_what_is_not_given_is_one_line(root: Path, old: str, new: str, line: str) -> None:
    assert old in EXPERIMENT
    (root / "config/experiments/ima.yaml").write_text(EXPERIMENT.replace(old, new))
    with pytest.raises(UserError) as caught:
        check_given(load(root))
    assert line in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("name: adam, lr: 0.02", "lr: 0.02, betas: [0.5, 0.9]", "expected `betas` with adam only"),
        ("lr: 0.02", "lr: 0.02, momentum: 0.9", "expected `betas`, not `momentum`, with adam"),
        ("seed: 0", "seeds: 0", "settings.taught.inputs.maker.seeds: unknown key"),
        ("server\n", "{file: x, sha256: ab}\n", "sha256: 'ab': expected the SHA-256 of the file"),
        (
            "unlabelled: server\n",
            "unlabelled: {dataset: minst}\n",
            "settings.taught.inputs.unlabelled.dataset: 'minst': expected a data set of "
            "config/datasets.yaml; did you mean 'mnist'?",
        ),
        ("server\n", "{dataset: mnist, share: 0}\n", "share: 0: expected a number above 0 and at"),
        ("    inputs:\n", "    byzantine: -1\n    inputs:\n", "byzantine: -1:"),
        (
            "setting: taught}",
            "setting: taught, column_settings: {FedAvgg: maker}}",
            "rows.Tiny.column_settings: 'FedAvgg': expected the label of a column; did you "
            "mean 'FedAvg'?",
        ),
        (
            "setting: taught}",
            "setting: taught, column_settings: {FedAvg: makers}}",
            "rows.Tiny.column_settings.FedAvg: 'makers':",
        ),
        (
            "    rows:\n",
            "    column_settings: {FedAvg: '*-x'}\n    rows:\n",
            "tables.table_1.column_settings.FedAvg: 'taught-x':",
        ),
        (
            "method: taught}\n",
            "method: taught, metric: {least: accuracy}}\n",
            "metric.least: 'accuracy': expected",
        ),
    ],
)
def test_wrong_values_of_new_keys_are_one_line(root: Path, old: str, new: str, line: str) -> None:
    assert old in EXPERIMENT
    (root / "config/experiments/ima.yaml").write_text(EXPERIMENT.replace(old, new))
    with pytest.raises(UserError) as caught:
        load(root)
    assert line in str(caught.value) and "\n" not in str(caught.value)
