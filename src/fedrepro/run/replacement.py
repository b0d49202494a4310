"""Put a run's files in place of an earlier run's, but never of files that no run of ours wrote."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open

from fedrepro.provenance.identity import Identity, differences, in_words, other_numbers
from fedrepro.run.landed_runs import read_columns
from fedrepro.run.results import MANIFEST, TIMING, fault_of_result, manifest_in, run_of
from fedrepro.run.state import DECISION_COLUMNS, MIXTURE_COLUMNS
from fedrepro.run.store import KEY
from fedrepro.support.errors import UserError, refusal, unreadable, writing
from fedrepro.support.files import absorb, make_folder, replace_folder, settle

OF_A_RUN = re.compile(r"(manifest|timing)\.json|(rounds|clients)\.parquet|model\.safetensors")
# What Snakemake leaves of a run: it removes the files that a rule names, before it calls the
# command. The columns of tables by their names.
TABLES = {"decisions.parquet": DECISION_COLUMNS, "mixtures.parquet": MIXTURE_COLUMNS}
OF_A_ROUND = re.compile(r"round\d+-\w+\.safetensors")

# The finished runs that a new one may replace: none, those of another configuration, code or data,
# or all.
Replaces = Literal["none", "others", "all"]


def files_of_run(folder: Path) -> set[str]:
    """The files that a run wrote to its folder, by its manifest; empty without one of ours."""
    try:
        return {MANIFEST, TIMING, *manifest_in(folder)["files"]}
    except (FileNotFoundError, ValueError):
        return set()


def _ours(folder: Path) -> set[str]:
    """The files of a run's folder that a new result does not take over.

    Those that its manifest lists; without one, those that Snakemake left of a run.
    """
    files = folder.iterdir() if folder.is_dir() else ()
    return files_of_run(folder) or {file.name for file in files if _left_by_snakemake(file)}


def _left_by_snakemake(file: Path) -> bool:
    """Return True for a file of a run by its name and content: a name may be someone's own too."""
    try:
        if columns := TABLES.get(file.name):
            names = tuple(read_columns(file, file, lambda column: []))
            return names[: len(columns)] == columns
        if not OF_A_ROUND.fullmatch(file.name):
            return False
        with safe_open(file, framework="np") as opened:
            return KEY in (opened.metadata() or {})
    except (UserError, SafetensorError, OSError):
        return False


def put_back(folder: Path) -> None:
    """Complete the replacement of a run's folder where a process was killed in its midst."""
    with writing(folder):
        settle(folder, _ours)


def put_in_place(staged: Path, folder: Path, token: str) -> None:
    """Rename a finished run's folder to ``folder``, as :func:`replace_folder` does.

    Raises:
        UserError: if ``folder`` has files that no run of ours wrote, or one of someone's own whose
            name a file of the new result has.
    """
    refuse_foreign(folder)
    names = {path.name for path in (folder.iterdir() if folder.exists() else ())}
    if taken := sorted((names - _ours(folder)) & {path.name for path in staged.iterdir()}):
        raise refusal(folder, f"expected no {taken[0]} but a run's: move yours away", taken[0])
    replace_folder(staged, folder, token, _ours)


def drop_result(folder: Path, successor: Path) -> None:
    """Remove a run's folder, if it is one; what else it holds moves to ``successor``."""
    if files := files_of_run(folder):
        absorb(folder, successor, files)


def move_result(folder: Path, place: Path) -> None:
    """Move the files of a run, and no others, to a place where an earlier result of it may be."""
    # The manifest comes last: without it, what an interrupt left there is no result.
    if names := sorted(files_of_run(folder), key=lambda name: name == MANIFEST):
        drop_result(place, folder)
        make_folder(place)
    for name in names:
        if (folder / name).exists():
            (folder / name).rename(place / name)


def refuse_foreign(folder: Path, *, outside: bool = False) -> None:
    """Refuse a folder that holds files, and no manifest of a run: they are someone's own.

    Args:
        outside: whether it is no folder of a workbench, in which Snakemake leaves files.

    Raises:
        UserError: with one of their names; also for the working directory, which a rename would
            take away from this process.
    """
    if not folder.exists():
        return
    if folder.samefile(Path()):
        raise refusal(folder, "expected another folder than the working directory")
    if files_of_run(folder):
        return
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise unreadable(folder, error.strerror) from error
    names = [name for name in names if outside or not _left_by_snakemake(folder / name)]
    if not outside and folder.absolute().parts[-6:-4] == ("results", "runs"):
        # Someone's notes beside a run whose files Snakemake has removed: they stay.
        names = [name for name in names if OF_A_RUN.fullmatch(name)]
    if names:
        more = f" and {len(names) - 1} more" if names[1:] else ""
        why = (
            f"expected a new or empty folder, or that of a run: it has {names[0]}{more}, "
            f"and no {MANIFEST} of a run that can be read"
        )
        raise refusal(folder, why)


def refuse_other_run(folder: Path, identity_keys: Mapping[str, Any]) -> None:
    """Refuse a folder with a finished run that is not of ``identity_keys``, or is damaged.

    Raises:
        UserError: with what differs.
    """
    if not files_of_run(folder):
        return
    there = manifest_in(folder)
    run = run_of(there)
    fault = fault_of_result(folder, there)
    listed = other_numbers(differences(Identity.of(there), Identity.of(identity_keys)))
    differing = f"damaged: {fault}" if fault else in_words(listed)
    why = (
        f"has another finished run ({run.method}, seed {run.seed}: {differing}): choose "
        "another folder, or replace it with overwrite=True"
    )
    raise refusal(folder, why)
