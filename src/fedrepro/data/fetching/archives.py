"""Unpack zip, tar and gzip files that may be truncated or malicious."""

import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from fedrepro.support.errors import UserError, cannot_write, refusal, unreadable, writing
from fedrepro.support.files import atomic_folder, visible
from fedrepro.support.locks import exclusive_lock

# Exceptions of the standard library for damaged archives.
DAMAGE = (
    EOFError,
    zlib.error,
    gzip.BadGzipFile,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    RuntimeError,  # a zip member with a password or an unknown compression
)
BLOCK = 1 << 20


def unpack(archive: Path, target: Path) -> None:
    """Unpack a zip or tar (also .gz, .bz2, .xz) archive into the new folder `target`.

    Only plain files and folders are created, with default permissions.

    Raises:
        UserError: if the file is damaged or not an archive; if a member has an absolute path or a
            '..', or is a link or a device; if `target` cannot be written. `target` is then not
            created.
    """
    with exclusive_lock(target), atomic_folder(target) as folder, _readable(archive):
        if zipfile.is_zipfile(archive):
            _unpack_zip(archive, folder)
        elif tarfile.is_tarfile(archive):
            _unpack_tar(archive, folder)
        else:
            raise refusal(archive, "truncated, or not a zip or tar archive", code="damaged")


def opened(path: Path, scratch: Path) -> Path:
    """A folder as it is; an archive's content, unpacked into a folder of ``scratch``.

    Raises:
        UserError: as `unpack`.
    """
    if path.is_dir():
        return path
    unpack(path, scratch / "unpacked")
    return scratch / "unpacked"


def opened_around(archive: Path, scratch: Path, *names: str) -> Path:
    """Unpack an archive, and return the folder that contains the files with these names.

    Archives with the same content may put it in different folders.

    Raises:
        UserError: as `unpack`, and if a file is missing.
    """
    whole = opened(archive, scratch)
    root = next((path.parent for path in visible(whole, f"**/{names[0]}")), whole)
    for name in names:
        if not (root / name).is_file():
            raise lacking(archive, name)
    return root


def gunzip(source: Path, target: Path, limit: int) -> None:
    """Write the uncompressed content of `source` to the file `target`, at most `limit` bytes.

    Raises:
        UserError: if `source` is damaged or contains more, or if `target` cannot be written.
    """
    with _readable(source), gzip.open(source) as packed:
        _copy(packed, target, limit, source)


def take_out(archive: Path, name: str, target: Path, limit: int) -> None:
    """Write the member `name` of a tar archive, in any of its folders, to the file `target`.

    Raises:
        UserError: if the archive is damaged or has no such member, if that has more than `limit`
            bytes, or if `target` cannot be written.
    """
    with _readable(archive), tarfile.open(archive) as file:
        for member in file:
            source = file.extractfile(member) if member.isreg() else None
            if source is not None and PurePosixPath(member.name).name == name:
                _copy(source, target, limit, archive)
                return
    raise lacking(archive, name)


def lacking(archive: Path, name: str) -> UserError:
    """The error for an archive, or a folder, without a file that it must have."""
    return refusal(archive, f"{name} is missing", name, code="missing")


def _refused(archive: Path, name: str, why: str) -> UserError:
    return refusal(archive, f"refused: {why}", value=name)


@contextmanager
def _readable(archive: Path) -> Iterator[None]:
    """Turn exceptions for damaged archives, and for what is no file, into a UserError."""
    if archive.exists() and not archive.is_file():
        raise unreadable(archive, "it is not a file")
    try:
        yield
    except (*DAMAGE, OSError) as error:
        if getattr(error, "errno", None) is not None:  # of the disk; bz2 has none for damage
            raise
        raise refusal(archive, f"truncated or damaged: {error}", code="damaged") from None


def _unpack_zip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        members = file.infolist()
        places = [_place(folder, member.filename, archive) for member in members]
        for member, place in zip(members, places, strict=True):
            mode = member.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                name = member.filename
                raise _refused(archive, name, f"{name!r} is a link or a device")
            if member.is_dir():
                place.mkdir(parents=True, exist_ok=True)
                continue
            with file.open(member) as source:
                _copy(source, place, member.file_size, archive)


def _unpack_tar(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as file:
        for member in file:
            place = _place(folder, member.name, archive)
            if member.isdir():
                place.mkdir(parents=True, exist_ok=True)
                continue
            source = file.extractfile(member) if member.isreg() else None
            if source is None:
                raise _refused(archive, member.name, f"{member.name!r} is a link or a device")
            with source:
                _copy(source, place, member.size, archive)


def _place(folder: Path, name: str, archive: Path) -> Path:
    """The path of a member; raise UserError if it is outside of `folder`."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or ":" in name:
        raise _refused(archive, name, f"the member {name!r} would be written elsewhere")
    return folder / path


def _copy(source: IO[bytes] | gzip.GzipFile, place: Path, limit: int, archive: Path) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        file = place.open("xb")
    except FileExistsError:
        raise _refused(archive, place.name, f"{place.name!r} occurs twice") from None
    except OSError as error:
        raise cannot_write(place, error) from error
    written = 0
    with file:
        while block := source.read(BLOCK):
            written += len(block)
            if written > limit:
                why = f"holds more than the {limit} bytes expected"
                raise _refused(archive, place.name, why)
            with writing(place):
                file.write(block)
