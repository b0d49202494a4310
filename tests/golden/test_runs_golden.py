"""Every number that small runs of every kind of setting left, as landed runs did.

What must come out of plain settings is derived from the raw files in ``tests/whole/test_runs.py``,
and of each method in its oracle. Here is one run for each key of a setting and each kind of task,
with unequal clients, short mini-batches and partial cohorts.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedrepro.check.world import in_float64
from fedrepro.data.dataset import Dataset, Split
from fedrepro.data.partition.partition import Partition
from fedrepro.run import runner
from fedrepro.run.store import load_tree
from support import pinned, tiny_run

CLIENTS = {"evaluate": {"every": 2, "clients": True}}
MODELS: dict[str, Any] = {"model": "twonn"}
WORDS: dict[str, Any] = {"model": "stacked_lstm", "rounds": 1}
RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "seldom": {"evaluate": {"every": 2}, "rounds": 5},
    "clients": CLIENTS,
    "validation": CLIENTS,
    "validation, shared": {},
    "groups": {"evaluate": {"groups": True}},
    "groups, few": {"evaluate": {"groups": True, "per_class": 5}},
    "patience": {"stop": {"measure": "loss", "patience": 1}, "optimizer": {"lr": 3.0}, "rounds": 9},
    "reached": {"stop": {"at": 60}, "rounds": 9},
    "adam": {
        "optimizer": {"name": "adam", "lr": 0.01, "betas": [0.6, 0.9], "weight_decay": 0.02}
    },
    "momentum": {"optimizer": {"lr": 0.05, "momentum": 0.8, "weight_decay": 0.03}, **MODELS},
    "cosine": {"lr_schedule": "cosine", "lr_decay": 1.0},
    "listed": {"lr_schedule": [1.0, 0.3], "lr_decay": 1.0},
    "steps": {"lr_decay": {"factor": 0.5, "every": 2}, "decay_from": 1, "rounds": 4},
    "dropped": {"availability": {"dropout": 0.3, "deadline": 1.2, "spread": 0.6, "period": 4}},
    "late": {"availability": {"partial": 0.6, "deadline": 0.9, "spread": 0.6, "late": "partial"}},
    "legacy": {"cohorts": {"stream": "numpy_legacy", "seed": 5}},
    "legacy, asleep": {
        "cohorts": {"stream": "numpy_legacy", "seed": 5}, "availability": {"period": 2}
    },
    "sign": {"attack": {"kind": "sign_flip", "share": 0.34, "scale": 2.5}},
    "gaussian": {"attack": {"kind": "gaussian", "share": 0.34, "scale": 0.2}},
    "inner": {"attack": {"kind": "inner_product", "share": 0.5, "scale": 1.5}},
    "labels": {"attack": {"kind": "label_flip", "share": 0.5}},
    "pairs": {"noise": {"kind": "pair", "rate": 0.4}},
    "noise": {"noise": {"kind": "symmetric", "rate": 0.4, "everywhere": True}, **CLIENTS},
    "balanced": {"class_weights": "balanced"},
    "weights": {"class_weights": [0.5, 3.0, 1.0]},
    "mirrored": {"augment": "flip"},
    "symmetric": {"scaling": "symmetric", **MODELS},
    "own scale": MODELS,
    "kept": {"save_models_at": {"fedavg": [1, 3]}, "participation": 0.34},
    "missing class": {"method": "feddisco"},
    "weighed": {"method": "aaggff_d+fedavg"},
    "everyone": {"method": "aaggff_s+scaffold", "participation": 1.0, "rounds": 2},
    "mixed": {
        "method": "superfed_lm", **CLIENTS, **MODELS, "participation": 0.34,
        "hyperparameters": {"superfed_lm": {"start": 0.0}},
    },
    "two models": {
        "method": "ditto", "hyperparameters": {"ditto": {"personal_epochs": 1}}, **CLIENTS
    },
    "local": {"method": "local", **CLIENTS},
    "central": {"method": "central", **CLIENTS, "augment": "flip"},
    "optimizers": {"method": "ima+scaffold+fedyogi", "rounds": 4},
    "compressed": {"method": "quantised+fedavg", **MODELS, "rounds": 2},
    "normalised": {"model": "small_bn_cnn", "rounds": 1, "epochs": 1, "batch_size": 9},
    "binary": {**CLIENTS, "method": "propfair"},
    "regression": {**CLIENTS, **MODELS},
    "regression on a test set": {"stop": {"measure": "r2", "patience": 2}},
    "several labels": {**CLIENTS, **MODELS},
    "next words": WORDS,
    "table of clients": {**CLIENTS, **MODELS},
}  # fmt: skip
TASKS = {"binary": "binary", "several labels": "multi_label", "next words": "next_word"}
ABOUT = (
    "status", "diverged_at", "rounds_done", "stopped", "clients", "parameters", "bytes_down",
    "bytes_up", "dtype", "executor", "threads",
)  # fmt: skip


@pytest.fixture(autouse=True)
def float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs in float64, which they refuse otherwise: last digits of others differ by machine."""
    monkeypatch.setattr(runner, "float32_by_default", nullcontext)
    with in_float64():
        yield


