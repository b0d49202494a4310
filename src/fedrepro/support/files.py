"""Write files and folders atomically."""

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
    """Force a file's or folder's bytes to disk before a later rename is persisted."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, durably: they survive a crash."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    flush(path.parent)


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; rename it to ``path`` if the block succeeds.

    The file is then durable, even if the machine crashes: later writes and deletions can rely on
    it.

    Raises:
        UserError: if the file cannot be written (disk full, read-only, quota).
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


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `target`; rename it to `target` if the block succeeds.

    The caller holds the lock, so leftovers of a killed process can be removed.

    Raises:
        UserError: if `target` cannot be written.
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
        try:
            temporary.rename(target)
        except BaseException:  # also an interrupt: what was there is there again
            if replaced.exists():
                replaced.rename(target)
            raise
        flush(target.parent)
    except OSError as error:
        source = error.filename
        if isinstance(source, str) and not Path(source).is_relative_to(target.parent):
            raise UserError(f"{source}: can't be read: {error.strerror or error}") from error
        raise cannot_write(target, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)
