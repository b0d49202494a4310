"""What the time of paper-scale runs and of `make reproduce` goes into. `make bench` runs this."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.test_engine import RESULTS, conditions, record
from fedrepro.support.files import write_atomically

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


def test_shares_of_reproduce() -> None:
    """From what Snakemake and the runs have written down, where `make reproduce` has been."""
    jobs: dict[tuple[str, str], float] = {}
    for file in Path(".snakemake/metadata").glob("*"):
        job = json.loads(file.read_text())
        if job.get("starttime") is not None:
            # There is a record for each file that a job made; a job is known by its log.
            key = (job["rule"], str(job.get("log")))
            jobs[key] = max(jobs.get(key, 0.0), job["endtime"] - job["starttime"])
    runs = [json.loads(file.read_text()) for file in Path("results/runs").rglob("timing.json")]
    seconds: dict[str, list[float]] = {}
    for (rule, _), taken in jobs.items():
        seconds.setdefault(rule, []).append(taken)
    result = {
        "jobs": {rule: [len(taken), sum(taken)] for rule, taken in seconds.items()},
        "training": sum(run["cpu_seconds"] for run in runs),
        **conditions(),
    }
    with write_atomically(RESULTS / "reproduce.json") as temporary:
        temporary.write_text(json.dumps(result, indent=1) + "\n")
