"""Wall time of rounds by two processes against the same rounds by one, taking turns.

And what the machine allows: two processes that have nothing to do with each other play the same
rounds at the same time. Two cores that share caches and memory are not twice one.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.loops import WORKERS
from benchmarks.test_engine import RESULTS, conditions, record
from benchmarks.workloads import WORKLOADS, Workload


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_dealt_out(workload: Workload, tmp_path: Path) -> None:
    script = Path(__file__).with_name("dealt_out.py")
    called = subprocess.run(
        [sys.executable, str(script), workload.name, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert called.returncode == 0, called.stderr
    turns = json.loads(called.stdout)
    ratios = [each["alone"] / each["dealt"] for each in turns]
    result = {
        "workload": workload.name,
        "executor": "parallel",
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        # With whole clients: no process can do less than one, and the busiest decides.
        "at_most": workload.cohort / -(-workload.cohort // WORKERS),
        "two_at_once": statistics.median(2 * each["alone"] / each["two_at_once"] for each in turns),
        "seconds_per_round": statistics.median(each["alone"] for each in turns),
        **conditions(),
    }
    record(RESULTS / "parallel.json", result)
