"""The makespan of jobs with dependencies, with one core each."""

from collections.abc import Collection, Mapping
from graphlib import TopologicalSorter
from heapq import heapify, heappop, heappush

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
    followers: dict[RunKey, list[RunKey]] = {run: [] for run in seconds}
    for run, firsts in after.items():
        for first in firsts:
            followers[first].append(run)
    order = tuple(TopologicalSorter(after).static_order())
    ahead: dict[RunKey, float] = {}
    for run in reversed(order):
        ahead[run] = seconds[run] + max((ahead[child] for child in followers[run]), default=0.0)
    waits = {run: len(after[run]) for run in seconds}
    number = {run: place for place, run in enumerate(order)}  # breaks ties
    ready = [(-ahead[run], number[run], run) for run in order if not waits[run]]
    heapify(ready)
    running: list[tuple[float, int, RunKey]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < at_once:
            _, _, run = heappop(ready)
            heappush(running, (now + seconds[run], number[run], run))
        now, _, done = heappop(running)
        for run in followers[done]:
            waits[run] -= 1
            if not waits[run]:
                heappush(ready, (-ahead[run], number[run], run))
    return now
