"""A git repository of a test's own."""

import subprocess
from pathlib import Path


def git(folder: Path, *arguments: str) -> str:
    """Call git as somebody, whoever calls the tests; returns what it writes."""
    someone = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    return subprocess.run(
        ["git", *someone, "-c", "commit.gpgsign=false", *arguments],
        cwd=folder,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def commit_all(folder: Path) -> str:
    """Commit everything in ``folder``, which need be no repository yet; returns the commit."""
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "as it is")
    return git(folder, "rev-parse", "HEAD").strip()
