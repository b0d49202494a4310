"""Other simulators beside this one: `make bench-peers`. Writes results/bench/peers.json.

Each is installed in an environment of its own, with the same PyTorch, and driven by its public
interface in a process of its own. On W1 to W4 all take turns; then each does a whole task as a
person would have it done, from the command to an accuracy. One core each, one at a time.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import pandas as pd

from benchmarks.peers.contestant import TASK
from benchmarks.test_engine import RESULTS, children_cpu_seconds, conditions
from benchmarks.workloads import WORKLOADS, Workload
from fedrepro.config.loading import load
from fedrepro.data.dataset import open_dataset
from fedrepro.data.partition.partition import make_partition
from fedrepro.support.files import write_atomically

HERE, ENVIRONMENTS = Path(__file__).parent, Path(".peers")
PEERS = {
    "flower": "flwr",
    "fluke": "fluke-fl",
    "fedlab": "fedlab",
    "pfl": "pfl",
}  # module -> package
OURS = ("bare", "sequential", "vectorised")
MEASUREMENTS = 3  # at most, of each workload
STACKED = ("W2", "W3")  # no run of the others is ever given to `vectorised` on a CPU
EXPERIMENT = f"""\
system: bench
title: Peers
paper: none
settings:
  task:
    dataset: fmnist
    partition: {{ scheme: shards, clients: {TASK.clients}, classes_per_client: 2 }}
    model: {TASK.model}
    scaling: unit
    rounds: {TASK.rounds}
    participation: {TASK.cohort / TASK.clients}
    epochs: {TASK.epochs}
    batch_size: {TASK.batch_size}
    optimizer: {{ lr: {TASK.lr} }}
tables: {{}}
"""


class Failed(Exception):
    """A peer could not do something; what it says goes into the page."""


def called(command: list[str], **keys) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **keys)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise Failed(lines[-1] if lines else f"ended with {done.returncode}")
    return done.stdout


def install(peer: str) -> tuple[Path, str]:
    """Its Python, and which version it is; PyTorch is ours, linked from uv's cache where it can."""
    folder = ENVIRONMENTS / peer
    torch = version("torch").partition("+")[0]
    called(["uv", "venv", "-q", "--python", sys.executable, str(folder)])
    python = folder / "bin/python"
    pins = ["-r", str(HERE / f"{peer}.txt"), f"torch=={torch}"]
    backend = ["--torch-backend", os.environ["TORCH"]] if os.environ.get("TORCH") else []
    called(["uv", "pip", "install", "-q", "--python", str(python), *backend, *pins])
    program = f"import importlib.metadata as m; print(m.version({PEERS[peer]!r}))"
    return python, called([str(python), "-c", program]).strip()


def command(python: Path | str, module: str, *arguments: str) -> list[str]:
    return [str(python), "-P", "-m", f"benchmarks.peers.{module}", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(("tests", "src"))}


