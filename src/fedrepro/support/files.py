"""Files and folders that appear whole or not at all, and are made by one process at a time."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedrepro.support.errors import UserError, cannot_write


def sha256_of(path: Path) -> str:
    """The hexadecimal SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush(path: Path) -> None:
    """Force a file's (or folder's) bytes to the disk, so that a later rename can't outrun them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Give a temporary path in the same folder; rename it to ``path`` if the block succeeds.

    Raises:
        UserError: when the disk refuses (full, read-only, quota), naming the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        flush(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def lock_of(folder: Path) -> Path:
    """The file that a process locks (``flock``) for as long as it works on a folder."""
    return folder.with_name(f".{folder.name}.lock")


def is_locked(folder: Path) -> bool:
    """Whether a process works on a folder right now."""
    try:
        with lock_of(folder).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody has
        return False
    return False


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder` (a hidden file beside it); released even by a killed process."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / f".{folder.name}.lock").open("w")
    except OSError as error:
        raise cannot_write(folder, error) from error
    with lock:
        # Some network file systems know no locks: then two processes must not be started at once.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Give a temporary folder beside `target`; it becomes `target` if the block succeeds.

    The caller holds the lock, so what a killed process left behind can be removed.

    Raises:
        UserError: when the disk refuses, naming `target`.
    """
    temporary = target.parent / f".{target.name}.tmp"
    replaced = target.parent / f".{target.name}.old"
    try:
        for left_over in (temporary, replaced):
            shutil.rmtree(left_over, ignore_errors=True)
        temporary.mkdir(parents=True)
        yield temporary
        for path in sorted(temporary.rglob("*")):
            flush(path)
        flush(temporary)
        if target.exists():
            target.rename(replaced)
        temporary.rename(target)
        flush(target.parent)
    except OSError as error:
        source = error.filename
        if isinstance(source, str) and not Path(source).is_relative_to(target.parent):
            raise UserError(f"{source}: can't be read: {error.strerror or error}") from error
        raise cannot_write(target, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)
