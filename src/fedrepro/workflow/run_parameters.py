"""Runs, as the rules have them in their inputs and parameters."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fedrepro.config.artifact_sources import ArtifactFromData
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.provenance import fingerprint
from fedrepro.run.results import MODEL
from fedrepro.run.standing import standing_of


def of_finished(runs: Iterable[RunKey]) -> str:
    """A hash of what finished runs, and analyses of them, say of themselves."""
    return fingerprint.of_files(
        path for run in runs for path in (run.manifest, run.analysis("quality")) if path.exists()
    )


def given_of(spec: RunSpec) -> Iterator[str]:
    """The inputs of a run that come from other runs and data sets.

    A given file is not an input of the rule: the command reports a missing one in one line, and the
    run's definition contains its SHA-256.
    """
    for source in spec.inputs.values():
        match source:
            case RunSpec():
                yield str(source.key.manifest)
                yield str(source.key.folder / MODEL)
            case ArtifactFromData():
                yield f"results/data/{source.dataset}/meta.json"


def of_existing(runs: Sequence[RunKey], analyses: Iterable[Path], why: Sequence[str]) -> str:
    """A hash of finished runs and analyses that are there, and why runs are not current; or ""."""
    there = [*(run.manifest for run in runs), *analyses]
    there = [path for path in there if path.exists()]
    return fingerprint.of_text(f"{fingerprint.of_files(there)} {why}") if there else ""


def stale(bench: Workbench, runs: Iterable[RunKey], known: dict[RunKey, str]) -> list[str]:
    """Why finished runs are not current.

    Args:
        known: of runs that were asked for before; others are added. It takes milliseconds a run.
    """
    finished = [run for run in runs if run.manifest.exists()]
    for run in finished:
        if run not in known:
            known[run] = standing_of(bench, run).why
    return [known[run] for run in finished if known[run]]
