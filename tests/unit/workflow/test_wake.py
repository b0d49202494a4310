"""Snakemake's scheduler looks at the ready jobs as often as it must."""

import inspect
import threading
from types import SimpleNamespace

from snakemake.scheduling.job_scheduler import JobScheduler

from fedrepro.workflow.wake import once_a_second


def test_what_is_replaced_is_there_and_does_nothing_else() -> None:
    body = inspect.getsource(JobScheduler._schedule_reevalutation)
    assert "threading.Timer(" in body and "self._open_jobs.release()" in body


def test_many_requests_are_one_look_and_later_ones_another() -> None:
    looks = threading.Semaphore(0)
    scheduler = SimpleNamespace(_open_jobs=looks)
    once_a_second(SimpleNamespace(scheduler=scheduler))
    for _ in range(2):
        for _ in range(20):
            scheduler._schedule_reevalutation(0.05)
        assert looks.acquire(timeout=10)
        assert not looks.acquire(timeout=0.15)
