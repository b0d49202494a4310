"""Runs whose product is a set of images: what they leave and record, and what stops them."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fedrepro.config.run_spec import RunSpec
from fedrepro.config.settings import ArtifactFromFile
from fedrepro.data.dataset import Dataset
from fedrepro.data.partition.partition import Partition
from fedrepro.data.tensors.samples import Scaling
from fedrepro.engine.method import SAMPLES
from fedrepro.engine.round import begin
from fedrepro.run import runner
from fedrepro.run.assembly import make_plan
from fedrepro.run.input_artifacts import MODEL, load
from fedrepro.run.store import load_tree, save_tree
from fedrepro.support.files import sha256_of
from support.refusals import refused
from support.tiny_run import SIZES, carry_out, dataset, partition, run_spec


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
    assert last["test_samples"].tolist() == [size // 5 for size in SIZES]
    assert (last["participations"] == 3).all()
    assert last["accuracy"].between(0, 1).all()
    rounds = pd.read_parquet(finished / "rounds.parquet")
    assert rounds["test_accuracy"].isna().all() and rounds["test_loss"].isna().all()
    assert rounds["client_accuracy"].iloc[-1] == pytest.approx(last["accuracy"].mean())
    assert {"item_energy", "item_loss", "moved", "alike"} <= set(rounds.columns)


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


# --- a set to begin with -------------------------------------------------------------------------


def started(root: Path, **changes: Any) -> tuple[RunSpec, Path]:
    """A run that begins with ``root``'s file, and where it goes."""
    source = ArtifactFromFile(
        file=Path("start.safetensors"), sha256=sha256_of(root / "start.safetensors")
    )
    return replace(spec(**changes), inputs={"start": source}), root / "runs/seed1"


def begin_with(root: Path, data: Dataset | None = None, **changes: Any) -> dict[str, Any]:
    wanted, folder = started(root, **changes)
    data, shares = data or dataset(), partition(held_out=True)
    loaded = load(root, wanted, data, shares)
    return runner.run(wanted, data, shares, folder, "code", given=loaded)


def test_a_run_begins_with_the_set_that_another_left(finished: Path, tmp_path: Path) -> None:
    """With steps of length zero and no noise it leaves the same set; it is another run."""
    shutil.copy(finished / MODEL, tmp_path / "start.safetensors")
    still = {"first_step": 0.0, "last_step": 0.0, "noise": 0.0}
    manifest = begin_with(tmp_path, hyperparameters={"fedevg": still}, rounds=1)
    left, _ = load_tree(tmp_path / "runs/seed1" / MODEL)
    theirs, _ = load_tree(finished / MODEL)
    assert torch.equal(left["x"], theirs["x"])
    known = sha256_of(finished / MODEL)
    assert manifest["run"]["given"] == {"start": f"file {known}"}
    assert manifest["data"]["given"] == {"start": known}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"data": "others 123"}, ("start", "'others 123'", "blobs None")),
        ({"part": "generator"}, ("start", "'generator'", "samples")),
        ({"input_shape": [3, 2, 2]}, ("start", "channels: 3", "1", "test/blobs")),
        ({"range": "symmetric"}, ("start", "'symmetric'", "unit")),
        (slice(20), ("start", "20", "2", "10", "3")),
        (torch.tensor([2, 1, 0]).repeat(10), ("start", "30", "10", "3")),
        (torch.nan, ("start", "30", "finite")),
        (12, ("start", "12", "30")),
        (None, ("start", "without", "classes")),
    ],
)  # fmt: skip
def test_another_set_is_refused(
    finished: Path, tmp_path: Path, change: Any, names: tuple[str, ...]
) -> None:
    tensors, facts = load_tree(finished / MODEL)
    if isinstance(change, dict):
        facts = {**facts, **change}
    elif isinstance(change, slice):
        tensors = {name: leaf[change].clone() for name, leaf in tensors.items()}
    elif isinstance(change, float):
        tensors["x"][3] = change
    elif isinstance(change, int):
        tensors["x"] = tensors["x"][:change].clone()
    else:
        tensors = {"x": tensors["x"]} if change is None else {**tensors, "y": change}
    save_tree(tmp_path / "start.safetensors", tensors, facts)
    with refused(names=names) as raised:
        begin_with(tmp_path)
    assert "\n" not in str(raised.value)


def without_class_2() -> Partition:
    indices = [np.arange(client, 150, 6) for client in range(6)]
    train = [rows[rows % 3 != 2] for rows in indices]
    train = [rows if len(rows) else np.array([0]) for rows in train]
    counts = np.array([np.bincount(rows % 3, minlength=3) for rows in train])
    return Partition(train, None, counts, None, {}, "by-hand", 0)


def test_a_class_that_no_client_has_is_refused() -> None:
    with refused(names=("2", "training")):
        make_plan(spec(evaluate={}), dataset(), without_class_2())


def test_models_of_clients_can_t_be_kept(tmp_path: Path) -> None:
    with refused(names=("save_models_at", "fedevg")):
        carry_out(tmp_path / "seed1", spec(save_models_at={"fedevg": [1]}))


def test_the_range_of_pixels_is_the_scaling_s() -> None:
    ranges = [Scaling.of(dataset(), "cpu", kind).range for kind in ("unit", "symmetric", None)]
    assert ranges == [(0.0, 1.0), (-1.0, 1.0), (0.0, 1.0)]
    half = torch.tensor([0.5, 0.25]).view(-1, 1, 1)
    assert Scaling(half, half).range is None
    assert Scaling(half[1:], half[1:]).range == (-1.0, 3.0)
