"""What bfloat16 does to a demonstration's accuracy, over five seeds.

`make bench` runs this. FedGO's setting of 5,000 digits, whose network is convolutional; FedAvg.
"""

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

from benchmarks.test_engine import RESULTS, conditions
from fedrepro.support.files import write_atomically

SEEDS = range(1, 6)
PRECISIONS = ("float32", "bfloat16")
LAST = 3  # rounds that an accuracy is the mean of
EXPERIMENT = """\
system: bench
title: Precisions
paper: none
settings:
  float32:
    dataset: mnist5k
    partition: { scheme: dirichlet, clients: 10, alpha: 1.0, minimum: 10 }
    model: small_bn_cnn
    rounds: 8
    participation: 0.5
    epochs: 2
    batch_size: 32
    optimizer: { name: adam, lr: 0.001 }
  bfloat16: { extends: float32, precision: bfloat16 }
tables: {}
"""


def test_accuracy_in_bfloat16(tmp_path: Path) -> None:
    shutil.copytree("config", tmp_path / "config")
    (tmp_path / "config/experiments/bench.yaml").write_text(EXPERIMENT)

    def accuracy(seed: int, precision: str) -> tuple[float, float]:
        """In percent, and the CPU seconds of training."""
        command = ["fedrepro", "run", f"bench/{precision}", "fedavg", "--seed", str(seed)]
        called = subprocess.run(
            command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False
        )
        assert called.returncode == 0, called.stderr
        folder = tmp_path / f"results/runs/bench/{precision}/fedavg/seed{seed}"
        found = pd.read_parquet(folder / "rounds.parquet")["test_accuracy"].to_numpy()
        timing = json.loads((folder / "timing.json").read_text())
        return 100 * float(found[-LAST:].mean()), timing["cpu_seconds"]

    def pair(seed: int) -> list[tuple[float, float]]:
        return [accuracy(seed, precision) for precision in PRECISIONS]

    first = pair(SEEDS[0])  # prepares the data for the others
    with ThreadPoolExecutor(2) as pool:
        pairs = [first, *pool.map(pair, SEEDS[1:])]
    result = {
        "title": "FedAvg with `small_bn_cnn` on 5,000 digits, ten clients, Dirichlet 1, 8 rounds",
        "rounds": LAST,
        "seeds": list(SEEDS),
        **{
            precision: {
                "accuracies": [pair[index][0] for pair in pairs],
                "cpu_seconds": sum(pair[index][1] for pair in pairs),
            }
            for index, precision in enumerate(PRECISIONS)
        },
        "native": "bf16" in Path("/proc/cpuinfo").read_text(),
        **conditions(),
    }
    with write_atomically(RESULTS / "precision.json") as temporary:
        temporary.write_text(json.dumps(result, indent=1) + "\n")
