"""Keep asking SLURM about jobs while its controller is away, and without accounting.

Snakemake's plug-in (2.8) drops all jobs from its list when a query of their states fails, as while
slurmctld restarts, and then waits for ever. If the controller does not answer, it asks ``sacct``,
which never answers without accounting. And it awaits for ever a job that SLURM no longer lists: one
that ended longer than MinJobAge ago, or that a restarted controller has lost.
"""

import sys
import time
from collections.abc import AsyncIterator, Sequence
from types import ModuleType
from typing import Any

from fedrepro.support.terminal import say

PLUGIN = "snakemake_executor_plugin_slurm"
FORGOTTEN = 60.0  # seconds that `squeue` must answer without a job before the job counts as ended
SILENT = 60.0  # seconds without an answer between two lines about it
LONGEST = 24 * 3600.0  # seconds without an answer, after which the call ends

States = dict[str, str] | None  # by job id; None: no answer
Answer = tuple[States, float | None]  # and the seconds that it took


def keep_asking(workflow: Any) -> None:
    """Replace how the executor of this call queries states, if it is the SLURM plug-in's."""
    executor = workflow.scheduler._executor
    if type(executor).__module__ == PLUGIN:
        Asking(executor, sys.modules[PLUGIN])


class Asking:
    """The plug-in's queries, with an answer to every one.

    While no command answers, no job is known to have ended, and all stay on the plug-in's list. A
    job that ``squeue`` no longer lists gets the state UNKNOWN: the plug-in then takes it as ended,
    and Snakemake takes its files or, if there are none, fails it or tries it again.
    """

    def __init__(self, executor: Any, plugin: ModuleType) -> None:
        self._check, self._query = executor.check_active_jobs, plugin.query_job_status
        self._by_squeue = plugin.query_job_status_squeue(executor.run_uuid)
        self._ids: list[str] = []
        self._unlisted: dict[str, float] = {}  # job id -> since when
        self._answered = self._told = time.monotonic()
        executor.check_active_jobs = self.check
        plugin.query_job_status = self.query  # type: ignore[attr-defined]

    async def check(self, active_jobs: Sequence[Any]) -> AsyncIterator[Any]:
        """Yield the jobs that have not ended, as the plug-in does."""
        self._ids = [job.external_jobid for job in active_jobs]
        if not active_jobs:  # nothing is asked
            self._answered = time.monotonic()
        async for job in self._check(active_jobs):
            yield job

    async def query(self, command: str, logger: Any) -> Answer:
        """The states of this call's jobs; empty if no command answers.

        Raises:
            RuntimeError: after ``LONGEST`` without an answer.
        """
        states, seconds = await self._query(command, logger)
        if states is None and command != self._by_squeue:
            command = self._by_squeue
            states, seconds = await self._query(command, logger)
        if states is None:
            self._tell()
            return {}, 0.0
        self._answered = self._told = time.monotonic()
        if command == self._by_squeue:
            states |= self._forgotten(states)
        return states, seconds

    def _tell(self) -> None:
        now = time.monotonic()
        silent = now - self._answered
        if silent > LONGEST:
            raise RuntimeError(
                f"SLURM has not answered for {silent / 3600:.0f} h: its jobs may be under way; "
                "give the same command again when squeue answers"
            )
        if now - self._told > SILENT:
            self._told = now
            _say(f"SLURM has not answered for {silent:.0f} s; asking on (see what squeue says)")

    def _forgotten(self, states: dict[str, str]) -> dict[str, str]:
        """The state UNKNOWN for every job that has not been listed for ``FORGOTTEN``."""
        now = time.monotonic()
        # squeue lists the waiting tasks of an array together, as 17_[3-5].
        listed = {each.partition("_")[0] for each in states}
        unlisted = [job for job in self._ids if job.partition("_")[0] not in listed]
        self._unlisted = {job: self._unlisted.get(job, now) for job in unlisted}
        gone = [job for job, since in self._unlisted.items() if now - since >= FORGOTTEN]
        for job in gone:
            _say(f"SLURM no longer lists job {job}: it counts as ended, and its files decide")
            del self._unlisted[job]
        return dict.fromkeys(gone, "UNKNOWN")


def _say(line: str) -> None:
    say(f"fedrepro: {line}")
