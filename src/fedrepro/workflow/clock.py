"""Reset timestamps in the future, which a wrong clock leaves behind.

Snakemake considers a job failed, and removes its outputs, if its inputs are newer than they are.
"""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedrepro.support.terminal import say

MADE = (Path("results"), Path("reports/site"))
AHEAD = 60.0  # seconds; machines that share files differ by less


def bring_back(folders: Iterable[Path] = MADE) -> int:
    """Set files with future timestamps to the present time, and print how many.

    This does not invalidate what was made from them, because Snakemake compares checksums.

    Returns:
        The number of files.
    """
    now, changed = time.time(), 0
    for path in folders:
        for file in _files(path):
            if file.stat(follow_symlinks=False).st_mtime > now + AHEAD:
                os.utime(file.path, (now, now))
                changed += 1
    if changed:
        say(f"fedrepro: {changed:,} files had future timestamps (clock error); reset to now")
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
