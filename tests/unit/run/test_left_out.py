"""What a run says of numbers that are not what their column's name promises."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pyarrow.parquet as parquet
import pytest
from torch import nn

from fedrepro.data.dataset import Dataset, Split
from fedrepro.measures.base import Record
from fedrepro.measures.registry import the
from fedrepro.methods import registry
from fedrepro.methods.personal.partly_shared import keeps_a_part
from fedrepro.models.classifier import Classifier
from fedrepro.run import runner
from fedrepro.support.files import read_json
from support.numbers_in_text import numbers_in
from support.refusals import refused
from support.tiny_run import dataset, partition, run_spec

ONE_EPOCH = {"fedrep": {"body_epochs": 1}}
SCORED = {"every": 12, "clients": True}


def said(
    folder: Path,
    method: str,
    data: Dataset | None = None,
    untested: int | None = None,
    **changes: object,
) -> list[str]:
    """The lines that a run of ``method`` notes; the client ``untested`` has no test samples."""
    lines: list[str] = []
    data, spec = data or dataset(), run_spec(method, **changes)
    part = partition(spec.setting.evaluate.clients, data.train.y)
    if untested is not None and part.test is not None and part.test_counts is not None:
        part.test[untested], part.test_counts[untested] = part.test[untested][:0], 0
    runner.run(spec, data, part, folder, "code", note=lines.append)
    return lines


@pytest.mark.parametrize("clients", [True, False])
@pytest.mark.parametrize(
    ("method", "keeps"),
    [
        ("fedper", True),
        ("lg_fedavg", True),
        ("fedrep", True),
        ("fedbn", False),  # of a model without BatchNorm, it shares all
        ("fedavg", False),
        ("apfl", False),
        ("pfedme", False),
    ],
)
def test_a_shared_model_that_is_none_is_said_where_it_is_scored(
    tmp_path: Path, method: str, keeps: bool, clients: bool
) -> None:
    evaluate = {**SCORED, "clients": clients}
    given = {"hyperparameters": ONE_EPOCH} if method == "fedrep" else {}
    lines = said(tmp_path / "run", method, model="twonn", evaluate=evaluate, **given)
    assert sum("test_accuracy" in each for each in lines) == keeps
    assert len(lines) == keeps + (method == "fedbn")  # which is FedAvg here, without a BatchNorm
    record = cast(Record, SimpleNamespace(manifest=read_json(tmp_path / "run/manifest.json")))
    names = ("accuracy", "loss", "ensemble_accuracy")
    assert [bool(the(name, "round").remark(record)) for name in names] == [keeps, keeps, False]
    assert not the("accuracy", "client").remark(record)


def test_without_a_test_set_there_is_nothing_to_say(tmp_path: Path) -> None:
    data = replace(dataset(), test=None)
    assert said(tmp_path / "run", "fedper", data, model="twonn", evaluate=SCORED) == []


def test_a_model_of_which_nothing_is_shared_is_refused(tmp_path: Path) -> None:
    with refused("value", key="evaluate.clients", value=False):
        said(tmp_path / "run", "local")


@pytest.mark.parametrize("name", ["fedbn", "median+fedbn", "fedprox", "local"])
@pytest.mark.parametrize("layers", [[], [nn.BatchNorm1d(4)], [nn.BatchNorm1d(4, affine=False)]])
def test_fedbn_keeps_the_batchnorm_that_a_model_has(name: str, layers: list[nn.Module]) -> None:
    body = nn.Sequential(nn.Linear(3, 4), *layers)
    method, _ = registry.compose(name)
    found = keeps_a_part(method, Classifier(body, nn.Linear(4, 2)))
    assert found is (bool(layers) and "fedbn" in name)


def test_clients_without_a_value_are_counted(tmp_path: Path) -> None:
    """AUROC of clients whose test samples have one class; the columns are means over the others."""
    whole = dataset()
    labels = np.arange(150) // 3 % 2
    labels[partition().train[0]] = 1
    train = Split(whole.train.x, labels, None)
    data = replace(whole, task="binary", classes=2, train=train, test=None)
    often = {**SCORED, "every": 5}
    (line,) = said(tmp_path / "run", "fedavg", data, untested=2, evaluate=often)
    rows = parquet.read_table(tmp_path / "run/clients.parquet").to_pydict()
    columns = zip(rows["round"], rows["auroc"], rows["test_samples"], strict=True)
    tested = [value for round, value, samples in columns if samples and round == 12]
    assert len(tested) == 5
    without = sum(map(np.isnan, tested))
    assert 0 < without < len(tested)
    assert line.startswith("auroc: ") and numbers_in(line)[:2] == [without, len(tested)]
    *_, mean = parquet.read_table(tmp_path / "run/rounds.parquet")["client_auroc"].to_pylist()
    assert mean == pytest.approx(np.nanmean(tested))
    # Where every client has every measure, or none has, nothing is said.
    assert said(tmp_path / "all", "fedavg", evaluate=SCORED) == []
    alike = replace(data, train=Split(train.x, np.ones_like(labels), None))
    assert said(tmp_path / "none", "fedavg", alike, evaluate=SCORED) == []
