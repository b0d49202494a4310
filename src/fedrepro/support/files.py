"""Write files and folders atomically."""

import errno
import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedrepro.support.errors import UserError, cannot_write, refusal, unreadable

# These say nothing of a file: another moment, or a greater limit, may read it.
MOMENTARY = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE)
# Errors of writing only.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
TOKEN = 12  # hexadecimal digits in the name of a folder that is being replaced


def sha256_of(path: Path) -> str:
    """The hexadecimal SHA-256 of a file's bytes.

    Raises:
        OSError: as :func:`read_bytes`.
        UserError: as :func:`read_bytes`.
    """
    with _opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def plain(path: Path) -> Path:
    """The path.

    Raises:
        OSError: for what is there and no file: reading a named pipe would wait for ever.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    return path


def read_bytes(path: Path) -> bytes:
    """A file's bytes.

    Raises:
        OSError: if it can't be read, or is no file.
        UserError: if it can't be read now, such as when too many files are open.
    """
    with _opened(path) as file:
        return file.read()


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    try:
        with plain(path).open("rb") as file:
            yield file
    except OSError as error:  # of opening, or of a server that goes amid reading
        if error.errno in MOMENTARY:
            raise unreadable(path, error.strerror) from error
        raise


def read_text(path: Path) -> str:
    """A file's text, in UTF-8.

    Raises:
        OSError: as :func:`read_bytes`.
        UserError: as :func:`read_bytes`.
        UnicodeDecodeError: if it is something else.
    """
    with _opened(path) as file, io.TextIOWrapper(file, encoding="utf-8") as text:
        return text.read()


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        OSError: if it can't be read.
        UserError: as :func:`read_bytes`.
        ValueError: as of :func:`parse_json`.
    """
    return parse_json(read_bytes(path))


def parse_json(text: str | bytes) -> Any:
    """The content of JSON text.

    Raises:
        ValueError: if it is not JSON in UTF-8, nested too deeply, has a key twice in an object, or
            half of a character, as texts that were cut have, which nothing could write again.
    """
    escaped = "\\ud" in text.lower() if isinstance(text, str) else b"\\ud" in text.lower()
    try:
        content = json.loads(text, object_pairs_hook=_object)
        if escaped:
            json.dumps(content, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.end]
        raise ValueError(f"{half!a} is half of a character: leave it out") from None
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in made if keys.count(key) > 1)!r} twice")
    return made


def visible(folder: Path, pattern: str) -> list[Path]:
    """A folder's files of a pattern, sorted; not hidden ones, such as editors and macOS leave."""
    return sorted(path for path in folder.glob(pattern) if not is_hidden(path.relative_to(folder)))


def is_hidden(path: Path) -> bool:
    """Return True for a relative path with a hidden part, or in a folder of macOS's metadata."""
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)