class Contestant:
    """A process that trains what it is told to."""

    def __init__(self, arguments: list[str], said: IO[str]) -> None:
        self.said = said
        self.process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env=environment(),
        )

    def play(self, workload: Workload, rounds: int) -> float:
        """CPU seconds of so many rounds."""
        try:
            self.process.stdin.write(f"{workload.name} {rounds}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.said.seek(0)
            lines = [line.strip() for line in self.said if line.strip()]
            raise Failed(lines[-1] if lines else "it ended")
        return json.loads(answer)

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


@contextmanager
def started(pythons: dict[str, Path]) -> Iterator[dict[str, Contestant]]:
    """All contestants, the bare loop first."""
    arguments = {name: command(sys.executable, "ours", name) for name in OURS}
    arguments |= {name: command(python, name) for name, python in pythons.items()}
    with ExitStack() as stack:
        contestants = {}
        for name, each in arguments.items():
            said = stack.enter_context(tempfile.TemporaryFile("w+"))
            contestants[name] = Contestant(each, said)
            stack.callback(contestants[name].end)
        yield contestants


def by_turns(
    workload: Workload, contestants: dict[str, Contestant], missing: list[str]
) -> dict[str, list[float]]:
    """CPU seconds of each measurement; who fails is out, and from then on."""
    seconds: dict[str, list[float]] = {}
    for turn in range(min(MEASUREMENTS, workload.measurements) + 1):
        for name, contestant in list(contestants.items()):
            if name == "vectorised" and workload.name not in STACKED:
                continue
            # The first turn makes model and data, and warms up but where one round is long; where
            # it is compiled, two kernels are.
            warming = (workload.rounds > 1) + (name == "vectorised")
            rounds = workload.rounds if turn else warming
            try:
                taken = contestant.play(workload, rounds)
            except Failed as failure:
                missing.append(f"{name} did not do {workload.name}: {failure}")
                del contestants[name]
                seconds.pop(name, None)
                continue
            if turn:
                seconds.setdefault(name, []).append(taken)
    return seconds


def compared(workload: Workload, seconds: dict[str, list[float]]) -> list[dict]:
    steps = workload.rounds * workload.steps_per_round
    found = []
    for name, taken in seconds.items():
        ratios = [bare / own for bare, own in zip(seconds["bare"], taken, strict=True)]
        found.append(
            {
                "workload": workload.name,
                "title": workload.title,
                "framework": name,
                "ratio": statistics.median(ratios),
                "ratios": ratios,
                "steps_per_cpu_second": steps / statistics.median(taken),
            }
        )
    return found


def timed(arguments: list[str], **keys) -> tuple[str, dict[str, float]]:
    wall, cpu = time.perf_counter(), children_cpu_seconds()
    said = called(arguments, **keys)
    return said, {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": children_cpu_seconds() - cpu,
    }


def whole_task(pythons: dict[str, Path], folder: Path, missing: list[str]) -> list[dict]:
    """The same data, partition and hyperparameters for all; fetching is not counted."""
    shutil.copytree("config", folder / "config")
    (folder / "config/experiments/bench.yaml").write_text(EXPERIMENT)
    try:
        called(["fedrepro", "prepare", "fmnist"])
    except Failed as failure:
        missing.append(f"the whole task was not measured: {failure}")
        return []
    shutil.copytree("results/data/fmnist", folder / "results/data/fmnist")
    spec = load(folder).run_spec("bench/task", "fedavg", 1)
    held = open_dataset("fmnist")
    shares = make_partition(held.train.y, None, spec.setting.partition, 1).train
    arrays = {"x": held.train.x, "y": held.train.y, "x_test": held.test.x, "y_test": held.test.y}
    np.savez(folder / "task.npz", rows=np.stack(shares), **arrays)

    ours = ["fedrepro", "run", "bench/task", "fedavg", "--seed", "1"]
    _, taken = timed(ours, cwd=folder)
    rounds = pd.read_parquet(folder / "results/runs/bench/task/fedavg/seed1/rounds.parquet")
    found = [{"framework": "fedrepro", "accuracy": rounds["test_accuracy"].iloc[-1], **taken}]
    for name, python in pythons.items():
        try:
            arguments = command(python, name, str(folder / "task.npz"))
            said, taken = timed(arguments, env=environment())
            # Each says its own CPU seconds: Ray's processes outlive the one that started them.
            found.append({"framework": name, **taken, **json.loads(said)})
        except Failed as failure:
            missing.append(f"{name} did not do the whole task: {failure}")
    return found


def main() -> None:
    shutil.rmtree(ENVIRONMENTS, ignore_errors=True)
    missing, pythons, versions, rounds = [], {}, {}, []
    try:
        for peer in PEERS:
            try:
                pythons[peer], versions[peer] = install(peer)
            except Failed as failure:
                missing.append(f"{peer} could not be installed: {failure}")
        with started(pythons) as contestants:
            for workload in WORKLOADS:
                rounds += compared(workload, by_turns(workload, contestants, missing))
                print(workload.name, "is measured", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            task = whole_task(pythons, Path(folder), missing)
    finally:
        shutil.rmtree(ENVIRONMENTS, ignore_errors=True)
    result = {
        "rounds": rounds,
        "task": task,
        "title": TASK.title,
        "task_rounds": TASK.rounds,
        "peers": versions,
        "missing": missing,
        **conditions(),
    }
    with write_atomically(RESULTS / "peers.json") as temporary:
        temporary.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
