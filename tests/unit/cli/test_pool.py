"""Jobs in forked processes: their status, their logs, and how they are stopped."""

import os
import signal
import time
from pathlib import Path

import pytest

from fedrepro.cli.pool import Job, run_jobs
from fedrepro.support.errors import Interrupted, UserError


def wait(seconds: float, then: Path) -> None:
    time.sleep(seconds)
    then.touch()


def test_jobs_end_each_with_its_own_status_and_log(tmp_path: Path) -> None:
    def refuse() -> None:
        print("before")
        raise UserError("not this one")

    def break_() -> None:
        raise ValueError("a mistake")

    jobs = [
        Job(lambda: wait(0, tmp_path / "done"), tmp_path / "logs/a.log"),
        Job(refuse, tmp_path / "logs/b.log"),
        Job(break_, tmp_path / "logs/c.log"),
    ]
    found: dict[int, int] = {}
    run_jobs(jobs, 2, lambda place, status, seconds: found.update({place: status}))
    assert found == {0: 0, 1: 2, 2: 1}
    assert (tmp_path / "done").exists()
    assert (tmp_path / "logs/b.log").read_text() == "before\nfedrepro: not this one\n"
    last = (tmp_path / "logs/c.log").read_text().splitlines()[-1]
    assert last == "fedrepro: internal error: ValueError: a mistake"


def test_after_a_signal_no_job_begins_and_those_under_way_are_stopped(tmp_path: Path) -> None:
    marks = [tmp_path / str(number) for number in range(3)]

    def work(mark: Path) -> None:
        mark.touch()
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(60)

    jobs = [Job(lambda mark=mark: work(mark), tmp_path / f"{mark.name}.log") for mark in marks]
    found: list[int] = []
    with pytest.raises(Interrupted) as caught:
        run_jobs(jobs, 1, lambda place, status, seconds: found.append(status))
    assert caught.value.status == 128 + signal.SIGTERM
    assert found == [130]
    assert [mark.exists() for mark in marks] == [True, False, False]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL], ids=["nohup", "terminal"])
def test_a_job_has_a_group_of_its_own_and_ignores_what_the_first_process_ignores(
    tmp_path: Path, handler: signal.Handlers
) -> None:
    """Ctrl-C reaches the first process alone, which asks once; under nohup none ends by SIGHUP."""

    def tell() -> None:
        print(os.getpgid(0) == os.getpid(), signal.getsignal(signal.SIGHUP) is handler)

    before = signal.signal(signal.SIGHUP, handler)
    try:
        run_jobs([Job(tell, tmp_path / "x.log")], 1, lambda place, status, seconds: None)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (tmp_path / "x.log").read_text() == "True True\n"
