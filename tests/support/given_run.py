"""Chains of tiny runs, each given what the one before it left."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.config.run_spec import RunSpec
from fedrepro.config.targets import RunKey
from fedrepro.data.dataset import Dataset, Split
from fedrepro.data.partition.partition import Partition
from fedrepro.provenance import fingerprint, numerics
from fedrepro.run import input_artifacts, runner
from support import tiny_run
from support.places import TESTS

METHODS = TESTS / "support/pretraining"
COMMON = {
    "scaling": "symmetric", "augment": "flip", "rounds": 4, "participation": 1.0,
    "optimizer": {"name": "adam", "lr": 0.05, "betas": [0.5, 0.9]},
}  # fmt: skip
IMAGES = 12


# --- methods of the tests, on the data of `tiny_run` ---------------------------------------------


def partition() -> Partition:
    """Of every ten samples the server has one."""
    shared = tiny_run.partition(equal=True)
    kept = [each[each % 10 != 0] for each in shared.train]
    counts = np.array([np.bincount(each % 3, minlength=3) for each in kept])
    return replace(shared, train=kept, train_counts=counts, server=np.arange(0, 150, 10))


def specs(**changes: Any) -> dict[str, RunSpec]:
    """Of the three runs, by method; ``changes`` are of the last one."""
    maker = tiny_run.run_spec("maker", **COMMON)
    judges = replace(tiny_run.run_spec("judges", **COMMON), inputs={"maker": maker})
    taught = tiny_run.run_spec("taught", **{**COMMON, **changes})
    sources: dict[str, Any] = {"unlabelled": "server", "judges": judges}
    return {"maker": maker, "judges": judges, "taught": replace(taught, inputs=sources)}


# --- a GAN, images of it, a distillation, on images of 28 x 28 -----------------------------------


def larger_dataset() -> Dataset:
    """The blobs, each pixel of which is 14 x 14 of these."""
    small = tiny_run.dataset()
    assert small.test is not None

    def larger(split: Split) -> Split:
        return Split(split.x.repeat(14, axis=2).repeat(14, axis=3), split.y, None)

    train, test = larger(small.train), larger(small.test)
    return replace(small, input_shape=(1, 28, 28), train=train, test=test)


def gan_specs(**changes: Any) -> dict[str, RunSpec]:
    """Of the three runs, by method; ``changes`` are of the last one."""
    common = {"scaling": "symmetric", "participation": 1.0, "epochs": 1, "batch_size": 25}
    gan = tiny_run.run_spec(
        "wgan_gp", **common, model="wgan_gp_small", rounds=3,
        optimizer={"name": "adam", "lr": 1e-3}, hyperparameters={"wgan_gp": {"critic_steps": 2}},
    )  # fmt: skip
    images = tiny_run.run_spec(
        "generated", **common, model="wgan_gp_small", rounds=1,
        hyperparameters={"generated": {"number": IMAGES}},
    )  # fmt: skip
    last = {"rounds": 1, "hyperparameters": {"feddf": {"server_epochs": 1}}, **common, **changes}
    taught = tiny_run.run_spec("feddf", **last)
    images = replace(images, inputs={"generator": gan})
    return {
        "wgan_gp": gan,
        "generated": images,
        "feddf": replace(taught, inputs={"unlabelled": images}),
    }


# --- carrying them out ---------------------------------------------------------------------------


def folder_of(root: Path, spec: RunSpec) -> Path:
    return root / RunKey(spec.setting.name, spec.method, spec.seed).folder


def carry_out(
    root: Path,
    spec: RunSpec,
    report: runner.Report = lambda progress: None,
    shares: Partition | None = None,
) -> dict[str, Any]:
    """A run of either chain, or of anything else on the data of ``tiny_run``."""
    of_gan = spec.method in gan_specs()
    data = larger_dataset() if of_gan else tiny_run.dataset()
    shares = shares or (tiny_run.partition(equal=True) if of_gan else partition())
    loaded = input_artifacts.load(root, spec, data, shares)
    code, ids = fingerprint.of_code(spec), numerics.of_run(spec)
    folder = folder_of(root, spec)
    return runner.run(spec, data, shares, folder, code, report, loaded, numerics=ids)


def files(folder: Path) -> dict[str, bytes]:
    """All that a run left and that is the same when it is made again."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "timing.json"}
