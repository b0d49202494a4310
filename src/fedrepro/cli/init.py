"""``fedrepro init``: create a workbench in a new folder."""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from fedrepro.support.errors import bad_value
from fedrepro.support.packaged import ORIGIN

SKELETON = Path("workflow/skeleton")
# Files that the skeleton takes unchanged from the package.
COPIED = ("config/datasets.yaml", "config/schema", "workflow/profiles")
EXPERIMENTS, PAPERS = Path("config/experiments"), Path("reports/papers")
COMPACT = Path("config/compact")


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "init",
        help="create your own workbench in a new folder",
        description="Create a folder with a Snakefile that uses this package's rules, "
        "configuration, an experiment with one table, and one example plug-in each of a method, a "
        "model, a partition scheme and a measure. `snakemake --cores all` in it makes the table "
        "and its site.",
        epilog="Example: fedrepro init my-paper --with ima",
    )
    parser.add_argument(
        "folder", metavar="FOLDER", type=Path, help="a folder that does not exist yet"
    )
    parser.add_argument(
        "--with",
        dest="systems",
        metavar="SYSTEM",
        nargs="+",
        default=[],
        help="also copy the published experiments of these systems, and their printed numbers",
    )
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.folder
    _write(folder, tuple(dict.fromkeys(arguments.systems)))
    print(f"{folder}: run `snakemake --cores all` there to make everything; see its README.md")


def _write(folder: Path, systems: Sequence[str]) -> None:
    """Write the workbench, whole or not at all.

    Raises:
        UserError: if the folder exists, or a system is unknown.
    """
    from fedrepro.support.files import whole_folder
    from fedrepro.support.locks import only_one

    known = sorted(path.stem for path in (ORIGIN / EXPERIMENTS).glob("*.yaml"))
    for system in systems:
        if system not in known:
            one_of = f"one of {', '.join(known)}"
            raise bad_value("the command line", "--with", system, one_of, known)
    if folder.exists():
        raise bad_value(
            "the command line", "FOLDER", str(folder), "a folder that does not exist yet"
        )
    with only_one(folder), whole_folder(folder) as made:
        shutil.copytree(ORIGIN / SKELETON, made, dirs_exist_ok=True, ignore=_COMPILED)
        for name in COPIED:
            # Snakemake looks for profiles in `profiles`.
            _copy(ORIGIN / name, made / name.removeprefix("workflow/"))
        for system in systems:
            _copy(ORIGIN / EXPERIMENTS / f"{system}.yaml", made / EXPERIMENTS / f"{system}.yaml")
            _copy(ORIGIN / PAPERS / system, made / PAPERS / system)
            if (ORIGIN / (added := COMPACT / f"{system}.yaml")).exists():
                _copy(ORIGIN / added, made / added)
        if systems:
            lines = "".join(f"- {system}\n" for system in systems)
            (made / PAPERS / "systems.yaml").write_text(lines, encoding="utf-8")


_COMPILED = shutil.ignore_patterns("__pycache__", "reference")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=_COMPILED)
    else:
        shutil.copyfile(source, target)
