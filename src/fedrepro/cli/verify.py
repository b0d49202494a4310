"""``fedrepro verify``: whether a results tree is as it was written."""

import argparse
import sys
from pathlib import Path


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "verify",
        help="check that the files of a results tree are as they were written",
        description="Check a results tree: runs by the hashes in their manifests, partitions by "
        "their checksums and counts, prepared data and downloads by their sizes. Says what is "
        "wrong, one line each, and exits with 1 if anything is. What is named can be removed: the "
        "workflow makes it again.",
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
    """Returns 1 where something is wrong."""
    from fedrepro.run.integrity import Check

    check, wrong = Check(arguments.folder, arguments.full), 0
    for fault in check.faults():
        wrong += 1
        print(fault, flush=True)
    looked_at = ", ".join(f"{number:,} {what}" for what, number in check.counts.items())
    verdict = f"{wrong:,} wrong" if wrong else "nothing is wrong"
    print(f"fedrepro: {looked_at or 'nothing there'}: {verdict}", file=sys.stderr)
    return int(wrong > 0)
