"""What it takes to keep a thousand clients' models of 1.7 million parameters: memory and time.

`make bench` runs this. Ten clients take part in a round; the process must stay under 1.5 GB.
"""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.test_engine import record

RESULTS = Path("results/bench/store.json")
CLIENTS, LIMIT = 1000, 1.5e9


def test_client_states_that_do_not_fit_in_memory(tmp_path: Path) -> None:
    script = Path(__file__).with_name("client_states.py")
    called = subprocess.run(
        [sys.executable, str(script), str(CLIENTS), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert called.returncode == 0, called.stderr
    measured = json.loads(called.stdout)
    assert measured["bytes_of_states"] > 4 * measured["peak_memory_bytes"]
    assert measured["peak_memory_bytes"] < LIMIT
    record(RESULTS, {"workload": "client states", "executor": "sequential", **measured})
