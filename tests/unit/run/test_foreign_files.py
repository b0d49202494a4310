"""A run begins among the files of another request: none of them may end up in its result."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedrepro.config.run_spec import RunSpec
from fedrepro.data.dataset import Dataset
from fedrepro.run import runner
from fedrepro.run.results import FINISHED, partial_of
from support.tiny_run import dataset, partition, run_spec

COMMON: dict[str, Any] = {"rounds": 4, "checkpoint_every": 1}
# Clients have states, and models of one round are kept.
SPEC = run_spec("scaffold", save_models_at={"scaffold": [1]}, **COMMON)
Request = tuple[RunSpec, Dataset, str]
DATA = replace(dataset(), meta={"content_sha256": "ours"})
OTHER_DATA = replace(dataset(1), meta={"content_sha256": "theirs"})
OWN: Request = SPEC, DATA, "code"
OTHERS: dict[str, Request] = {
    "seed": (replace(SPEC, seed=2), DATA, "code"),
    "rate": (
        run_spec("scaffold", save_models_at={"scaffold": [1]}, **COMMON, optimizer={"lr": 0.2}),
        DATA,
        "code",
    ),
    "method": (run_spec("fedavg", **COMMON), DATA, "code"),
    "kept round": (run_spec("scaffold", save_models_at={"scaffold": [2]}, **COMMON), DATA, "code"),
    "longer": (run_spec("scaffold", **{**COMMON, "rounds": 6}), DATA, "code"),
    "data": (SPEC, OTHER_DATA, "code"),
    "code": (SPEC, DATA, "other code"),
}


class Stopped(Exception):
    """As if the process had been killed."""


def carry_out(folder: Path, request: Request, until: int | None = None) -> None:
    spec, data, code = request

    def report(progress: runner.Progress) -> None:
        if progress.round == until:
            raise Stopped

    runner.run(spec, data, partition(), folder, code, report)


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "timing.json"}


def interrupted(folder: Path, request: Request, until: int) -> None:
    with pytest.raises(Stopped):
        carry_out(folder, request, until)


def before_the_first_checkpoint(folder: Path, request: Request) -> None:
    interrupted(folder, request, 1)


def halfway(folder: Path, request: Request) -> None:
    interrupted(folder, request, 3)


def finished(folder: Path, request: Request) -> None:
    carry_out(folder, request)


def finished_and_not_in_its_place(folder: Path, request: Request) -> None:
    carry_out(folder, request)
    partial_of(folder).mkdir(exist_ok=True)
    shutil.move(folder, partial_of(folder) / FINISHED)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("alone") / "seed1"
    carry_out(folder, OWN)
    return files(folder)


@pytest.mark.parametrize(
    "left_by", [before_the_first_checkpoint, halfway, finished, finished_and_not_in_its_place]
)
@pytest.mark.parametrize("other", OTHERS)
def test_files_of_another_request_are_not_gone_on_from(
    tmp_path: Path,
    expected: dict[str, bytes],
    other: str,
    left_by: Callable[[Path, Request], None],
) -> None:
    folder = tmp_path / "seed1"
    left_by(folder, OTHERS[other])
    carry_out(folder, OWN)
    assert files(folder) == expected
    assert not partial_of(folder).exists()


@pytest.mark.parametrize("other", OTHERS)
def test_nor_are_they_in_between(tmp_path: Path, expected: dict[str, bytes], other: str) -> None:
    """Begun, taken over by another request that is killed as well, and begun again."""
    folder = tmp_path / "seed1"
    halfway(folder, OWN)
    interrupted(folder, OTHERS[other], 2)
    carry_out(folder, OWN)
    assert files(folder) == expected
