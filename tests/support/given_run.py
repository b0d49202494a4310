"""A run that is given what two others left, on the data of ``tiny_run``; also a program.

python -m support.given_run ROOT: stops after every round until a line comes.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.config.run_spec import RunSpec
from fedrepro.config.targets import Run
from fedrepro.data.partition.partition import Partition
from fedrepro.run import given, runner
from support import tiny_run
from support.places import TESTS

METHODS = TESTS / "support/pretraining"
COMMON = {
    "scaling": "symmetric", "augment": "flip", "rounds": 4, "participation": 1.0,
    "optimizer": {"name": "adam", "lr": 0.05, "betas": [0.5, 0.9]},
}  # fmt: skip


def partition() -> Partition:
    """Of every ten samples the server has one."""
    shared = tiny_run.partition()
    kept = [each[each % 10 != 0] for each in shared.train]
    counts = np.array([np.bincount(each % 3, minlength=3) for each in kept])
    return replace(shared, train=kept, train_counts=counts, server=np.arange(0, 150, 10))


def specs(**changes: Any) -> dict[str, RunSpec]:
    """Of the three runs, by method; ``changes`` are of the last one."""
    maker = tiny_run.run_spec("maker", **COMMON)
    judges = replace(tiny_run.run_spec("judges", **COMMON), given={"maker": maker})
    taught = tiny_run.run_spec("taught", **{**COMMON, **changes})
    sources: dict[str, Any] = {"unlabelled": "server", "judges": judges}
    return {"maker": maker, "judges": judges, "taught": replace(taught, given=sources)}


def folder_of(root: Path, spec: RunSpec) -> Path:
    return root / Run(spec.setting.name, spec.method, spec.seed).folder


def carry_out(
    root: Path,
    spec: RunSpec,
    report: runner.Report = lambda progress: None,
    shares: Partition | None = None,
) -> dict[str, Any]:
    data, shares = tiny_run.dataset(), shares or partition()
    loaded = given.load(root, spec, data, shares)
    return runner.run(spec, data, shares, folder_of(root, spec), "code", report, loaded)


def main() -> None:
    def wait(progress: runner.Progress) -> None:
        print(progress.round, flush=True)
        sys.stdin.readline()

    carry_out(Path(sys.argv[1]), specs()["taught"], wait)


if __name__ == "__main__":
    main()