def data_of(name: str) -> Dataset:
    made = tiny_run.dataset()
    assert made.test is not None
    task = TASKS.get(name, "regression" if name.startswith("regression") else made.task)
    random = np.random.default_rng(6)

    def turned(split: Split) -> Split:
        x, y = split.x, split.y
        match task:
            case "binary":
                return replace(split, y=(y > 0).astype(np.int64))
            case "regression":
                return replace(split, y=(x.reshape(len(y), -1)[:, :2] / 99 + y[:, None]))
            case "multi_label":
                return replace(split, y=(np.arange(1, 4) > y[:, None]).astype(np.float64))
            case "next_word":
                words = random.integers(1, 9, (len(y), 5)) + y[:, None]
                words[:, 4] *= random.integers(0, 2, len(y))  # padding
                return replace(split, x=words[:, :-1].astype(np.int32), y=words[:, 1:])
        if name == "table of clients":
            return replace(split, x=x.reshape(len(y), -1) * np.array([1.0, 2.0, 0.0, 3.0]))
        if name == "normalised":
            return replace(split, x=x.repeat(4, axis=2).repeat(4, axis=3))
        return split

    train, test = turned(made.train), turned(made.test)
    if name.startswith("groups"):
        test = replace(test, group=np.arange(len(test)) ** 2 % 5)
    keeps_test = name not in ("regression", "several labels", "table of clients", "binary")
    changes: dict[str, Any] = {
        "task": task, "train": train, "test": test if keeps_test else None,
        "classes": {"binary": 2, "regression": 2, "next_word": 12}.get(task, 3),
        "input_shape": train.x.shape[1:],
    }  # fmt: skip
    if name == "own scale":
        changes |= {"mean": (0.4,), "std": (0.3,)}
    if name == "table of clients":
        changes |= {"client_standardised": (0, 2, 3)}
    return replace(made, **changes)


def partition_of(name: str, data: Dataset, held_out: bool) -> Partition:
    y = data.train.y
    labels = y if y.ndim == 1 and y.dtype.kind != "f" else np.zeros(len(y), np.int64)
    made = tiny_run.partition(held_out, labels)
    if name in ("balanced", "missing class"):  # of class 2 nobody has a sample to train on
        train = [rows[labels[rows] != 2] for rows in made.train[:4]]
        counts = np.array([np.bincount(labels[rows], minlength=3) for rows in train])
        return replace(made, train=train, train_counts=counts[:, :2])
    if name in ("several labels", "binary"):  # samples of several classes to test on
        rows = tiny_run.partition(False, labels).train
        train, test = [np.delete(each, np.s_[::4]) for each in rows], [each[::4] for each in rows]
        parts = [np.array([np.bincount(labels[each], minlength=3) for each in part])
                 for part in (train, test)]  # fmt: skip
        return replace(made, train=train, test=test, train_counts=parts[0], test_counts=parts[1])
    if name.startswith(("validation", "table")):
        kept = [rows[len(rows) // 4 :] for rows in made.train]
        chosen = [rows[: len(rows) // 4] for rows in made.train]
        counts = [np.array([np.bincount(labels[rows], minlength=3) for rows in part])
                  for part in (kept, chosen)]  # fmt: skip
        return replace(
            made, train=kept, train_counts=counts[0], validation=chosen,
            validation_counts=counts[1],
        )  # fmt: skip
    return made


def tables(folder: Path) -> dict[str, Any]:
    """Whole tables of rounds, and of others each column's summary; types of columns, too."""
    found: dict[str, Any] = {}
    for file in sorted(folder.glob("*.parquet")):
        table = pq.read_table(file)
        for name, values in table.to_pydict().items():
            kind = str(table.schema.field(name).type)
            whole = [float(each) for each in values] if file.stem == "rounds" else []
            found[f"{file.stem} {name}"] = [kind, whole, pinned.summary(values)]
    return found


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_as_it_was(name: str, tmp_path: Path) -> None:
    changes = {"rounds": 3, **RUNS[name]}
    spec = tiny_run.run_spec(changes.pop("method", "fedavg"), **changes)
    data = data_of(name)
    partition = partition_of(name, data, spec.setting.evaluate.clients)
    said: list[Any] = []
    manifest = runner.run(
        spec, data, partition, tmp_path / "x", "code",
        lambda each: said.append([each.round, each.accuracy, sorted(each.scores)]),
    )  # fmt: skip
    found = tables(tmp_path / "x")
    for file in sorted((tmp_path / "x").glob("*.safetensors")):
        tensors, facts = load_tree(file)
        found[file.stem] = pinned.of_tree(tensors)
        found[f"{file.stem} facts"] = {
            key: each for key, each in facts.items() if key not in ("constants", "partition")
        }
    found["manifest"] = {key: manifest.get(key) for key in ABOUT}
    found["said"] = [[number, float(score), names] for number, score, names in said]
    pinned.check("runs.json", name, found)
