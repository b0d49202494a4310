"""Clean up after killed Snakemake calls: remove their locks, keep runs that finished after them.

Snakemake's locks are plain files, which stay after a ``kill -9`` or a power cut. Therefore each
call also holds one of our locks, which is released when it dies (:mod:`fedrepro.support.locks`). If
no other call is alive, Snakemake's locks are stale.
"""

import atexit
import os
import socket
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any

from fedrepro.run.results import FINISHED, partial_of
from fedrepro.support.errors import UserError, exit_on_user_error
from fedrepro.support.files import make_folder
from fedrepro.support.locks import exclusive_lock

LOCKS = Path(".snakemake/locks")
CALLS = Path(".snakemake/calls")


@cache  # once per process
def forget_dead_calls() -> None:
    """Hold this call's lock until the process ends; remove Snakemake's locks of dead calls.

    In this order, so that of two calls that start at once, each sees the other. If another call is
    alive, all locks stay, and Snakemake decides whether they conflict.

    Raises:
        SystemExit: with status 2 after one line on stderr, if the lock cannot be written.
    """
    with exit_on_user_error():
        alive = ExitStack()
        mine = CALLS.absolute() / f"{socket.gethostname()}-{os.getpid()}"
        alive.enter_context(exclusive_lock(mine))
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
        with exclusive_lock(call, busy="alive"):
            return True
    except UserError:
        return False


def keep_outlived(workflow: Any) -> None:
    """Save the results of runs that finished after their Snakemake call was killed.

    Snakemake knows only that such a run was started: it removes the files and calls the command
    again. The command then uses the saved result, if it is that of the same run.
    """

    async def unacknowledged() -> list[Any]:
        jobs = [job for job in workflow.dag.needrun_jobs() if job.rule.name == "run"]
        return [job for job in jobs if await workflow.persistence.incomplete(job)]

    for job in workflow.async_run(unacknowledged()):
        folder = Path(job.output.manifest).parent
        partial = partial_of(folder)
        # Not while its process still holds the lock.
        with suppress(UserError, OSError), exclusive_lock(partial, busy="under way"):
            if (folder / "manifest.json").exists():
                make_folder(partial)
                folder.rename(partial / FINISHED)
