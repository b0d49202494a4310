"""What a killed call of Snakemake leaves behind: its locks, and runs that ended without it.

Snakemake's locks are plain files, which nothing takes away after a ``kill -9`` or a power cut. So
each call also holds a lock of ours, which its death frees (:mod:`fedrepro.support.locks`): where no
other call is alive, Snakemake's locks are nobody's.
"""

import atexit
import os
import socket
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any

from fedrepro.run.results import FINISHED, partial_of
from fedrepro.support.errors import UserError, one_line
from fedrepro.support.files import make_folder
from fedrepro.support.locks import only_one

LOCKS = Path(".snakemake/locks")
CALLS = Path(".snakemake/calls")


@cache  # once per process
def forget_dead_calls() -> None:
    """Hold this call's lock until the process ends; remove what dead calls have locked.

    First the one, then the other: of two calls that begin at once, each sees the other. A call that
    is alive keeps all locks, and Snakemake says whether they are in the way.

    Raises:
        SystemExit: with status 2 after one line on stderr, when the disk refuses.
    """
    with one_line():
        alive = ExitStack()
        mine = CALLS.absolute() / f"{socket.gethostname()}-{os.getpid()}"
        alive.enter_context(only_one(mine))
        atexit.register(alive.close)
        locks = list(LOCKS.glob("*.lock"))
        others = {_call_of(lock) for lock in mine.parent.glob(".*.lock")} - {mine}
        if locks and all(map(_is_dead, others)):
            for lock in locks:
                lock.unlink(missing_ok=True)


def _call_of(lock: Path) -> Path:
    return lock.with_name(lock.name[1:].removesuffix(".lock"))


def _is_dead(call: Path) -> bool:
    """Whether its lock can be had; on another machine's the signs of life are awaited."""
    try:
        with only_one(call, busy="alive"):
            return True
    except UserError:
        return False


def keep_outlived(workflow: Any) -> None:
    """Put the results of runs that outlived their Snakemake where the same run finds them.

    Snakemake knows of such a run only that it has begun. It removes the files and calls the command
    again, which takes the result from there if it is the one that is asked for.
    """

    async def unacknowledged() -> list[Any]:
        jobs = [job for job in workflow.dag.needrun_jobs() if job.rule.name == "run"]
        return [job for job in jobs if await workflow.persistence.incomplete(job)]

    for job in workflow.async_run(unacknowledged()):
        folder = Path(job.output.manifest).parent
        partial = partial_of(folder)
        # Not from under a process that is just leaving it.
        with suppress(UserError, OSError), only_one(partial, busy="under way"):
            if (folder / "manifest.json").exists():
                make_folder(partial)
                folder.rename(partial / FINISHED)
