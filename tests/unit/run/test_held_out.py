"""Training never sees a sample that is held out: others in its place change no bit of a run."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedrepro.check import world
from fedrepro.data.dataset import Dataset
from fedrepro.data.partition.partition import Partition
from fedrepro.engine import tree
from fedrepro.engine.context import LoadedArtifact
from fedrepro.engine.net import Net
from fedrepro.engine.round import Federation, begin, play_round
from fedrepro.methods import registry
from fedrepro.run.assembly import Plan, make_plan
from support import tiny_run
from support.given_run import larger_dataset
from support.worlds import QUICK

MODELS = {
    "wgan_gp": "wgan_gp_small",
    "fedgan": "wgan_gp_small",
    "discriminators": "discriminator_small",
}
MODELS |= {name: f"{name}_small" for name in ("fedevg", "fedcgan", "fedcvae")}
SCALINGS = {"fedevg": "unit", "fedcvae": "unit"}
# `generated` draws images and has no samples.
TRAINED = [
    name
    for name, part in registry.parts().items()
    if part.kind in ("method", "pre-training") and name != "generated"
]
WRAPPED = ["ima+fedavg", "aaggff_s+fedavg", "aaggff_d+fedavg", "fedavg+fedadam"]
CLASSES = tiny_run.CLASSES


def shares(labels: NDArray[np.int64]) -> Partition:
    """Of a client's samples a quarter each is for training, testing, validation, and no use."""
    every = tiny_run.partition()
    train, test, validation = (
        [rows[part::4] for rows in every.train] for part in range(3)
    )  # fmt: skip

    def counts(rows: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        return np.stack([np.bincount(labels[each], minlength=CLASSES) for each in rows])

    return replace(
        every, train=train, train_counts=counts(train), test=test, test_counts=counts(test),
        validation=validation, validation_counts=counts(validation),
    )  # fmt: skip


def poisoned(data: Dataset) -> Dataset:
    """Every sample that no client trains on is another, of another class; so is the test set."""
    train, test = data.train, data.test
    assert test is not None
    others = np.ones(len(train), bool)
    others[np.concatenate(shares(train.y).train)] = False
    x, y = train.x.copy(), train.y.copy()
    x[others] = np.nan if x.dtype == np.float32 else 255 - x[others]
    y[others] = (y[others] + 1) % CLASSES
    return replace(
        data,
        train=replace(train, x=x, y=y),
        test=replace(test, x=255 - test.x, y=(test.y + 1) % CLASSES),
    )


def played(composition: str, data: Dataset, **changes: Any) -> tree.Tree:
    """The server's state and all clients' after two rounds."""
    part = composition.split("+")[0]
    cls = registry.parts()[part].cls
    values = {
        "rounds": 3, "participation": 1.0, "epochs": 1, "model": MODELS.get(part, "twonn"),
        "evaluate": {"clients": True},
        "hyperparameters": {k: dict(v) for k, v in QUICK.items()}, **changes,
    }  # fmt: skip
    if not getattr(cls, "classifies", True):
        values["scaling"] = SCALINGS.get(part, "symmetric")
        values["optimizer"] = {"name": "adam", "lr": 1e-3}
    values["hyperparameters"] |= {"ditto": {"personal_epochs": 1}, "fedrep": {"body_epochs": 1}}
    plan = make_plan(tiny_run.run_spec(composition, **values), data, shares(data.train.y))
    federation = with_artifacts(plan)
    server, states = begin(federation), world.Memory()
    for number in range(2):
        server, _ = play_round(federation, server, states, number)
    return {"server": server, "clients": {str(k): own for k, own in states.known.items()}}


def with_artifacts(plan: Plan) -> Federation:
    """With stand-ins for what the method requires, of the data set's shape."""
    federation = plan.federation
    shape = federation.context.inputs.shape
    size, clients = int(np.prod(shape)), federation.context.clients
    random = torch.Generator().manual_seed(0)
    maker = Net(torch.nn.Sequential(torch.nn.Linear(2, size), torch.nn.Unflatten(1, shape)))
    critic = Net(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(size, 1)))
    given = {
        "unlabelled": LoadedArtifact({"x": torch.rand(20, *shape, generator=random)}),
        "generator": LoadedArtifact(maker.init(random), maker, {"latent": 2}),
        "discriminators": LoadedArtifact(
            tree.stack([critic.init(random) for _ in range(clients)]), critic
        ),
    }
    context = replace(federation.context, artifacts=given)
    return replace(federation, context=context)


@cache
def data_for(composition: str) -> Dataset:
    return larger_dataset() if composition in MODELS else tiny_run.dataset()


def assert_equal(one: tree.Tree, other: tree.Tree) -> None:
    ours, theirs = dict(tree.named(one)), dict(tree.named(other))
    assert ours.keys() == theirs.keys()
    for name, leaf in ours.items():
        assert leaf.dtype.is_floating_point is False or bool(leaf.isfinite().all()), name
        assert torch.equal(leaf, theirs[name]), name


@pytest.mark.parametrize("composition", [*TRAINED, *WRAPPED])
def test_others_held_out_change_nothing(composition: str) -> None:
    data = data_for(composition)
    assert_equal(played(composition, data), played(composition, poisoned(data)))


@pytest.mark.parametrize("composition", ["fedavg", "central"])
def test_nor_with_noise_and_statistics_of_clients(composition: str) -> None:
    """Label noise, and features standardised by each client: those held out are NaN."""
    images = tiny_run.dataset()
    flat = replace(images.train, x=images.train.x.reshape(-1, 4).astype(np.float32))
    clean = replace(images, train=flat, input_shape=(4,), client_standardised=(0, 2))
    noise = {"noise": {"kind": "symmetric", "rate": 0.3}, "model": "logistic"}
    ours = played(composition, replace(clean, test=None), **noise)
    theirs = played(composition, replace(poisoned(clean), test=None), **noise)
    assert_equal(ours, theirs)


@pytest.mark.parametrize("composition", ["fedavg", "central"])
def test_a_sample_that_is_trained_on_does_change_them(composition: str) -> None:
    """So that the tests above can fail."""
    data = tiny_run.dataset()
    x = data.train.x.copy()
    row = shares(data.train.y).train[3][0]
    x[row] = 255 - x[row]
    changed = replace(data, train=replace(data.train, x=x))
    one, other = (played(composition, each)["server"]["params"] for each in (data, changed))
    assert not all(torch.equal(leaf, other[name]) for name, leaf in one.items())
