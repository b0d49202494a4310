"""``fedrepro verify``: check a results tree for changed, missing or damaged files."""

import argparse
import sys
from contextlib import suppress
from pathlib import Path

from fedrepro.support.errors import UserError

RESULTS, CONFIG = Path("results"), Path("config/experiments")


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "verify",
        help="check that no file of a results tree has changed",
        description="Check a results tree: runs, partitions, analyses, tables by their checksums, "
        "places and the runs that they were made from; prepared data and downloads by their "
        "sizes. Prints one line per fault, and exits with 1 if there are any. Remove the files "
        "that it names: the workflow makes them again. `fedrepro verify reports` checks the "
        "committed reference results.",
    )
    parser.add_argument(
        "folder", metavar="FOLDER", type=Path, nargs="?", default=RESULTS,
        help="default: results",
    )  # fmt: skip
    parser.add_argument(
        "--full", action="store_true", help="also read all prepared data and downloads"
    )
    parser.set_defaults(handler=handle)


def handle(arguments: argparse.Namespace) -> int:
    """Return 1 if there are faults, else 0."""
    from fedrepro.run.integrity import Check

    check, wrong = Check(arguments.folder, arguments.full), 0
    for fault in check.faults():
        wrong += 1
        print(fault, flush=True)
    looked_at = ", ".join(f"{number:,} {what}" for what, number in check.counts.items())
    verdict = f"{wrong:,} wrong" if wrong else "nothing is wrong"
    print(f"fedrepro: {looked_at or 'nothing to check'}: {verdict}", file=sys.stderr)
    if line := _not_of_today(arguments.folder):
        print(f"fedrepro: {line}", file=sys.stderr)
    return int(wrong > 0)


def _not_of_today(results: Path) -> str:
    """A line about this workbench's runs that are not of its configuration and code; or ""."""
    if results != RESULTS or not CONFIG.exists():
        return ""
    from fedrepro.config.loading import load
    from fedrepro.run.integrity import runs_in
    from fedrepro.workflow.recorded import why_not_today

    try:
        bench = load()
    except UserError as error:  # which says nothing against the files
        return f"runs are not compared with today's configuration: {error}"
    found: list[str] = []
    for _, run in runs_in(results / "runs"):
        with suppress(UserError):  # no experiment file has it any more
            if why := why_not_today(bench, run):
                found.append(f"{run.setting} {run.method} --seed {run.seed}: {why}")
    if not found:
        return ""
    return f"{len(found):,} runs are not of today's configuration and code, the first: {found[0]}"
