"""What git knows of a folder of code: its commit, uncommitted changes, differences.

This is only descriptive: without git, outside of a checkout, or if git takes too long, the answer
is that nothing is known.
"""

import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from fedrepro.support.packaged import ORIGIN, PACKAGE
from fedrepro.support.terminal import say

SECONDS = 5.0  # timeout for git
COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def of_package() -> dict[str, Any] | None:
    """:func:`of_folder` for this package; None if it was installed from a wheel."""
    # An installed package may lie in another project's checkout, whose commit is unrelated.
    return of_folder(PACKAGE) if (ORIGIN / ".git").exists() else None


@cache  # a process keeps the code that it imported at its start
def of_folder(folder: Path) -> dict[str, Any] | None:
    """The commit that is checked out, and whether Python files in ``folder`` differ from it.

    One that git ignores differs: it is in no commit.

    Returns:
        ``commit`` (40 or 64 hexadecimal digits) and ``dirty``; None if git knows of no commit.
    """
    which = "--untracked-files=all", "--ignored=matching", "--", "*.py"
    listing = _git(folder, "status", "--porcelain=v2", "--branch", *which)
    lines = listing.splitlines() if listing is not None else []
    heads = [line.split()[-1] for line in lines if line.startswith("# branch.oid ")]
    if not heads or not COMMIT.fullmatch(heads[0]):
        return None
    # Git lists a folder that it ignores without looking whether it has such files.
    others = (line for line in lines if not line.endswith("__pycache__/"))
    return {"commit": heads[0], "dirty": any(not line.startswith("#") for line in others)}


def is_commit(folder: Path, name: object) -> bool:
    """Whether ``name`` is the full hash of a commit in the checkout around ``folder``."""
    if not isinstance(name, str) or not COMMIT.fullmatch(name):
        return False
    return _git(folder, "cat-file", "-e", f"{name}^{{commit}}") is not None


def difference(folder: Path, before: str, after: str | None, file: str) -> list[str]:
    """The lines of ``git diff`` for one file, beginning with its statistics.

    Args:
        before: a commit for which :func:`is_commit` holds.
        after: another commit; None for the working tree.
        file: relative to ``folder``.
    """
    commits = (before, after) if after else (before,)
    plain = ("--no-color", "--no-ext-diff", "--no-textconv", "--stat", "--patch")
    return (_git(folder, "diff", *plain, *commits, "--", file) or "").splitlines()


def _git(folder: Path, *arguments: str) -> str | None:
    """The output of git; None if it fails, as it does without a checkout."""
    # Git hooks, in which tests may run, set these variables to their own repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        called = subprocess.run(
            # Another user's checkout, too: its code runs here already.
            ["git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", *arguments],
            cwd=folder,
            env={**environment, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        if isinstance(error, subprocess.CalledProcessError) and b"dubious" in error.stderr:
            _tell(folder)  # git 2.35 to 2.37 obeys only its own files
        return None
    return called.stdout.decode(errors="replace")


@cache
def _tell(folder: Path) -> None:
    say(
        f"fedrepro: {folder}: belongs to another user, so git does not tell its commit: "
        "`git config --global --add safe.directory '*'` allows it"
    )
