"""``fedrepro clean``: what results take on disk, and what of it can go."""

import argparse
from pathlib import Path

from fedrepro.cli.console import print_rows
from fedrepro.config.loading import load_config
from fedrepro.run.disk_space import removable, sizes
from fedrepro.support.errors import bad_argument
from fedrepro.support.printing import counted
from fedrepro.support.terminal import say

RESULTS = Path("results")


def handle(arguments: argparse.Namespace) -> None:
    load_config()  # refuses a folder that is no workbench
    days: float = arguments.older
    if not days >= 0:  # also for NaN
        raise bad_argument("--older", days, "a number of days of at least 0")
    folders = list(removable(Path(), days))
    rows = [
        (str(old.folder), old.what, f"{old.size / 1e6:.1f}", f"{old.days:.0f}") for old in folders
    ]
    print_rows(("folder", "what", "MB", "days"), rows)
    total = sum(old.size for old in folders) / 1e6
    for old in folders if arguments.remove else ():
        old.remove()
    did = "removed" if arguments.remove else "would remove"
    how = "" if arguments.remove or not folders else "; --remove does it"
    say(f"fedrepro: {did} {counted(len(folders), 'folder')}, {total:.1f} MB{how}")
    used = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in sizes(RESULTS).items())
    say(f"fedrepro: {RESULTS}: {used or 'nothing there'}")
