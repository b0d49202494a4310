"""Runs whose clients keep validation samples: nothing is trained on them, nothing else scores."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import TypeAdapter

from fedrepro.data.dataset import Dataset
from fedrepro.data.partition.partition import Partition, PartitionSpec, make_partition
from fedrepro.run import runner
from fedrepro.run.results import read_any
from support import tiny_run

HELD = {"test_fraction": 0.2, "validation": 0.25}
SPEC: PartitionSpec = TypeAdapter(PartitionSpec).validate_python(
    {"scheme": "iid", "clients": 6, **HELD}
)


def shares() -> Partition:
    return make_partition(tiny_run.dataset().train.y, None, SPEC, 1)


def relabelled(rows: list[np.ndarray]) -> Dataset:
    """The data with wrong labels in some training rows; who holds what stays as it was."""
    data = tiny_run.dataset()
    y = data.train.y.copy()
    every = np.concatenate(rows)
    y[every] = (y[every] + 1) % tiny_run.CLASSES
    return replace(data, train=replace(data.train, y=y))


def carry_out(folder: Path, data: Dataset, part: Partition, **setting: Any) -> Path:
    values = {"ditto": {"personal_epochs": 1}}
    spec = tiny_run.run_spec("ditto", rounds=4, hyperparameters=values, **setting)
    counts = {
        f"{name}_counts": np.stack([np.bincount(data.train.y[each], minlength=3) for each in rows])
        for name, rows, _ in part.parts
    }
    runner.run(spec, data, replace(part, **counts), folder, "code", lambda progress: None)
    return folder


def test_only_validation_scores_see_validation_samples(tmp_path: Path) -> None:
    part = shares()
    clients = {"every": 2, "clients": True}
    as_it_is = carry_out(tmp_path / "a", tiny_run.dataset(), part, evaluate=clients)
    others = {
        name: carry_out(tmp_path / name, relabelled(rows), part, evaluate=clients)
        for name, rows, _ in part.parts[1:]
    }
    for kind, folder in others.items():
        model = (folder / "model.safetensors").read_bytes()
        assert model == (as_it_is / "model.safetensors").read_bytes()
        before, after = (pd.read_parquet(each / "clients.parquet") for each in (as_it_is, folder))
        moved = {name for name in before if not before[name].equals(after[name])}
        kept = {name for name in moved if name.startswith("validation_")}
        assert {"validation": "validation_accuracy", "test": "accuracy"}[kind] in moved
        assert (moved == kept) if kind == "validation" else not kept
        rounds = [pd.read_parquet(each / "rounds.parquet") for each in (as_it_is, folder)]
        same = rounds[0]["validation_accuracy"].equals(rounds[1]["validation_accuracy"])
        assert same == (kind == "test")
        # The test scores of rounds are those of the shared model, on the data's own test samples.
        assert rounds[0]["test_accuracy"].equals(rounds[1]["test_accuracy"])


def test_what_is_counted_is_whole_in_every_table(tmp_path: Path) -> None:
    """And nothing else is."""
    clients = {"every": 2, "clients": True}
    folder = carry_out(tmp_path / "run", tiny_run.dataset(), shares(), evaluate=clients)
    whole, parts = set[str](), set[str]()
    for path in folder.glob("*.parquet"):
        for name, kind in pd.read_parquet(path).dtypes.items():
            (whole if kind == np.int64 else parts).add(str(name))
    counted = {"round", "client", "participations", "bytes_up", "bytes_down"}
    assert whole == counted | {f"{kind}_samples" for kind in ("train", "test", "validation")}
    assert {"loss", "accuracy", "learning_rate", "validation_loss"} < parts - whole


def test_validation_scores_of_a_round_are_means_over_samples(tmp_path: Path) -> None:
    """Where the data set has no test samples of its own, as those on test samples are."""
    data = replace(tiny_run.dataset(), test=None)
    given = {"scheme": "dirichlet", "clients": 6, "alpha": 0.5, "minimum": 8}
    unequal: PartitionSpec = TypeAdapter(PartitionSpec).validate_python({**given, **HELD})
    part = make_partition(tiny_run.dataset().train.y, None, unequal, 1)
    clients = {"every": 2, "clients": True}
    folder = carry_out(tmp_path / "run", data, part, evaluate=clients)
    rounds = pd.read_parquet(folder / "rounds.parquet").set_index("round")
    plain = []
    for number, rows in pd.read_parquet(folder / "clients.parquet").groupby("round"):
        for part_of in ("validation_", ""):
            sizes = rows[f"{part_of or 'test_'}samples"]
            for name in ("accuracy", "loss"):
                mean, values = rounds[f"{part_of or 'test_'}{name}"][number], rows[part_of + name]
                assert mean == pytest.approx(np.average(values, weights=sizes))
                plain.append(mean == pytest.approx(values.mean()))
    assert len(plain) == 8 and not any(plain)


def test_where_clients_are_not_scored_the_shared_model_is(tmp_path: Path) -> None:
    folder = carry_out(tmp_path / "run", tiny_run.dataset(), shares())
    rounds = pd.read_parquet(folder / "rounds.parquet")
    assert rounds["validation_accuracy"].between(0, 1).all() and len(rounds) == 4
    assert "update_norm" in pd.read_parquet(folder / "clients.parquet")
    without = replace(shares(), validation=None, validation_counts=None)
    plain = carry_out(tmp_path / "plain", tiny_run.dataset(), without)
    assert not any("validation" in name for name in pd.read_parquet(plain / "rounds.parquet"))


def test_a_record_scored_on_validation_has_no_test_score(tmp_path: Path) -> None:
    carry_out(tmp_path / "run", tiny_run.dataset(), shares(), evaluate={"clients": True})
    record = read_any(tmp_path, Path("run"))
    kept = replace(record, scored_on="validation")
    of_no_samples = {"round", "learning_rate", "bytes_down", "bytes_up"}
    assert kept.rounds.keys() == {*of_no_samples, "test_loss", "test_accuracy"}
    assert kept.rounds["test_accuracy"] == record.rounds["validation_accuracy"]
    scores = {"loss", "accuracy", "top5", "ece", "mce"}
    assert scores | {"round", "client", "train_samples", "test_samples"} < kept.clients.keys()
    assert kept.clients["accuracy"] == record.clients["validation_accuracy"]
    assert kept.clients["accuracy"] != record.clients["accuracy"]
    assert kept.clients["test_samples"] == record.clients["validation_samples"]
    assert set(kept.clients["test_samples"]) == {5}
    assert not any(name.startswith("validation") for name in kept.clients)
