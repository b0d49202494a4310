"""The makespan of jobs with dependencies, with one core each."""

from collections.abc import Collection, Mapping
from graphlib import TopologicalSorter
from heapq import heappop, heappush

from fedrepro.config.targets import RunKey


def makespan(
    seconds: Mapping[RunKey, float], after: Mapping[RunKey, Collection[RunKey]], at_once: int
) -> float:
    """The time at which all jobs are done, starting ready jobs by longest remaining path.

    Args:
        seconds: the duration of each job.
        after: for each job, the jobs that it waits for, all of which are in ``seconds``.
        at_once: the number of jobs at a time.
    """
    order = tuple(TopologicalSorter(after).static_order())
    number = {run: place for place, run in enumerate(order)}  # breaks ties
    path = {**seconds}  # from the start of a job to the end of the last one that waits for it
    for run in reversed(order):
        for first in after[run]:
            path[first] = max(path[first], seconds[first] + path[run])
    jobs = TopologicalSorter(after)
    jobs.prepare()
    ready: list[tuple[float, int, RunKey]] = []
    running: list[tuple[float, int, RunKey]] = []
    now = 0.0
    while jobs.is_active():
        for run in jobs.get_ready():
            heappush(ready, (-path[run], number[run], run))
        while ready and len(running) < at_once:
            _, _, run = heappop(ready)
            heappush(running, (now + seconds[run], number[run], run))
        now, _, done = heappop(running)
        jobs.done(done)
    return now
