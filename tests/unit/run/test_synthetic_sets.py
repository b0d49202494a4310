"""Runs whose product is a set of images: what they leave and record, and what stops them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fedrepro.config.run_spec import RunSpec
from fedrepro.data.partition.partition import Partition
from fedrepro.engine.method import SAMPLES
from fedrepro.engine.round import begin
from fedrepro.run.assembly import make_plan
from fedrepro.run.given import MODEL
from fedrepro.run.store import load_tree
from fedrepro.support.errors import UserError
from support.tiny_run import carry_out, dataset, partition, run_spec


def spec(**changes: Any) -> RunSpec:
    values = {
        "model": "fedevg_small", "scaling": "unit", "rounds": 3, "participation": 1.0, "epochs": 1,
        "optimizer": {"name": "adam", "lr": 0.001, "betas": [0.5, 0.999]},
        "evaluate": {"clients": True}, **changes,
    }  # fmt: skip
    return run_spec("fedevg", **values)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "seed1"
    assert carry_out(folder, spec())["status"] == "finished"
    return folder


def test_every_client_s_own_classifier_is_scored(finished: Path) -> None:
    """On the samples that it holds out; there is no shared one to score on the test set."""
    clients = pd.read_parquet(finished / "clients.parquet")
    last = clients[clients["round"] == 3]
    assert last["client"].tolist() == [*range(6)]
    assert (last["test_samples"] == 5).all() and (last["participations"] == 3).all()
    assert last["accuracy"].between(0, 1).all()
    rounds = pd.read_parquet(finished / "rounds.parquet")
    assert rounds["test_accuracy"].isna().all() and rounds["test_loss"].isna().all()
    assert rounds["client_accuracy"].iloc[-1] == pytest.approx(last["accuracy"].mean())
    assert {"item_energy", "item_loss", "moved"} <= set(rounds.columns)


def test_the_set_is_left_with_what_it_is(finished: Path) -> None:
    tensors, facts = load_tree(finished / MODEL)
    assert (facts["part"], facts["range"], facts["clients"]) == (SAMPLES, "unit", None)
    assert facts["about"] == {"classes": 3, "per_class": 10}
    assert tensors["x"].shape == (30, 1, 2, 2) and tensors["x"].dtype == torch.float32
    assert torch.equal(tensors["y"], torch.arange(3).repeat_interleave(10))
    images, _ = load_tree(finished / "round3-images.safetensors")
    assert torch.equal(images["images"], (tensors["x"] * 255).round().to(torch.uint8))


def test_what_travels_is_the_set_and_its_gradients(finished: Path) -> None:
    rounds = pd.read_parquet(finished / "rounds.parquet")
    assert (rounds["bytes_down"] == 6 * (30 * 4 * 4 + 30 * 8)).all()
    assert (rounds["bytes_up"] == 6 * (30 * 4 * 4 + 30 * 4 + 2 * 4)).all()


def test_energies_that_explode_end_the_run_with_the_last_good_set(tmp_path: Path) -> None:
    """One round at a rate that is none: what is left is the set that the run began with."""
    wild = {"name": "adam", "lr": 1e38, "betas": [0.5, 0.999]}
    manifest = carry_out(tmp_path / "seed1", spec(optimizer=wild))
    assert (manifest["status"], manifest["diverged_at"]) == ("diverged", 1)
    tensors, _ = load_tree(tmp_path / "seed1" / MODEL)
    begun = begin(make_plan(spec(), dataset(), partition(held_out=True)).federation)
    assert tensors["x"].isfinite().all() and torch.equal(tensors["x"], begun["x"])


def without_class_2() -> Partition:
    indices = [np.arange(client, 150, 6) for client in range(6)]
    train = [rows[rows % 3 != 2] for rows in indices]
    train = [rows if len(rows) else np.array([0]) for rows in train]
    counts = np.array([np.bincount(rows % 3, minlength=3) for rows in train])
    return Partition(train, None, counts, None, {}, "by-hand", 0)


def test_a_class_that_no_client_has_is_refused() -> None:
    with pytest.raises(UserError, match="no client has a training sample of class 2: expected"):
        make_plan(spec(evaluate={}), dataset(), without_class_2())


def test_models_of_clients_can_t_be_kept(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="keep: fedevg: expected no rounds"):
        carry_out(tmp_path / "seed1", spec(keep={"fedevg": [1]}))
