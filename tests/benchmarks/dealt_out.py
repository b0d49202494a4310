"""A process that deals a workload's clients out; prints the seconds of its rounds, as JSON.

A process of its own, as a run is one: the larger a process is, the longer it takes to fork it.
Arguments: the workload's name, and a folder for clients' states.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from benchmarks.loops import EngineLoop
from benchmarks.workloads import WORKLOADS


def seconds(action: Callable[[int], None], rounds: int) -> float:
    """Of the clock, for one round."""
    start = time.perf_counter()
    action(rounds)
    return (time.perf_counter() - start) / rounds


def twice_at_once(loop: EngineLoop) -> Callable[[int], None]:
    """The same rounds in this process and in a fork of it."""

    def run(rounds: int) -> None:
        child = os.fork()
        if not child:
            try:
                loop.run(rounds)
                os._exit(0)
            finally:
                os._exit(1)
        loop.run(rounds)
        _, status = os.waitpid(child, 0)
        assert status == 0

    return run


def main(name: str, folder: str) -> None:
    torch.set_num_threads(1)
    workload = next(each for each in WORKLOADS if each.name == name)
    alone, dealt = (EngineLoop(workload, each, Path(folder)) for each in ("sequential", "parallel"))
    ways = {"alone": alone.run, "dealt": dealt.run, "two_at_once": twice_at_once(alone)}
    alone.run(1)
    dealt.run(1)
    turns = [
        {way: seconds(action, workload.rounds) for way, action in ways.items()}
        for _ in range(workload.measurements)
    ]
    print(json.dumps(turns))


if __name__ == "__main__":
    main(*sys.argv[1:])
