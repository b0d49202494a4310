"""Work dealt out to forked processes, and what happens when one of them does not come back."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fedrepro.check.world import federation, play
from fedrepro.engine import tree
from fedrepro.engine.executors import Parallel, sequential
from fedrepro.engine.processes import Stacked, distribute
from fedrepro.support.errors import UserError
from support.closeness import assert_close
from support.places import TESTS


@pytest.mark.parametrize("workers", [1, 2, 3, 9])
def test_every_place_is_done_once_whoever_does_it(workers: int) -> None:
    counts = Stacked(7)
    counts.put(0, torch.zeros(2))

    def work(place: int) -> None:
        counts.put(place, counts.tree[place] + torch.tensor([1.0, os.getpid()]))

    with counts:
        distribute(work, [3, 0, 1, 2, 6, 5, 4], workers)
    assert counts.tree[:, 0].tolist() == [1.0] * 7
    assert counts.tree[3, 1] == torch.tensor(float(os.getpid()))


def test_trees_lie_as_they_came() -> None:
    def made(place: int) -> tree.Tree:
        return {
            "half": torch.full((3,), place, dtype=torch.float16),
            "deep": {"none": torch.zeros(0, 4), "flag": torch.tensor(place % 2 == 0)},
            "whole": torch.tensor([place, -place]),
        }

    stacked = Stacked(4)
    with stacked:
        distribute(lambda place: stacked.put(place, made(place)), [0, 1, 2, 3], 2)
    expected = tree.stack([made(place) for place in range(4)])
    for (name, leaf), (theirs, other) in zip(
        tree.named(stacked.tree), tree.named(expected), strict=True
    ):
        assert name == theirs and leaf.dtype == other.dtype and torch.equal(leaf, other)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "ima+superfed_mm", "aaggff_d+fedavg"])
def test_the_number_of_workers_changes_no_bit(name: str, workers: int) -> None:
    server, client_states, _ = play(federation(name, execute=sequential))
    distributed, dealt_states, _ = play(federation(name, execute=Parallel(workers)))
    assert_close(server, distributed, 0)
    assert_close(dict(client_states.known), dict(dealt_states.known), 0)


def test_what_goes_wrong_elsewhere_is_raised_here() -> None:
    here = os.getpid()

    def refuse(place: int) -> None:
        if os.getpid() != here:
            raise UserError("model: 'x': expected another")
        time.sleep(0.3)

    with pytest.raises(UserError, match="model: 'x': expected another"):
        distribute(refuse, range(50), 2)

    def fail(place: int) -> None:
        if os.getpid() != here:
            raise KeyError("missing")
        time.sleep(0.3)

    with pytest.raises(RuntimeError, match=r"(?s)in fail.*KeyError: 'missing'"):
        distribute(fail, range(50), 2)


def test_what_goes_wrong_here_leaves_no_process() -> None:
    here = os.getpid()

    def fail(place: int) -> None:
        if os.getpid() == here:
            raise KeyboardInterrupt
        time.sleep(60)

    began = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        distribute(fail, range(3), 3)
    assert time.perf_counter() - began < 10
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_killed_worker_is_one_line() -> None:
    here = os.getpid()

    def die(place: int) -> None:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.3)

    with pytest.raises(UserError, match=r"a worker process was killed \(SIGKILL\)"):
        distribute(die, range(4), 2)


ORPHANED = """
import os, sys, time
from pathlib import Path
from fedrepro.engine.processes import distribute
here = os.getpid()
def work(place):
    if os.getpid() != here:
        (Path(sys.argv[1]) / f"{os.getpid()}").touch()
    time.sleep(0.2)
distribute(work, range(10_000), 3)
"""


def test_workers_do_not_outlive_a_killed_run(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent / "src")}
    parent = subprocess.Popen([sys.executable, "-c", ORPHANED, str(tmp_path)], env=environment)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    workers = [int(file.name) for file in tmp_path.iterdir()]
    assert len(workers) == 2
    while any(map(_lives, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_lives, workers))


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False
