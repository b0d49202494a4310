"""How SLURM's plug-in is asked on, with a stand-in for it; tests/slurm has the real one."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fedrepro.workflow import snakemake_patches as patches
from fedrepro.workflow.snakemake_patches import PLUGIN, SlurmQueries, keep_asking_slurm
from support.numbers_in_text import numbers_in

BY_SQUEUE = "squeue --name run"


class Cluster:
    """What the plug-in sees.

    Attributes:
        squeue, sacct: states by job, None where the command fails.
    """

    def __init__(self) -> None:
        self.squeue: dict[str, str] | None = {}
        self.sacct: dict[str, str] | None = None
        self.command = BY_SQUEUE
        self.ended: dict[str, str] = {}
        self.plugin: Any = ModuleType(PLUGIN)
        self.plugin.query_job_status = self.query
        self.plugin.query_job_status_squeue = lambda run: f"squeue --name {run}"
        self.executor = SimpleNamespace(run_uuid="run", check_active_jobs=self.check)
        SlurmQueries(self.executor, self.plugin)

    async def query(self, command: str, logger: object) -> tuple[dict[str, str] | None, Any]:
        found = self.squeue if command == BY_SQUEUE else self.sacct
        return (None, None) if found is None else (dict(found), 0.1)

    async def check(self, active_jobs: list[Any]) -> AsyncIterator[Any]:
        """As the plug-in does it: without an answer, all jobs are dropped."""
        states, _ = await self.plugin.query_job_status(self.command, None)
        if states is not None:
            for job in active_jobs:
                state = states.get(job.external_jobid, "")
                if state in ("COMPLETED", "UNKNOWN"):
                    self.ended[job.external_jobid] = state
                else:
                    yield job

    def left(self, *ids: str) -> list[str]:
        """The jobs that stay on the list after a check."""

        async def check() -> list[str]:
            jobs = [SimpleNamespace(external_jobid=each) for each in ids]
            return [job.external_jobid async for job in self.executor.check_active_jobs(jobs)]

        # In a thread: a browser of another test may have left a loop in this one.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(check())).result()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(patches.time, "monotonic", lambda: clock.now)
    return clock


def test_jobs_stay_while_nothing_answers_and_end_when_it_does(
    time: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster()
    cluster.squeue, cluster.command = None, "sacct"
    for _ in range(12):
        assert cluster.left("1", "2") == ["1", "2"]
        time.now += 10
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("fedrepro: SLURM ") and numbers_in(said) == [70] and "squeue" in said
    cluster.squeue, cluster.command = {"1": "COMPLETED", "2": "RUNNING"}, BY_SQUEUE
    assert cluster.left("1", "2") == ["2"]
    assert cluster.ended == {"1": "COMPLETED"}
    cluster.squeue = None
    time.now += patches.LONGEST + 1
    with pytest.raises(RuntimeError, match=r"^SLURM .* 24 h"):
        cluster.left("2")


def test_without_accounting_squeue_is_asked_instead(time: SimpleNamespace) -> None:
    cluster = Cluster()
    cluster.command = "sacct"
    cluster.squeue = {"1": "COMPLETED"}
    assert cluster.left("1") == []
    cluster.sacct = {"2": "COMPLETED", "3": "RUNNING"}  # with accounting, its word counts
    assert cluster.left("2", "3") == ["3"]


def test_a_job_that_is_no_longer_listed_counts_as_ended(
    time: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a while with answers; waiting tasks of an array are listed together."""
    cluster = Cluster()
    cluster.squeue = {"5_[2-3]": "PENDING", "8": "RUNNING"}
    ids = ("5_2", "7", "8")
    assert cluster.left(*ids) == list(ids)
    time.now += patches.FORGOTTEN - 1
    assert cluster.left(*ids) == list(ids)
    time.now += 1
    assert cluster.left(*ids) == ["5_2", "8"]
    assert cluster.ended == {"7": "UNKNOWN"}
    assert numbers_in(capsys.readouterr().err)[0] == 7


def test_accounting_may_be_late(time: SimpleNamespace) -> None:
    cluster = Cluster()
    cluster.command, cluster.sacct = "sacct", {}
    for _ in range(3):
        assert cluster.left("9") == ["9"]
        time.now += patches.FORGOTTEN


def test_other_executors_are_left_alone() -> None:
    executor = SimpleNamespace()
    keep_asking_slurm(SimpleNamespace(scheduler=SimpleNamespace(_executor=executor)))
    assert vars(executor) == {}