def files_below(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield all that is in a folder and in its folders, but no folder.

    Folders that are links count too, which Path.rglob leaves out; not those that lead to a folder
    above themselves.

    Args:
        above: where the search comes from, without links.

    Raises:
        OSError: if a folder can't be read.
    """
    above |= {folder.resolve()}
    for entry in folder.iterdir():
        if not entry.is_dir():
            yield entry
        elif entry.resolve() not in above:
            yield from files_below(entry, above)


def all_below(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield all that is below a folder, with the facts about it; links are not followed.

    What another process removes meanwhile is left out, as pathlib's functions can't do.
    """
    for above, folders, names in os.walk(folder):
        for path in (os.path.join(above, name) for name in (*folders, *names)):  # noqa: PTH118 - many
            try:
                facts = os.lstat(path)
            except FileNotFoundError:
                continue
            yield path, facts


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
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError as error:  # whose words would say that the wanted file exists
        raise NotADirectoryError(errno.ENOTDIR, f"{path} is no folder", str(path)) from error
    flush(path.parent)


def sync_disk() -> None:
    """Force all bytes written so far to disk."""
    os.sync()


@contextmanager
def write_atomically(path: Path, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path in the same folder; rename it to ``path`` if the block succeeds.

    The file is then durable, even if the machine crashes: later writes and deletions can rely on
    it.

    Args:
        durable: if not, it is so after the caller's next :func:`sync_disk`, which thousands of
            files need only once.

    Raises:
        UserError: if the file cannot be written (disk full, read-only, quota), or is none.
    """
    if not path.name:  # as of "" and "/"
        raise refusal(path, "expected a file, not a folder")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if durable:
            make_folder(path.parent)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if durable:
            flush(temporary)
        os.replace(temporary, path)
        if durable:
            flush(path.parent)
    except OSError as error:
        raise _blamed(path, error) from error
    finally:
        with suppress(OSError):  # such as a file where the folder should be
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(
    target: Path, listed: Callable[[Path], Collection[str]] = lambda folder: ()
) -> Iterator[Path]:
    """Yield a temporary folder next to `target`; rename it to `target` if the block succeeds.

    The caller holds the lock, so leftovers of a killed process can be removed.

    Args:
        listed: as :func:`replace_folder` has it.

    Raises:
        UserError: if `target` cannot be written.
    """
    target, token = real_folder(target), new_token()
    temporary = _beside(target, token, "tmp")
    try:
        settle(target, listed)
        for left_over in _left_over(target, "tmp"):
            shutil.rmtree(left_over, ignore_errors=True)
        temporary.mkdir(parents=True)
        yield temporary
        for path in sorted(temporary.rglob("*")):
            flush(path)
        flush(temporary)
        replace_folder(temporary, target, token, listed)
    except OSError as error:
        raise _blamed(target, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _blamed(target: Path, error: OSError) -> UserError:
    """The error for what could not be written, or for a file from which it is made."""
    # On a full disk, `shutil.copyfile` names the file that it reads.
    if isinstance(error.filename, str) and error.errno not in FULL:
        source = Path(error.filename)
        if not source.is_relative_to(target.parent) and not target.is_relative_to(source):
            return unreadable(source, error.strerror or error)
    return cannot_write(target, error)


def new_token() -> str:
    """Part of a name that nobody else gives, and that no other process gives at the same time."""
    return os.urandom(TOKEN // 2).hex()


def real_folder(path: Path) -> Path:
    """A folder's path with a name of its own: neither ``.`` nor a link, which a rename replaces.

    Raises:
        UserError: for a file, and for links that only lead to each other.
    """
    try:
        if path.name in ("", "..") or path.is_symlink():
            path = path.resolve()
        if path.is_symlink():  # since Python 3.13; before, `resolve` raises
            raise refusal(path, "expected a folder, not links that lead to each other")
        if path.exists() and not path.is_dir():
            raise refusal(path, "expected a folder, not a file")
    except (OSError, RuntimeError, ValueError) as error:  # the last of a NUL in its name
        raise refusal(path, f"expected a folder: {error}") from error
    return path


def expect_folder(path: Path) -> None:
    """Refuse what is there and no folder, such as a link to a disk that is not mounted.

    Raises:
        UserError: with where a link leads.
    """
    if os.path.lexists(path) and not path.is_dir():
        there = f"a link to {path.readlink()}, where none is" if path.is_symlink() else "not a file"
        raise refusal(path, f"expected a folder, {there}", code="unreadable")


def replace_folder(
    staged: Path, target: Path, token: str, listed: Callable[[Path], Collection[str]]
) -> None:
    """Rename a complete folder to ``target``. If that fails, what was there is there again.

    Of the files that were in ``target``, those that the new folder has too, and those listed as
    ours, are removed once the new ones are in place. All others are someone's own: they stay.

    Args:
        target: on the same file system, and no link.
        token: of the lock, for a name that is no neighbour's.
        listed: the names of our files in a folder, as the record in it lists them.

    Raises:
        OSError: if a folder cannot be renamed.
    """
    old = _beside(target, token, "old")
    if target.exists():
        os.rename(target, old)
    try:
        os.rename(staged, target)
    except BaseException:  # also an interrupt
        if old.exists():
            os.rename(old, target)
        raise
    flush(target.parent)
    if old.exists():
        absorb(old, target, set(listed(old)))


def settle(target: Path, listed: Callable[[Path], Collection[str]]) -> None:
    """Complete :func:`replace_folder` where a process was killed in its midst.

    Without a new folder, the old one is put back.
    """
    for old in _left_over(target, "old"):
        if target.exists():
            absorb(old, target, set(listed(old)))
        else:
            os.rename(old, target)
            flush(target.parent)


def absorb(old: Path, new: Path, ours: Collection[str]) -> None:
    """Remove our files from ``old``, and ``old``; what is not ours is moved to ``new``.

    Something whose name is taken in ``new`` by a thing of another kind stays, and ``old`` with it.
    """
    for entry in sorted(old.iterdir()):
        place = new / entry.name
        if entry.is_dir() and not entry.is_symlink():
            if place.is_dir() and not place.is_symlink():
                inside = f"{entry.name}/"
                absorb(entry, place, {n.removeprefix(inside) for n in ours if n.startswith(inside)})
            elif not os.path.lexists(place):
                os.rename(entry, place)
        elif entry.name in ours or os.path.lexists(place):
            entry.unlink()
        else:
            os.rename(entry, place)
    flush(new)
    with suppress(OSError):  # it holds something under a name that is taken
        old.rmdir()


def _beside(target: Path, token: str, suffix: str) -> Path:
    return target.with_name(f".{target.name}.{token}.{suffix}")


def _left_over(target: Path, suffix: str) -> list[Path]:
    """Folders that :func:`_beside` named, whatever the token."""
    form = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{{TOKEN}}}\.{suffix}")
    return sorted(path for path in target.parent.glob(".*") if form.fullmatch(path.name))
