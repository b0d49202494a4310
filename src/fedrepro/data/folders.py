"""Folders that appear whole or not at all, and are made by one process at a time."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedrepro.errors import UserError, cannot_write
from fedrepro.files import flush


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
