"""A chain of tiny runs on images of 28 x 28: a GAN, images of it, a distillation; also a program.

python -m support.gan_run ROOT: trains the GAN, and stops after every round until a line comes.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedrepro.config.run_spec import RunSpec
from fedrepro.config.targets import Run
from fedrepro.data.dataset import Dataset, Split
from fedrepro.run import given, runner
from support import tiny_run

IMAGES = 12


def dataset() -> Dataset:
    """The blobs, each pixel of which is 14 x 14 of these."""
    small = tiny_run.dataset()
    assert small.test is not None

    def larger(split: Split) -> Split:
        return Split(split.x.repeat(14, axis=2).repeat(14, axis=3), split.y, None)

    train, test = larger(small.train), larger(small.test)
    return replace(small, input_shape=(1, 28, 28), train=train, test=test)


def specs(**changes: Any) -> dict[str, RunSpec]:
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
    images = replace(images, given={"generator": gan})
    return {
        "wgan_gp": gan,
        "generated": images,
        "feddf": replace(taught, given={"unlabelled": images}),
    }


def folder_of(root: Path, spec: RunSpec) -> Path:
    return root / Run(spec.setting.name, spec.method, spec.seed).folder


def carry_out(
    root: Path, spec: RunSpec, report: runner.Report = lambda progress: None
) -> dict[str, Any]:
    data, shares = dataset(), tiny_run.partition()
    loaded = given.load(root, spec, data, shares)
    return runner.run(spec, data, shares, folder_of(root, spec), "code", report, loaded)


def main() -> None:
    def wait(progress: runner.Progress) -> None:
        print(progress.round, flush=True)
        sys.stdin.readline()

    carry_out(Path(sys.argv[1]), specs()["wgan_gp"], wait)


if __name__ == "__main__":
    main()
