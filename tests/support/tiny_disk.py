"""A real file system of a given size, to be filled up."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def tiny_disk(folder: Path, kibibytes: int) -> Iterator[Callable[[int], None]]:
    """Mount a tmpfs of that size at `folder`; gives a function that changes the size.

    Skips the test, with the reason, where that needs rights that we don't have.
    """
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    folder.mkdir(parents=True, exist_ok=True)

    def mount(*options: str) -> subprocess.CompletedProcess[str]:
        command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    mounted = mount(f"size={kibibytes}k")
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        yield lambda size: mount("remount", f"size={size}k").check_returncode()
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
