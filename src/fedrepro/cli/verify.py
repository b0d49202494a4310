"""``fedrepro verify``: check a results tree for changed, missing or damaged files."""

import argparse
import sys
from pathlib import Path


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "verify",
        help="check that no file of a results tree has changed",
        description="Check a results tree: runs by the hashes in their manifests, partitions by "
        "their checksums and counts, prepared data and downloads by their sizes. Prints one line "
        "per fault, and exits with 1 if there are any. Remove the files that it names: the "
        "workflow makes them again.",
    )
    parser.add_argument(
        "folder", metavar="FOLDER", type=Path, nargs="?", default=Path("results"),
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
    return int(wrong > 0)
