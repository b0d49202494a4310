"""What a GPU gains: the engine's workloads there, per client and stacked, beside one CPU core.

    python tests/benchmarks/gpu.py

prints steps per second of wall time (the median of several measurements), and what compiling takes.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.loops import BareLoop, EngineLoop
from benchmarks.workloads import WORKLOADS, Workload
from fedrepro.run import devices

MEASUREMENTS = 3
# Beside FedAvg in the four workloads: what provenance.arithmetic.PAYS_FROM distinguishes, in W2.
METHODS = [("fedavg", 0.9), ("superfed_mm", 0.0)]


def seconds(action: Callable[[], None]) -> float:
    began = time.perf_counter()
    action()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def measured(workload: Workload, loop: BareLoop | EngineLoop) -> tuple[float, float]:
    """(steps per second, seconds of the first round more than of a later one)"""
    first = seconds(lambda: loop.run(1))
    each = [seconds(lambda: loop.run(workload.rounds)) for _ in range(MEASUREMENTS)]
    later = statistics.median(each) / workload.rounds
    return workload.steps_per_round / later, first - later


def main() -> None:
    devices.prepare("cuda")
    torch.set_num_threads(1)
    print(torch.cuda.get_device_name(), torch.__version__)
    w2 = next(each for each in WORKLOADS if each.name == "W2")
    cases = [(workload, "fedavg", 0.0) for workload in WORKLOADS]
    cases += [(replace(w2, rounds=2), *method) for method in METHODS]
    ways = [("cuda", "bare loop"), ("cuda", "sequential"), ("cuda", "vectorised")]
    for device, executor in [*ways, ("cpu", "sequential"), ("cpu", "vectorised")]:
        for workload, method, momentum in cases:
            if executor == "bare loop" and (method, momentum) != ("fedavg", 0.0):
                continue
            if (device, executor, workload.name) == ("cpu", "vectorised", "W4"):
                continue  # compiles for minutes
            words = f"{workload.name} {method}, momentum {momentum:g}, {device} {executor}"
            try:
                with tempfile.TemporaryDirectory() as folder:
                    loop = (
                        BareLoop(workload, device)
                        if executor == "bare loop"
                        else EngineLoop(
                            workload, executor, Path(folder), "float32", method, momentum, device
                        )
                    )
                    rate, start = measured(workload, loop)
            except Exception as error:  # the others are measured all the same
                print(f"{words}: {type(error).__name__} {error!s:.500}", flush=True)
            else:
                print(f"{words}: {rate:.1f} steps/s, start {start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
