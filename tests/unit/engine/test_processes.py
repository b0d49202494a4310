"""Work dealt out to forked processes, and what happens when one of them does not come back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from fedrepro.check.world import play
from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.executors import Executor, Parallel, sequential
from fedrepro.engine.processes import Stacked, distribute
from fedrepro.methods.fedavg import FedAvg
from fedrepro.support.errors import UserError, bad_value
from fedrepro.support.terminal import ASKED_TO_END
from support.closeness import assert_close
from support.places import TESTS
from support.refusals import refused
from support.worlds import federation


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
            raise bad_value("settings.yaml", "model", "x", "another")
        time.sleep(0.3)

    with refused("value", file="settings.yaml", key="model", names="'x'") as raised:
        distribute(refuse, range(50), 2)
    assert raised.value.expected == "another"

    def refuse_at_length(place: int) -> None:
        if os.getpid() != here:
            raise bad_value(
                "\U0001f4be" * 50_000, "\U0001f511" * 50_000, "x", "\U0001f4d0" * 50_000
            )
        time.sleep(0.3)

    with refused("value") as raised:
        distribute(refuse_at_length, range(50), 2)
    assert set(raised.value.key) == {"\U0001f511"}

    def fail(place: int) -> None:
        if os.getpid() != here:
            raise KeyError("missing")
        time.sleep(0.3)

    with pytest.raises(RuntimeError, match=r"(?s)in fail.*KeyError: 'missing'"):
        distribute(fail, range(50), 2)


def children() -> set[str]:
    """The processes that this one has started and not waited for."""
    listed = (file.read_text() for file in Path("/proc/self/task").glob("*/children"))
    return {number for text in listed for number in text.split()}


def test_what_goes_wrong_here_leaves_no_process() -> None:
    here = os.getpid()

    def fail(place: int) -> None:
        if os.getpid() == here:
            raise KeyboardInterrupt
        time.sleep(60)

    began, before = time.perf_counter(), children()
    with pytest.raises(KeyboardInterrupt):
        distribute(fail, range(3), 3)
    assert time.perf_counter() - began < 10
    assert children() <= before  # other tests in this process may have servers


def test_a_killed_worker_is_one_line() -> None:
    here = os.getpid()

    def die(place: int) -> None:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.3)

    with refused("", file="number 1", names=("1", "SIGKILL")):
        distribute(die, range(4), 2)


class Mute(Exception):
    """Its text fails."""

    def __str__(self) -> str:
        raise ValueError("no text")


def _raise(error: BaseException) -> NoReturn:
    raise error


def _close_all() -> None:
    os.closerange(0, 1000)


def _close_and_open_others() -> None:
    """The files of the results, of the queue and of the output are others now."""
    os.closerange(0, 1000)
    for _ in range(8):
        os.memfd_create("other")


def _as_a_daemon() -> None:
    _close_all()
    _raise(Mute())


# What a hook, a model or a library may do in a process of its own.
ENDS: dict[str, Callable[[], object]] = {
    "os._exit(0)": lambda: os._exit(0),
    "os._exit(3)": lambda: os._exit(3),
    "SystemExit": lambda: _raise(SystemExit(0)),
    "SystemExit without a number": lambda: _raise(SystemExit()),
    "KeyboardInterrupt": lambda: _raise(KeyboardInterrupt()),
    "GeneratorExit": lambda: _raise(GeneratorExit()),
    "an error without a text": lambda: _raise(Mute()),
    "an error with half of a character": lambda: _raise(ValueError("\ud800")),
    "an endless error": lambda: _raise(ValueError("x" * 10**6)),
    "all files closed, and an error": _as_a_daemon,
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGALRM": lambda: os.kill(os.getpid(), signal.SIGALRM),
    "another program": lambda: os.execv("/bin/true", ["true"]),
}


def _played(hook: Callable[[], object], executor: Executor) -> tree.Tree:
    """The server after three rounds; in the second, other processes call a hook before a client."""
    here = os.getpid()

    class Hooked(FedAvg):
        def client_update(self, ctx: Context, *rest: Any) -> Any:
            if ctx.round == 1 and os.getpid() != here:
                hook()
            elif ctx.round == 1:
                time.sleep(0.1)  # so that they get a client
            return super().client_update(ctx, *rest)

    server, _, _ = play(federation(method=Hooked(), execute=executor), until=3)
    return server


@pytest.mark.parametrize("end", list(ENDS))
def test_a_process_that_does_not_end_as_agreed_is_an_error_with_client_and_round(end: str) -> None:
    with pytest.raises((UserError, RuntimeError), match=r"client \d+ in round 2"):
        _played(ENDS[end], Parallel(2))


@pytest.mark.parametrize("hook", [_close_all, _close_and_open_others])
def test_closed_files_give_an_error_or_the_same_bits(hook: Callable[[], object]) -> None:
    expected = _played(lambda: None, sequential)
    with suppress(UserError, RuntimeError):
        assert_close(_played(hook, Parallel(2)), expected, 0)


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


@pytest.mark.parametrize(
    "other",
    [
        {"a": torch.zeros(3)}, {"a": torch.zeros(2, dtype=torch.int32)},
        {"a": torch.zeros(2, dtype=torch.float16)}, {"b": torch.zeros(2)},
    ],
    ids=["shape", "as wide", "narrower", "name"],
)  # fmt: skip
def test_results_of_other_shapes_are_refused(other: tree.Tree) -> None:
    """The processes would lay out the shared memory differently, or read it as other numbers."""
    here = os.getpid()

    def put(place: int) -> None:
        time.sleep(0.05)
        results.put(place, {"a": torch.zeros(2)} if os.getpid() == here else other)

    results = Stacked(6)
    with results:
        distribute(put, range(6), 2)
    with refused(names=("another", "result")):
        results.refuse_gaps("number {}".format)


def test_a_missing_result_is_refused() -> None:
    results = Stacked(3)

    def put(place: int) -> None:
        if place != 1:
            results.put(place, torch.zeros(2))

    with results:
        distribute(put, range(3), 2)
    with refused(file="number 1", names="missing"):
        results.refuse_gaps("number {}".format)


def test_signals_to_all_processes_reach_the_first_alone() -> None:
    """Those of a terminal or a cluster go to the whole process group."""
    results, here = Stacked(8), os.getpid()

    def put(place: int) -> None:
        if os.getpid() != here:
            for number in ASKED_TO_END:
                os.kill(os.getpid(), number)
        time.sleep(0.05)
        results.put(place, torch.tensor(float(place)))

    with results:
        distribute(put, range(8), 3)
    assert results.tree.tolist() == [*range(8)]


def test_what_processes_print_is_printed_once() -> None:
    code = """
import time
from fedrepro.engine.processes import distribute
print("before")
def work(place):
    print("client", place)
    time.sleep(0.1)
distribute(work, range(4), 3)
"""
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent / "src"), "PYTHONUNBUFFERED": ""}
    printed = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert sorted(printed.splitlines()) == ["before", *(f"client {each}" for each in range(4))]
