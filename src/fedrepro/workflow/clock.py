"""What a clock that was wrong for a while leaves behind: files from tomorrow.

Snakemake holds that a job has failed whose inputs are younger than what it made, and removes that.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

MADE = (Path("results"), Path("reports/site"))
AHEAD = 60.0  # seconds; machines that share files differ by less


def bring_back(folders: Iterable[Path] = MADE) -> int:
    """Give files that are from the future the present time, and say so.

    What was made of them stays as it is, as their bytes are those that Snakemake has recorded.

    Returns:
        How many.
    """
    now, changed = time.time(), 0
    for path in folders:
        for file in _files(path):
            if file.stat(follow_symlinks=False).st_mtime > now + AHEAD:
                os.utime(file.path, (now, now))
                changed += 1
    if changed:
        print(
            f"fedrepro: {changed:,} files were from the future, by a clock that was wrong: they "
            "have the present time now",
            file=sys.stderr,
        )
    return changed


def _files(folder: Path) -> "Iterator[os.DirEntry[str]]":
    waiting = [str(folder)] if folder.is_dir() else []
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry
