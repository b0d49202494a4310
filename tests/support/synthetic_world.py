"""A checkout in which a run has left a synthetic set of digits (tests/support/synthetic)."""

import shutil
from pathlib import Path

import pytest

from fedrepro.cli.main import main
from support.places import ROOT, TESTS
from support.report_world import copy_inputs

METHODS = TESTS / "support/synthetic"
RUN = ("fedevg/digits", "painter", "--seed", "1")
FOLDER = Path("results/runs/fedevg/digits/painter/seed1")
RESULT = Path("results/quality/fedevg/digits/painter/seed1.json")
EXPERIMENT = """\
system: fedevg
title: Digits that are painted
paper: none
settings:
  digits:
    dataset: mnist5k
    scaling: unit
    partition: {scheme: dirichlet, clients: 4, alpha: 1.0, minimum: 100, test_fraction: 0.2}
    model: logistic
    rounds: 2
    participation: 1.0
    epochs: 1
    batch_size: 100
    optimizer: {lr: 0.1}
    evaluator: {model: twonn, epochs: 60, real_epochs: 1}
tables:
  table_4_2:
    title: Accuracy
    published: {table: "4.2"}
    metric: {quality: accuracy}
    rows:
      - label: MNIST
        setting: digits
        published: {dataset: MNIST, setting: "clients=10,alpha=1.00"}
      - {label: Spread, setting: digits, metric: {quality: accuracy_std}}
    columns: [{label: Painter, method: painter, published: FedEvg}]
  table_4_4:
    title: Distance
    published: {table: "4.4"}
    rows:
      - label: FID
        setting: digits
        metric: {quality: fid}
        published: {dataset: MNIST, setting: "clients=10,alpha=1.00"}
      - {label: Stand-in, setting: digits, metric: {quality: stand_in}}
    columns: [{label: Painter, method: painter, published: FedEvg}]
figures:
  figure_4_1:
    kind: sheets
    title: Painted digits
    panels: [{label: Digits, setting: digits}, {label: Again, setting: digits}]
    columns: [{label: Painter, method: painter}]
"""


def make_checkout(root: Path) -> Path:
    """Configuration alone; runs are made by the command."""
    (root / "config/experiments").mkdir(parents=True)
    shutil.copy(ROOT / "config/datasets.yaml", root / "config")
    # The stand-in knows one way of being run.
    (root / "config/config.yaml").write_text("executor: sequential\n", encoding="utf-8")
    write_experiment(root)
    return root


def write_experiment(root: Path, **changes: str) -> None:
    """The experiment file, with some texts replaced."""
    text = EXPERIMENT
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (root / "config/experiments/fedevg.yaml").write_text(text, encoding="utf-8")


@pytest.fixture(scope="session")
def painted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which a run has left a synthetic set."""
    root = make_checkout(tmp_path_factory.mktemp("painted"))
    copy_inputs(root)
    (root / "reports/papers/systems.yaml").write_text("- fedevg\n")
    _call(root, "run", *RUN)
    return root


@pytest.fixture(scope="session")
def judged(painted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, where the set was judged, too."""
    root = Path(shutil.copytree(painted, tmp_path_factory.mktemp("judged") / "root"))
    _call(root, "quality", *RUN)
    return root


@pytest.fixture
def judged_copy(judged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to be changed, in which the test stands."""
    return stand_in_copy(judged, tmp_path, monkeypatch)


def stand_in_copy(root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a copy of ``root``, with the painter among the methods. Returns ``folder``."""
    shutil.copytree(root, folder, dirs_exist_ok=True)
    monkeypatch.setenv("FEDREPRO_METHODS", str(METHODS))
    monkeypatch.chdir(folder)
    return folder


def _call(root: Path, *words: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDREPRO_METHODS", str(METHODS))
        patch.chdir(root)
        assert main([*words]) == 0
