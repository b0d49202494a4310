"""A checkout in which a run has left a synthetic set of digits (tests/support/synthetic)."""

import shutil
from pathlib import Path

from support.places import ROOT, TESTS

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
    partition: {scheme: iid, clients: 4, test_fraction: 0.2}
    model: logistic
    rounds: 2
    participation: 1.0
    epochs: 1
    batch_size: 100
    optimizer: {lr: 0.1}
    judge: {model: twonn, epochs: 60, real_epochs: 1}
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
