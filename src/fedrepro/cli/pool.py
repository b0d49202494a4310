"""Run jobs in forked processes, each with its own log, a few at a time."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn, cast

from fedrepro.support.errors import Interrupted, UserError, text_of
from fedrepro.support.interruption import asked_to_stop
from fedrepro.support.printing import printable
from fedrepro.support.terminal import ASKED_TO_END, Unfailing, say

POLL = 0.1  # seconds between looks at the processes
INTERNAL = 1  # exit status of a job that failed with anything but a UserError


@dataclass(frozen=True)
class Job:
    """Something to do in a process of its own.

    Attributes:
        log: gets all that it prints, and why it failed; emptied first.
    """

    work: Callable[[], None]
    log: Path


def run_jobs(jobs: Sequence[Job], at_once: int, ended: Callable[[int, int, float], None]) -> None:
    """Run all jobs, whether or not some fail.

    What this process has imported is shared. After Ctrl-C, SIGTERM and the like, no job is started,
    and those under way are asked to stop.

    Args:
        ended: called with a job's place, exit status (0: done) and seconds.

    Raises:
        Interrupted: after a signal, once all jobs have ended.
    """
    waiting = list(range(len(jobs)))
    under_way: dict[int, tuple[int, float]] = {}  # by process: its job's place, and when it began
    asked = False
    with asked_to_stop() as stop:
        try:
            while under_way or (waiting and not stop.signal_number):
                while waiting and len(under_way) < at_once and not stop.signal_number:
                    place = waiting.pop(0)
                    under_way[_start(jobs[place])] = place, time.monotonic()
                if stop.signal_number and not asked:
                    asked = True
                    _signal(under_way, signal.SIGTERM)
                for process in [*under_way]:
                    found, status = os.waitpid(process, os.WNOHANG)
                    if found:
                        place, began = under_way.pop(process)
                        code = os.waitstatus_to_exitcode(status)
                        ended(place, code, time.monotonic() - began)
                time.sleep(POLL)
        finally:
            _signal(under_way, signal.SIGTERM)
        if stop.signal_number:
            raise Interrupted(
                "interrupted: finished runs and checkpoints are kept; run the same command again",
                stop.signal_number,
            )


def _signal(processes: Iterable[int], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _start(job: Job) -> int:
    """Fork; returns the process."""
    job.log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        return process
    _carry_out(job)


def _carry_out(job: Job) -> NoReturn:
    """Do the work in the fork, which ends here."""
    status = INTERNAL
    try:
        os.setpgid(0, 0)  # so that Ctrl-C reaches the first process only, which asks this one once
        for number in ASKED_TO_END:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        log = job.log.open("w", encoding="utf-8", buffering=1)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        sys.stdout = sys.stderr = cast(IO[str], Unfailing(log))
        try:
            job.work()
            status = 0
        except UserError as error:
            say(f"fedrepro: {error}")
            status = 2
        except Interrupted as error:
            say(f"fedrepro: {error}")
            status = error.status
        except KeyboardInterrupt:
            say("fedrepro: interrupted")
            status = 130
        except Exception as error:
            say(printable(traceback.format_exc()).rstrip())
            say(f"fedrepro: internal error: {text_of(error)}")
    finally:
        os._exit(status)
