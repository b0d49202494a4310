"""Files that appear whole or not at all."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrepro.errors import cannot_write


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
