"""Read Snakemake's records of how it made files, in ``.snakemake``."""

import ast
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrepro.run.integrity import WRITTEN
from fedrepro.support.files import read_json

RECORDS = Path(".snakemake/metadata")
BEGUN = Path(".snakemake/incomplete")
LONGEST_NAME = 254  # of a record's file; longer names are split into folders
OUTPUTS_OF_A_RUN = ("manifest.json", *WRITTEN, "timing.json")
PARAMS_FROM = 6  # the first format of records that has all parameters


def has_record(root: Path, output: Path) -> bool:
    """Whether Snakemake has a record of how it made a file."""
    return bool(read_record(file_of(root / RECORDS, output)))


def recorded_parameters(
    root: Path, outputs: Iterable[Path], known: Sequence[object], count: int
) -> list[Any] | None:
    """The parameters with which Snakemake recorded all of a job's outputs, but for known ones.

    A rule whose outputs say themselves whether they are current takes these values again, so that
    Snakemake sees no change: a record tells what was called, not what is there.

    Args:
        known: the values of the job's other parameters now.
        count: how many parameters are looked for.

    Returns:
        Their values in any order, which is all that Snakemake compares; None unless every output
        is recorded with the known ones and as many others.
    """
    records = [read_record(file_of(root / RECORDS, path)) for path in outputs]
    listed = {tuple(each["params"]) if _has_parameters(each) else None for each in records}
    parameters = listed.pop() if len(listed) == 1 else None
    if parameters is None:
        return None
    others = list(parameters)
    for value in known:
        if repr(value) not in others:
            return None
        others.remove(repr(value))
    try:
        values = [ast.literal_eval(each) for each in others]
    except (ValueError, SyntaxError, TypeError):
        return None
    return values if len(values) == count and list(map(repr, values)) == others else None


def _has_parameters(record: Mapping[str, Any]) -> bool:
    version = record.get("record_format_version", 0)
    return version >= PARAMS_FROM and isinstance(record.get("params"), list)


def file_of(folder: Path, output: Path) -> Path:
    """The file of Snakemake's record of an output."""
    name = urlsafe_b64encode(str(output).encode()).decode()
    parts = [name[at : at + LONGEST_NAME] for at in range(0, len(name), LONGEST_NAME)]
    return folder.joinpath(*(f"@{part}" for part in parts[:-1]), parts[-1])


def read_record(path: Path) -> dict[str, Any]:
    """A record; empty if it is missing or damaged, which Snakemake treats alike."""
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
