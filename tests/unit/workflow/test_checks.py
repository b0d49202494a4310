"""Methods and hyperparameters of experiment files are tried out before anything runs."""

import shutil
from pathlib import Path

import pytest

from fedrepro.config.loading import load
from fedrepro.methods import registry
from fedrepro.support.errors import UserError
from fedrepro.workflow import checks
from support.places import ROOT

IMA = Path("config/experiments/ima.yaml")
COLUMN = "tables.table_1.columns.FedAvg.method: "


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "config", tmp_path / "config")
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "where", "nearest"),
    [
        ("fedprox: { mu:", "fedprox: { muu:", "methods.fedprox: ", "'mu'"),
        ("fedprox: { mu: 0.01", "fedprox: { mu: high", "methods.fedprox: ", ""),
        ("use: fedgma, hard", "use: fedgna, hard", "methods.fedgma_hard: ", "'fedgma'"),
        ("ima: { period: 4", "ima: { priod: 4", "settings.fmnist-shards2-demo.methods.ima: ",
         "'period'"),
        ("fedprox: { mu:", "fedprox: { parent: fedavgg, mu:", "methods.fedprox.parent: ",
         "'fedavg'"),
        ("method: fedavg,", "method: fedavgg,", COLUMN, "'fedavg'"),
        ("method: fedavg,", "method: ima+central,", COLUMN, ""),
        ("method: fedavg,", "method: fedavg+ima,", COLUMN, ""),
        ("around: ima,", "around: imma,", "tables.table_1.columns.FedAvg + IMA.method: ", "'ima'"),
    ],
)  # fmt: skip
def test_what_cannot_be_composed_is_one_line(
    copy: Path, old: str, new: str, where: str, nearest: str
) -> None:
    text = (copy / IMA).read_text(encoding="utf-8")
    assert old in text
    (copy / IMA).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        checks.check_methods(load(copy))
    line = str(caught.value)
    assert line.startswith(f"{IMA}: {where}")
    assert "expected" in line
    assert not nearest or f"did you mean {nearest}" in line
    assert "\n" not in line


def test_what_has_been_checked_is_not_composed_again(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks.check_methods(load(copy))

    def refuse(*arguments: object) -> None:
        raise AssertionError("composed again")

    monkeypatch.setattr(registry, "compose", refuse)
    checks.check_methods(load(copy))
    path = copy / IMA
    path.write_text(path.read_text(encoding="utf-8").replace("mu: 0.01", "mu: 0.02"))
    with pytest.raises(AssertionError, match="composed again"):
        checks.check_methods(load(copy))
    (copy / checks.MARK).write_bytes(b"\xff\xfe of another program")
    with pytest.raises(AssertionError, match="composed again"):
        checks.check_methods(load(copy))
