"""FedAvg of a workload by this project, or by the bare loop: the first argument says which."""

import sys
import tempfile
from pathlib import Path

from benchmarks.loops import BareLoop, EngineLoop
from benchmarks.peers.contestant import Job, main


def make(executor: str, job: Job) -> BareLoop | EngineLoop:
    if executor == "bare":
        return BareLoop(job.workload)
    return EngineLoop(job.workload, executor, Path(tempfile.mkdtemp()))


if __name__ == "__main__":
    chosen = sys.argv.pop(1)
    main(lambda job: make(chosen, job))
