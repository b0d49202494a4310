"""What the CPU time of paper-scale runs goes into. `make bench` runs this."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.test_engine import RESULTS, conditions, record

RUNS = [  # setting, method, rounds that are played
    ("superfed/mnist-500", "superfed_mm", 5),
    ("ima/fmnist-shards2", "ima+fedavg", 4),
    ("aaggff/heart", "aaggff_s+fedavg", 200),
]


@pytest.mark.parametrize(("setting", "method", "rounds"), RUNS, ids=lambda value: str(value))
def test_shares_of_a_run(setting: str, method: str, rounds: int, tmp_path: Path) -> None:
    script = Path(__file__).with_name("shares.py")
    called = subprocess.run(
        [sys.executable, str(script), setting, method, str(rounds), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert called.returncode == 0, called.stderr
    measured = json.loads(called.stdout.splitlines()[-1])
    name = f"{setting} {method}"
    record(
        RESULTS / "shares.json",
        {"workload": name, "executor": "auto", **measured, **conditions()},
    )
