"""``fedrepro clean``: what results take on disk, and what of it can go."""

import argparse
from pathlib import Path

from fedrepro.cli.console import print_rows
from fedrepro.config.loading import load_config
from fedrepro.run.cleaning import removable, sizes
from fedrepro.support.errors import bad_value
from fedrepro.support.printing import counted
from fedrepro.support.terminal import say

RESULTS = Path("results")


def handle(arguments: argparse.Namespace) -> None:
    load_config()  # refuses a folder that is no workbench
    days: float = arguments.older
    if days < 0:
        raise bad_value("the command line", "--older", days, "a number of days of at least 0")
    found = list(removable(Path(), days))
    rows = [
        (str(each.folder), each.what, f"{each.size / 1e6:.1f}", f"{each.days:.0f}")
        for each in found
    ]
    print_rows(("folder", "what", "MB", "days"), rows)
    total = sum(each.size for each in found) / 1e6
    for each in found if arguments.remove else ():
        each.remove()
    did = "removed" if arguments.remove else "would remove"
    how = "" if arguments.remove or not found else "; --remove does it"
    say(f"fedrepro: {did} {counted(len(found), 'folder')}, {total:.1f} MB{how}")
    used = ", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in sizes(RESULTS).items())
    say(f"fedrepro: {RESULTS}: {used or 'nothing there'}")
