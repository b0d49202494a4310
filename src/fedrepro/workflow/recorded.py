"""Why Snakemake would make a run again, from the records in ``.snakemake`` and the files' times.

This checks what Snakemake checks with the workflow's profiles (their ``rerun-triggers``), for one
run and without its graph. It does not report that a run's inputs would be made again.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.run.standing import standing_of
from fedrepro.support.files import sha256_of
from fedrepro.workflow.graph import Graph
from fedrepro.workflow.records import (
    BEGUN,
    OUTPUTS_OF_A_RUN,
    RECORDS,
    file_of,
    read_record,
)


def reasons(bench: Workbench, run: RunKey) -> list[str]:
    """Snakemake's reasons to make a run again, in words; none if it would not.

    Raises:
        SystemExit: for an unknown setting or method, as in the workflow.
    """
    root, graph = bench.root, Graph(bench)
    outputs = [run.folder / name for name in OUTPUTS_OF_A_RUN]
    missing = [path for path in outputs if not (root / path).exists()]
    if run.folder / "manifest.json" in missing:
        return [f"{run.folder}/manifest.json is missing"]
    if missing:
        files = ", ".join(path.name for path in missing)
        return [f"{files}: missing, which matters if another job or a target needs it"]
    if any(file_of(root / BEGUN, path).exists() for path in outputs):
        return ["Snakemake's records say that the job that made it did not finish"]
    wildcards = SimpleNamespace(setting=run.setting, method=run.method, seed=str(run.seed))
    inputs = [*graph.inputs_of_run(wildcards), *graph.parent_of_run(wildcards)]
    records = [read_record(file_of(root / RECORDS, path)) for path in outputs]
    oldest = min((root / path).stat().st_mtime_ns for path in outputs)
    newer = [
        f"{each} is newer and has changed"
        for each in inputs
        if (root / each).exists()
        and (root / each).stat().st_mtime_ns > oldest
        and not _is_the_same(root, each, records)
    ]
    before = [each["input"] for each in records if each.get("input") is not None]
    if any(each != sorted(inputs) for each in before):
        newer.append("its list of inputs has changed")
    why = standing_of(bench, run).why
    return newer or [why] * bool(why)


def _is_the_same(root: Path, path: str, records: list[dict[str, Any]]) -> bool:
    """Whether an input has the bytes that were recorded for every output."""
    known = set()
    for record in records:
        checksums = record.get("input_checksums")
        known.add(str(checksums.get(path)) if isinstance(checksums, dict) else "")
    return len(known) == 1 and known.pop().removeprefix("sha256:") == sha256_of(root / path)
