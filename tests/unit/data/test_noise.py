"""Label noise: how often and to what labels are flipped, and whose."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy import stats

from fedrepro.config.loading import load
from fedrepro.config.settings import Noise
from fedrepro.config.workbench import Workbench
from fedrepro.data.partition.partition import PartitionSpec, make_partition
from fedrepro.data.tensors.noise import flip, with_noise, with_reversed_labels
from fedrepro.run.runner import make_plan
from support.places import ROOT
from support.refusals import refused
from support.tiny_run import CLASSES, dataset, partition, run_spec


def published(kind: str, classes: int, rate: float) -> np.ndarray:
    """The transition matrix of eq. (2.7), pair, or (2.8), symmetric."""
    if kind == "pair":
        return (1 - rate) * np.eye(classes) + rate * np.eye(classes)[:, (np.arange(classes) - 1)]
    return np.where(np.eye(classes) == 1, 1 - rate, rate / (classes - 1))


@pytest.mark.parametrize("kind", ["pair", "symmetric"])
@pytest.mark.parametrize(("classes", "rate"), [(10, 0.2), (10, 0.4), (2, 0.3), (3, 0.7)])
def test_transitions(kind: str, classes: int, rate: float) -> None:
    """Every class by itself: what can't happen does not, and the rest fits (chi-square)."""
    each = 20_000
    labels = np.repeat(np.arange(classes), each)
    flipped = flip(labels, classes, kind, rate, np.random.default_rng(3))
    assert flipped.dtype == np.int64
    p_values = []
    for label, expected in enumerate(published(kind, classes, rate)):
        counts = np.bincount(flipped[labels == label], minlength=classes)
        possible = expected > 0
        assert counts[~possible].sum() == 0
        p_values.append(stats.chisquare(counts[possible], each * expected[possible]).pvalue)
    assert min(p_values) > 1e-3 / classes


def test_nothing_is_flipped_at_rate_zero() -> None:
    labels = np.arange(100) % 7
    assert np.array_equal(flip(labels, 7, "symmetric", 0.0, np.random.default_rng(0)), labels)


@pytest.mark.parametrize("everywhere", [False, True])
def test_whose_labels_are_flipped(everywhere: bool) -> None:
    data, shares = dataset(), partition(held_out=True)
    noise = Noise(kind="pair", rate=0.5, everywhere=everywhere)
    noisy = with_noise(data.train, shares, CLASSES, noise, 1).y
    wrong = noisy != data.train.y
    train, test = np.concatenate(shares.train), np.concatenate(shares.test or [])
    assert 0.35 < wrong[train].mean() < 0.65
    assert wrong[test].any() == everywhere
    assert not wrong[np.setdiff1d(np.arange(len(wrong)), [*train, *test])].any()
    elsewhere = with_noise(data.train, partition(), CLASSES, noise, 1).y
    assert np.array_equal(noisy[train], elsewhere[train])  # whoever holds them
    assert not np.array_equal(noisy, with_noise(data.train, shares, CLASSES, noise, 2).y)


def test_labels_to_validate_on_are_as_wrong_as_those_to_train_on() -> None:
    """No client has clean labels to choose by."""
    labels = dataset().train.y
    given = {"scheme": "iid", "clients": 6, "test_fraction": 0.2, "validation": 0.25}
    spec: PartitionSpec = TypeAdapter(PartitionSpec).validate_python(given)
    parts = make_partition(labels, None, spec, 1)
    for everywhere in (False, True):
        noise = Noise(kind="symmetric", rate=0.5, everywhere=everywhere)
        wrong = with_noise(dataset().train, parts, CLASSES, noise, 1).y != labels
        found = {name: wrong[np.concatenate(rows)].any() for name, rows, _ in parts.parts}
        assert found == {"train": True, "validation": True, "test": everywhere}


def test_a_run_trains_on_noisy_labels_and_tests_on_clean_ones() -> None:
    data, shares = dataset(), partition(held_out=True)
    noise = {"kind": "symmetric", "rate": 0.4, "everywhere": False}
    changes = {"evaluate": {"every": 1, "clients": True}}
    plans = [
        make_plan(run_spec(**changes, **more), data, shares) for more in ({}, {"noise": noise})
    ]
    clean, noisy = (plan.federation.clients.samples.y for plan in plans)
    assert 0.2 < (clean != noisy).double().mean() < 0.5
    one, other = (plan.client_tests for plan in plans)
    assert one and other and (one.whole.y == other.whole.y).all()


def test_texts_are_refused() -> None:
    data = dataset()
    several = replace(data.train, y=np.zeros((150, 4), dtype=np.int64))
    with refused("value", file="noise", names="sample"):
        with_noise(several, partition(), 3, Noise(kind="pair", rate=0.1), 1)
    with refused("value", file="attack: label_flip"):
        with_reversed_labels(several, partition(), 3, {1})


def test_attackers_train_on_reversed_labels_and_nobody_else_does() -> None:
    data, shares = dataset().train, partition(held_out=True)
    found = with_reversed_labels(data, shares, CLASSES, {1, 4}).y
    rows = np.concatenate([shares.train[1], shares.train[4]])
    assert (found[rows] == 2 - data.y[rows]).all() and (found[rows] != data.y[rows]).any()
    others = np.setdiff1d(np.arange(len(found)), rows)
    assert (found[others] == data.y[others]).all()
    doubled = replace(shares, train=[rows, rows, *shares.train[2:]])
    assert (with_reversed_labels(data, doubled, CLASSES, {0, 1}).y[rows] == 2 - data.y[rows]).all()


NOISY = """\
system: noisy
title: Noisy
paper: none
settings:
  clean:
    dataset: mnist5k
    partition: {scheme: iid, clients: 4}
    model: logistic
    rounds: 1
    participation: 1
    epochs: 1
    batch_size: 10
    optimizer: {lr: 0.1}
  wrong:
    extends: clean
    noise: {kind: pair, rate: RATE}
"""


def noisy_workbench(root: Path, rate: str) -> Workbench:
    (root / "config/experiments").mkdir(parents=True)
    for name in ("config.yaml", "datasets.yaml"):
        (root / "config" / name).write_text((ROOT / "config" / name).read_text())
    (root / "config/experiments/noisy.yaml").write_text(NOISY.replace("RATE", rate))
    return load(root)


def test_a_run_without_noise_is_described_as_ever(tmp_path: Path) -> None:
    """So that its fingerprint is that of runs from before there was noise."""
    workbench = noisy_workbench(tmp_path, "0.2")
    clean = workbench.run_spec("noisy/clean", "fedavg", 1)
    wrong = workbench.run_spec("noisy/wrong", "fedavg", 1)
    assert "noise" not in clean.description()
    assert wrong.description()["noise"] == {"kind": "pair", "rate": 0.2, "everywhere": False}
    assert clean.digest != wrong.digest


@pytest.mark.parametrize("rate", ["1", "1.0", "-0.1", ".nan", "much"])
def test_rates_that_make_no_sense(rate: str, tmp_path: Path) -> None:
    with refused("value", key="settings.wrong.noise.rate", names=("0", "1")):
        noisy_workbench(tmp_path, rate)
