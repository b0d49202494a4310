"""Give rules of tables and pages ids of the code that renders them; Snakemake compares these."""

import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from fedrepro.provenance import fingerprint
from fedrepro.run.landed_runs import PAPERS
from fedrepro.run.results import REFERENCES
from fedrepro.support import papers
from fedrepro.support.packaged import own_or_packaged
from fedrepro.workflow.snakemake_patches import recorded_parameters

TEMPLATES = Path("reports/templates")


def as_rendered(
    root: Path,
    outputs: Sequence[Path],
    known: Sequence[object],
    values: Sequence[str],
    shown: Iterable[Path] = (),
) -> Sequence[str]:
    """Hashes of this package's own code, as parameters of rules that render.

    In a clone, changed code renders again. In a workbench, the package is installed, and a new
    version makes nothing again: the values stay as recorded, and one line says so.

    Args:
        known: the values of the job's other parameters.
        values: the hashes now, that of the report's code first.
        shown: the user's own files that an output shows; a newer one has it rendered again.
    """
    if fingerprint.PACKAGE.is_relative_to(root.resolve()) or _is_older(root / outputs[0], shown):
        return values
    recorded = recorded_parameters(root, outputs, known, len(values))
    if recorded is None:
        return values
    if {*recorded} != {*values}:
        if values[0] in recorded:  # of the same version: what changed is the user's
            return values
        _say_once(
            "fedrepro: tables and pages were rendered by another version of fedrepro; "
            "`snakemake --forcerun table page site` renders them again"
        )
    return recorded


def _is_older(page: Path, files: Iterable[Path]) -> bool:
    """Return True for a page that is there and older than a file that it shows."""
    times = [file.stat().st_mtime_ns for file in (page, *files) if file.exists()]
    return page.exists() and times[0] < max(times)


@cache
def report_code() -> str:
    """A hash of the report's code and templates. Kinds of figures are found by their files."""
    report = fingerprint.PACKAGE / "report"
    files = [*report.rglob("*.py"), *papers.files_of_report()]
    code = fingerprint.of_closure(files, fingerprint.OUTSIDE_A_PAGE)
    templates = fingerprint.of_files([own_or_packaged(Path(), TEMPLATES), *report.rglob("*.j2")])
    return fingerprint.of_text(code + templates)


@cache
def of_paper(system: str) -> str:
    """A hash of the committed files on a paper; cached because all its tables and pages use it."""
    return fingerprint.of_files([PAPERS / system, REFERENCES])


@cache
def _say_once(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
