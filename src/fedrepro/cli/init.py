"""``fedrepro init``: create a workbench in a new folder, or add papers to one."""

import argparse
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from fedrepro.cli.arguments import new_folder, refuse_existing
from fedrepro.config.experiment import COMPACT, EXPERIMENTS, shipped
from fedrepro.report.papers.paper_files import listed_in
from fedrepro.run import digests
from fedrepro.run.landed_runs import ORDER, PAPERS
from fedrepro.support.errors import COMMAND_LINE, UserError, bad_argument, missing_value, refusal
from fedrepro.support.files import write_atomically
from fedrepro.support.locks import exclusive_lock
from fedrepro.support.packaged import CONFIG, ORIGIN
from fedrepro.support.typed_yaml import parsed

SKELETON = Path("workflow/skeleton")
PAPER = Path("workflow/paper")  # a paper's files, to be filled in
NAME = "NAME"  # what stands there for the paper's name
# Files that the skeleton takes unchanged from the package.
COPIED = ("config/datasets.yaml", "config/schema", "workflow/profiles")
LEFT_OUT = ("__pycache__", "reference")


def handle(arguments: argparse.Namespace) -> None:
    systems, known = tuple(dict.fromkeys(arguments.systems)), shipped()
    for system in systems:
        if system not in known:
            one_of = f"one of {', '.join(known)}"
            raise bad_argument("--with", system, one_of, known)
    folder: Path = arguments.folder or Path()
    paper: str | None = arguments.paper
    if paper is not None:
        _check_free(folder, paper, {*known, *systems})
    if (systems or paper) and (folder / CONFIG).is_file():
        for system in systems:
            print(f"{system}: {_in_words(_add(folder, system))}")
    elif arguments.folder is None:
        wanted = "a folder that does not exist yet, or --with or --paper in a workbench, which has "
        raise missing_value(COMMAND_LINE, "FOLDER", f"{wanted}{CONFIG}")
    else:
        _write(folder, systems)
        print(f"{folder}: run `snakemake --cores all` there to make everything; see its README.md")
    if paper is not None:
        for name in _write_paper(folder, paper):
            print(f"wrote {folder / name}")
        print(
            f"`fedrepro check-paper {paper}` says what is to be filled in; "
            f"an example: {ORIGIN / 'docs/another_paper.md'}"
        )


def _check_free(folder: Path, paper: str, taken: Collection[str]) -> None:
    """Raise UserError for a paper's name that is none, or that a paper has."""
    if not re.fullmatch("[a-z][a-z0-9_]*", paper):
        wanted = "a name of small letters, digits and '_'"
        raise bad_argument("--paper", paper, wanted)
    files = [folder / EXPERIMENTS / f"{paper}.yaml", folder / COMPACT / f"{paper}.yaml"]
    files += (path for path in (folder / PAPERS / paper).rglob("*") if not path.is_dir())
    if paper in taken or any(path.exists() for path in files):
        wanted = "a name that no other experiment file and no other paper has"
        raise bad_argument("--paper", paper, wanted)


def _write_paper(folder: Path, paper: str) -> list[Path]:
    """Write a paper's files, and list it. Returns them, relative to the workbench."""
    names = []
    with exclusive_lock(folder / PAPERS), ExitStack() as until_all_are_written:
        _check_free(folder, paper, ())  # once more: another process may have begun it meanwhile
        for source in sorted(path for path in (ORIGIN / PAPER).rglob("*") if path.is_file()):
            name = Path(str(source.relative_to(ORIGIN / PAPER)).replace(NAME, paper))
            temporary = until_all_are_written.enter_context(write_atomically(folder / name))
            text = source.read_text(encoding="utf-8")
            temporary.write_text(text.replace(NAME, paper), encoding="utf-8")
            names.append(name)
        _list(folder, paper)
    return names


def _write(folder: Path, systems: Sequence[str]) -> None:
    """Write the workbench, whole or not at all.

    Raises:
        UserError: if the folder exists.
    """
    refuse_existing("FOLDER", folder)
    with new_folder("FOLDER", folder) as made:
        _copy(ORIGIN / SKELETON, made)
        for name in COPIED:
            # Snakemake looks for profiles in `profiles`.
            _copy(ORIGIN / name, made / name.removeprefix("workflow/"))
        for system in systems:
            _add(made, system)


def _copy(source: Path, target: Path) -> None:
    """Copy a file, or a folder's files, with the modes that the umask gives."""
    if not source.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        return
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.name not in LEFT_OUT:
            _copy(path, target / path.name)


def _add(folder: Path, system: str) -> list[Path]:
    """Copy the files of a system that a workbench lacks, and list its paper.

    Returns:
        The copied files, relative to the workbench.

    Raises:
        UserError: if a file cannot be written, or the list of papers is damaged.
    """
    with exclusive_lock(folder / PAPERS):
        added = [name for name in _files_of(system) if not (folder / name).exists()]
        for name in added:
            with write_atomically(folder / name) as temporary:
                shutil.copyfile(ORIGIN / name, temporary)
        if PAPERS / system / digests.FILE in added:
            digests.forget_references(folder, system)
        _list(folder, system)
    return added


def _list(folder: Path, system: str) -> None:
    """Add a system to the list of papers, whose lock is held.

    Raises:
        UserError: if the list is damaged.
    """
    listed = listed_in(folder, ORDER)
    if system not in listed:
        before = (folder / ORDER).read_text(encoding="utf-8") if (folder / ORDER).exists() else ""
        # Its comments stay; an empty list is written as [].
        lines = f"{before.removeprefix('[]').strip()}\n- {system}\n".lstrip()
        together = None
        with suppress(UserError):  # a list in brackets
            together = parsed(lines, ORDER)
        if together != [*listed, system]:
            why = f"expected a line for each system: add {system} yourself"
            raise refusal(ORDER, why, value=listed)
        with write_atomically(folder / ORDER) as temporary:
            temporary.write_text(lines, encoding="utf-8")


def _files_of(system: str) -> Iterator[Path]:
    """A system's files, relative to the package; last the experiment, which uses the others."""
    for path in sorted((ORIGIN / PAPERS / system).rglob("*")):
        name = path.relative_to(ORIGIN)
        if path.is_file() and not {*LEFT_OUT} & {*name.parts}:
            yield name
    if (ORIGIN / (compact := COMPACT / f"{system}.yaml")).exists():
        yield compact
    yield EXPERIMENTS / f"{system}.yaml"


def _in_words(added: Sequence[Path]) -> str:
    """The added files of ``config``, and how many there are of ``reports``, in words."""
    config = [str(name) for name in added if PAPERS not in name.parents]
    papers = len(added) - len(config)
    parts = [*config, *([f"{papers} files in {PAPERS}"] if papers else [])]
    return f"added {', '.join(parts)}" if parts else "all of it is here, nothing was added"
