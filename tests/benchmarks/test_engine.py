"""The engine against a bare PyTorch loop, in steps per CPU second; and how fast a run starts.

`make bench` runs this: a measurement, with nothing to pass or fail, so ordinary test runs leave it
out. The two sides take turns, so that whatever else the machine does slows both.
"""

import json
import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from benchmarks.loops import BareLoop, EngineLoop
from benchmarks.workloads import WORKLOADS, Workload
from fedrepro.support.files import write_atomically

RESULTS = Path("results/bench")
START = ["fedrepro", "run", "ima/fmnist-shards2-demo", "fedavg", "--seed", "1"]
CASES = [
    (workload, executor)
    for workload in WORKLOADS
    for executor in ("sequential", "vectorised")
    # Stacked convolutions lose on a CPU, so no run there is ever given to them.
    if executor == "sequential" or len(workload.shape) == 1 or workload.model == "twonn"
]


def cpu_seconds(action: Callable[[], None]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.benchmark(timer=time.process_time, disable_gc=False)
@pytest.mark.parametrize(
    ("workload", "executor"), CASES, ids=lambda case: getattr(case, "name", case)
)
def test_engine(workload: Workload, executor: str, benchmark, tmp_path) -> None:
    bare, ours = BareLoop(workload), EngineLoop(workload, executor, tmp_path)
    bare.run(1)
    ours.run(2 if executor == "vectorised" else 1)  # compiles, where that is done at all
    low = None
    if len(workload.shape) == 3 and workload.model != "twonn":
        low = EngineLoop(workload, executor, tmp_path / "low", "bfloat16")
        low.run(1)
    bare_seconds, low_seconds = [], []

    def measure_others() -> None:  # before each measurement of ours, and outside of it
        bare_seconds.append(cpu_seconds(lambda: bare.run(workload.rounds)))
        if low:
            low_seconds.append(cpu_seconds(lambda: low.run(workload.rounds)))

    benchmark.pedantic(
        ours.run, args=(workload.rounds,), setup=measure_others, rounds=workload.measurements
    )
    record_engine(workload, executor, bare_seconds, benchmark.stats.stats.data)
    if low:
        record_engine(workload, f"{executor}, bfloat16", bare_seconds, low_seconds)


def record_engine(
    workload: Workload, executor: str, bare_seconds: Sequence[float], own_seconds: Sequence[float]
) -> None:
    """Keep CPU seconds of runs by turns."""
    ratios = [theirs / own for theirs, own in zip(bare_seconds, own_seconds, strict=True)]
    steps = workload.rounds * workload.steps_per_round
    record(
        RESULTS / "engine.json",
        {
            "workload": workload.name,
            "executor": executor,
            "title": workload.title,
            "ratio": statistics.median(ratios),
            "ratios": ratios,
            "steps_per_cpu_second": steps / statistics.median(own_seconds),
            "bare_steps_per_cpu_second": steps / statistics.median(bare_seconds),
            **conditions(),
        },
    )


@pytest.mark.parametrize(
    ("method", "momentum"),
    [("fedavg", 0.0), ("fedavg", 0.9), ("fedprox", 0.9), ("superfed_mm", 0.9)],
)
def test_what_stacking_gains(method: str, momentum: float, tmp_path) -> None:
    """Clients of W2 side by side against one after another, for provenance.arithmetic.PAYS_FROM."""
    workload = replace(next(each for each in WORKLOADS if each.name == "W2"), rounds=2)
    loops = [
        EngineLoop(workload, executor, tmp_path / executor, method=method, momentum=momentum)
        for executor in ("sequential", "vectorised")
    ]
    first = [cpu_seconds(lambda loop=loop: loop.run(1)) for loop in loops]
    seconds = [
        [cpu_seconds(lambda loop=loop: loop.run(workload.rounds)) for loop in loops]
        for _ in range(3)
    ]
    ratios = [alone / stacked for alone, stacked in seconds]
    result = {
        "workload": method,
        "executor": f"momentum {momentum:g}",
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "compiling": first[1] - seconds[0][1] / workload.rounds,
        "steps_per_cpu_second": workload.rounds
        * workload.steps_per_round
        / statistics.median(alone for alone, _ in seconds),
        **conditions(),
    }
    record(RESULTS / "stacking.json", result)


def test_start_of_a_run(tmp_path) -> None:
    """From the command to the end of the first round, each time in a new process."""
    shutil.copytree("config", tmp_path / "config")
    seconds_to_first_round(tmp_path)  # prepares data and partition, and warms the disk's cache
    wall, cpu = zip(*(seconds_to_first_round(tmp_path) for _ in range(5)), strict=True)
    result = {
        "command": " ".join(START),
        "seconds": statistics.median(wall),
        "cpu_seconds": statistics.median(cpu),
        "measurements": wall,
        "machine": machine(),
    }
    with write_atomically(RESULTS / "start.json") as temporary:
        temporary.write_text(json.dumps(result, indent=1) + "\n")


def seconds_to_first_round(folder: Path) -> tuple[float, float]:
    """Start a run in ``folder``, and end it once it says that a round is over: wall, CPU."""
    start, cpu_before = time.perf_counter(), children_cpu_seconds()
    process = subprocess.Popen(START, cwd=folder, stderr=subprocess.PIPE, text=True)
    lines = []
    for line in process.stderr:
        lines.append(line)
        if " round 1 of " in line:
            break
    seconds = time.perf_counter() - start
    process.kill()
    process.communicate()
    assert " round 1 of " in "".join(lines[-1:]), lines
    return seconds, children_cpu_seconds() - cpu_before


def children_cpu_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system


def record(path: Path, result: dict) -> None:
    """Put ``result`` in the place of an older one of the same workload and executor."""
    results = json.loads(path.read_text()) if path.exists() else []
    key = (result["workload"], result["executor"])
    results = [one for one in results if (one["workload"], one["executor"]) != key]
    results = sorted([*results, result], key=lambda one: (one["workload"], one["executor"]))
    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n")


def conditions() -> dict:
    """When, where and with what something was measured."""
    versions = {name: version(name) for name in ("fedrepro", "torch", "numpy")}
    return {
        "measured": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
        "versions": versions | {"python": platform.python_version()},
    }


def machine() -> dict:
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "load": os.getloadavg()[0],
    }


def processor() -> str:
    """The processor's name: on Linux from the kernel, elsewhere what Python knows."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
