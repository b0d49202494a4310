"""A complete run of a few seconds on made-up data."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.config.run_spec import Execution, RunSpec
from fedrepro.config.settings import Setting
from fedrepro.data.dataset import Dataset, Split
from fedrepro.data.partition.partition import Partition
from fedrepro.run import runner
from fedrepro.support.plugins import NONE

CLIENTS, CLASSES = 6, 3
# Of the clients, which are cut from the samples in the order of classes: some have one class only.
SIZES = (40, 11, 25, 17, 34, 23)


def dataset(seed: int = 0) -> Dataset:
    """Three blobs of bytes, 2x2 images."""
    random = np.random.default_rng(seed)
    centres = random.integers(40, 216, (CLASSES, 4))

    def split(samples: int) -> Split:
        y = np.arange(samples) % CLASSES
        x = (centres[y] + random.normal(0, 25, (samples, 4))).clip(0, 255).astype(np.uint8)
        return Split(x.reshape(-1, 1, 2, 2), y.astype(np.int64), None)

    return Dataset(
        "blobs", "classification", CLASSES, (1, 2, 2), split(150), split(60), None, None, {}
    )


def partition(
    held_out: bool = False, y: NDArray[np.int64] | None = None, equal: bool = False
) -> Partition:
    """Clients, unequal unless ``equal``; with ``held_out`` each keeps a fifth for testing."""
    by_class = np.argsort(np.arange(150) % CLASSES, kind="stable")
    indices = np.split(by_class, np.cumsum(SIZES)[:-1])
    if equal:
        indices = [np.arange(client, 150, CLIENTS) for client in range(CLIENTS)]
    train = [each[len(each) // 5 :] for each in indices] if held_out else indices
    test = [each[: len(each) // 5] for each in indices] if held_out else None
    labels = np.arange(150) % CLASSES if y is None else y

    def counts(rows: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        return np.array([np.bincount(labels[each], minlength=CLASSES) for each in rows])

    test_counts = counts(test) if test else None
    return Partition(train, test, counts(train), test_counts, {}, "by-hand", 0)


def run_spec(composition: str = "fedavg", **changes: Any) -> RunSpec:
    """``changes``: ``hyperparameters``, ``plugins``, how it is executed, or keys of its setting."""
    hyperparameters = changes.pop("hyperparameters", {})
    plugins = changes.pop("plugins", NONE)
    given = {field.name for field in fields(Execution)} & changes.keys()
    way = {"executor": "sequential", "checkpoint_every": 2} | {
        name: changes.pop(name) for name in given
    }
    values = {
        "dataset": "blobs", "partition": {"scheme": "iid", "clients": CLIENTS},
        "model": "logistic", "rounds": 12, "participation": 0.5, "epochs": 2, "batch_size": 8,
        "optimizer": {"lr": 0.1}, "lr_decay": 0.99, **changes,
    }  # fmt: skip
    setting = Setting.model_validate(values, context=plugins)
    setting._name = "test/blobs"
    execution = Execution(**way)
    return RunSpec(
        setting, composition, composition, hyperparameters, 1, execution, plugins=plugins
    )


class Stop(Exception):
    """What a test raises in place of a kill."""


def stop_after(rounds: int) -> runner.Report:
    """Raises :class:`Stop` after so many rounds, before their checkpoint."""

    def report(progress: runner.Progress) -> None:
        if progress.round == rounds:
            raise Stop

    return report


def carry_out(
    folder: Path,
    spec: RunSpec,
    report: runner.Report = lambda progress: None,
    data: Dataset | None = None,
) -> dict[str, Any]:
    held_out = spec.setting.evaluate.clients
    return runner.run(spec, data or dataset(), partition(held_out), folder, "code", report)
