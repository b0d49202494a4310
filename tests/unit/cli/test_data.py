"""The commands about data, on what the repository carries."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.data.dataset import open_dataset
from fedrepro.data.partition.partition import Partition
from support.places import ROOT


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the repository's config."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    monkeypatch.chdir(tmp_path)
    return tmp_path


REUSING = """\
system: mine
title: Samples held twice
paper: none
settings:
  again:
    dataset: mnist5k
    partition: { scheme: reusing_dirichlet, clients: 9, alpha: 1.0 }
    model: logistic
    rounds: 1
    participation: 1.0
    epochs: 1
    batch_size: 32
    optimizer: { lr: 0.1 }
"""


def test_mnist5k_from_nothing_to_clients(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "mnist5k"]) == 0
    assert (
        "4,000 training and 1,000 test samples, 10 classes, each 1x28x28" in capsys.readouterr().out
    )
    dataset = open_dataset("mnist5k")
    assert dataset.test is not None
    assert np.bincount(dataset.train.y).tolist() == [400] * 10
    assert np.bincount(dataset.test.y).tolist() == [100] * 10
    # The same images in the same order on every machine.
    assert dataset.meta["content_sha256"].startswith("3158ca64b778cf63")

    setting = next(s for s in load().settings.values() if s.dataset == "mnist5k")
    assert main(["partition", setting.name, "--seed", "3"]) == 0
    folder = bench / "results" / "partitions" / "mnist5k" / setting.partition.name
    partition = Partition.load(folder / "seed3.npz")
    histogram = json.loads((folder / "seed3.json").read_text())
    assert len(partition.train) == histogram["clients"] == setting.partition.clients
    assert np.array_equal(partition.train_counts, histogram["train"])

    assert "warning" not in capsys.readouterr().err
    (bench / "config/experiments/mine.yaml").write_text(REUSING)
    assert main(["partition", "mine/again", "--seed", "3"]) == 0
    assert "warning: partition reusing_dirichlet-clients9-alpha1" in capsys.readouterr().err
    assert main(["datasets", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["mnist5k"]["state"] == "prepared"
    assert rows["mnist5k"]["train"] == 4000
    assert rows["cifar10"]["state"] == "absent"
    assert main(["datasets"]) == 0
    assert "fmnist" in capsys.readouterr().out


def test_download_says_what_came_from_where(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["download", "mnist5k"]) == 0
    assert "mnist_5k.csv  sha256 " in (out := capsys.readouterr().out)
    assert "from python package fedrepro" in out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["prepare", "fmnits"], "'fmnits': expected one of berka, .*; did you mean 'fmnist'"),
        (["download", "nonsense"], "'nonsense': expected one of"),
        (["partition", "ima/fmnist-shard2"], "'ima/fmnist-shard2': expected .*did you mean"),
        (
            ["partition", "ima/fmnist-shards2", "--seed", "-1"],
            "--seed: -1: expected a whole number",
        ),
        (["partition", "ima/fmnist-shards2"], "has not been prepared: run `fedrepro prepare fmni"),
        (["prepare", "cifar10_jpeg"], "no file data/cifar10_jpeg.parquet: put the file there"),
    ],
)
def test_wrong_input_is_one_line(
    arguments: list[str], line: str, bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(line, error), error


def test_data_archives_of_the_config(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = bench / "config" / "config.yaml"
    config.write_text(config.read_text().replace("archives: null", "archives: my/archives"))
    assert main(["download", "mnist"]) == 2
    assert "data.archives: 'my/archives': expected a folder" in capsys.readouterr().err
