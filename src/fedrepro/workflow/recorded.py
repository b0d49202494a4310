"""Why Snakemake would make a run again, from the records in ``.snakemake`` and the files' times.

This checks what Snakemake checks with the workflow's profiles (their ``rerun-triggers``), for one
run and without its graph. It does not report that a run's inputs would be made again.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.run import fingerprint, numerics
from fedrepro.run.integrity import WRITTEN
from fedrepro.run.replayed import not_of_today
from fedrepro.run.results import RunRecord, fault_of_manifest, run_of
from fedrepro.support import sealed
from fedrepro.support.files import read_json, sha256_of
from fedrepro.workflow.graph import Graph, definition_of

RECORDS = Path(".snakemake/metadata")
BEGUN = Path(".snakemake/incomplete")
LONGEST_NAME = 254  # of a record's file; longer names are split into folders
OUTPUTS = ("manifest.json", *WRITTEN, "timing.json")  # of rule run
PARAMS_FROM = 6  # the first format of records that has all parameters


def reasons(bench: Workbench, run: RunKey) -> list[str]:
    """Snakemake's reasons to make a run again, in words; none if it would not.

    Raises:
        SystemExit: for an unknown setting or method, as in the workflow.
    """
    root, graph = bench.root, Graph(bench)
    outputs = [run.folder / name for name in OUTPUTS]
    missing = [path for path in outputs if not (root / path).exists()]
    if run.folder / "manifest.json" in missing:
        return [f"{run.folder}/manifest.json is missing"]
    if missing:
        files = ", ".join(path.name for path in missing)
        return [f"{files}: missing, which matters if another job or a target needs it"]
    if any(_file_of(root / BEGUN, path).exists() for path in outputs):
        return ["Snakemake's records say that the job that made it did not finish"]
    wildcards = SimpleNamespace(setting=run.setting, method=run.method, seed=str(run.seed))
    inputs = [*graph.inputs_of_run(wildcards), *graph.parent_of_run(wildcards)]
    records = [_read(_file_of(root / RECORDS, path)) for path in outputs]
    oldest = min((root / path).stat().st_mtime_ns for path in outputs)
    newer = [
        f"{each} is newer and has changed"
        for each in inputs
        if (root / each).exists()
        and (root / each).stat().st_mtime_ns > oldest
        and not _is_the_same(root, each, records)
    ]
    other = why_not_today(bench, run)
    return newer or list(_changes(bench, run, inputs, records)) or [other] * bool(other)


def why_not_today(bench: Workbench, run: RunKey) -> str:
    """Why a run's manifest is not one of today's configuration and code; "" if there is none.

    Raises:
        UserError: for an unknown setting or method.
    """
    try:
        manifest = sealed.parsed(bench.root / run.folder / "manifest.json")
        run_of(manifest)
    except FileNotFoundError:
        return ""
    except ValueError as error:
        return f"manifest.json is damaged: {error}"
    spec = bench.run_spec(run.setting, run.method, run.seed)
    if why := fault_of_manifest(manifest, run):
        return why
    made_by = manifest.get("config_hash"), manifest.get("numerics")
    if made_by == (fingerprint.of_config(spec), numerics.of_run(spec)):
        return ""
    record = RunRecord(bench.root, run, run.folder, False, "finished", "", manifest)
    return not_of_today(record, spec) or "made with another configuration"


def has_records(root: Path, run: RunKey) -> bool:
    """Whether Snakemake has records of how the run was made; else only file times count."""
    return all(has_record(root, run.folder / name) for name in OUTPUTS)


def has_record(root: Path, output: Path) -> bool:
    """Whether Snakemake has a record of how it made a file."""
    return bool(_read(_file_of(root / RECORDS, output)))


def _changes(
    bench: Workbench, run: RunKey, inputs: list[str], records: list[dict[str, Any]]
) -> Iterator[str]:
    """What differs from the records, if every output has one."""
    if not all(records):
        return
    spec = bench.run_spec(run.setting, run.method, run.seed)
    code, hashed = numerics.in_words(numerics.of_run(spec)), fingerprint.of_config(spec)
    listed = [
        each["params"]
        for each in records
        if each.get("record_format_version", 0) >= PARAMS_FROM
        and isinstance(each.get("params"), list)
    ]
    if any(repr(code) not in params for params in listed):
        yield "the code that decides its numbers has changed"
    beginning = repr(hashed)[:-1]  # the class of arithmetic may follow
    if not all(any(str(each).startswith(beginning) for each in params) for params in listed):
        yield "its configuration has changed"
    elif any(repr(definition_of(spec)) not in params for params in listed):
        yield "its arithmetic has changed"
    if any(each.get("input") not in (None, sorted(inputs)) for each in records):
        yield "its list of inputs has changed"


def _is_the_same(root: Path, path: str, records: list[dict[str, Any]]) -> bool:
    """Whether an input has the bytes that were recorded for every output."""
    known = set()
    for record in records:
        checksums = record.get("input_checksums")
        known.add(str(checksums.get(path)) if isinstance(checksums, dict) else "")
    return len(known) == 1 and known.pop().removeprefix("sha256:") == sha256_of(root / path)


def _file_of(folder: Path, output: Path) -> Path:
    """The file of Snakemake's record of an output."""
    name = urlsafe_b64encode(str(output).encode()).decode()
    parts = [name[at : at + LONGEST_NAME] for at in range(0, len(name), LONGEST_NAME)]
    return folder.joinpath(*(f"@{part}" for part in parts[:-1]), parts[-1])


def _read(path: Path) -> dict[str, Any]:
    """A record; empty if it is missing or damaged, which Snakemake treats alike."""
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
