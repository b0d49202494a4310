"""Files and folders that appear whole or not at all, and are made by one process at a time."""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fedrepro.support.errors import UserError, cannot_write

# `is_locked` holds a lock for a moment: a process that does not wait must not stumble over that.
LOOKS = 4
BETWEEN_LOOKS = 0.05  # seconds


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


def make_folder(path: Path) -> None:
    """Make a folder and what is missing above it, so that a crash can't take it away again."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    flush(path.parent)


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Give a temporary path in the same folder; rename it to ``path`` if the block succeeds.

    After that the file stays, even if the machine stops: what is written or removed later can
    rely on it.

    Raises:
        UserError: when the disk refuses (full, read-only, quota), naming the file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        make_folder(path.parent)
        yield temporary
        flush(temporary)
        os.replace(temporary, path)
        flush(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with suppress(OSError):  # such as a file where the folder should be
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
def only_one(folder: Path, busy: str | None = None) -> Iterator[None]:
    """Hold the lock of `folder` (a hidden file beside it); released even by a killed process.

    Some network file systems know no locks: there, two processes must not be started at once.

    Args:
        busy: what is said when another process holds it; None: wait until it does not.

    Raises:
        UserError: when the disk refuses, or with `busy`.
    """
    file = _lock(folder, busy)
    with file:
        try:
            yield
        finally:
            # Under the lock: whoever waits for this file sees that it is gone, and makes its own.
            if _is_the(lock_of(folder), file):
                lock_of(folder).unlink(missing_ok=True)


def _lock(folder: Path, busy: str | None) -> IO[str]:
    """The lock file of `folder`, open and locked as far as the file system can."""
    tries = 0
    while True:
        try:
            make_folder(folder.parent)
            file = lock_of(folder).open("w")
        except OSError as error:
            raise cannot_write(folder, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if busy is None else fcntl.LOCK_NB))
        except BlockingIOError:
            file.close()
            tries += 1
            if tries == LOOKS:
                raise UserError(f"{folder}: {busy}") from None
            time.sleep(BETWEEN_LOOKS)
            continue
        except OSError:  # a file system without locks
            return file
        except BaseException:  # Ctrl-C while waiting
            file.close()
            raise
        if _is_the(lock_of(folder), file):
            return file
        file.close()  # its holder has removed it meanwhile: another process may lock a new one


def _is_the(path: Path, file: IO[str]) -> bool:
    """Whether an open file is the one that `path` leads to now."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:
        return False


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
