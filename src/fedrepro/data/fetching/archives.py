"""Unpacking zip, tar and gzip files that may be truncated or hostile."""

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

from fedrepro.support.errors import UserError, cannot_write
from fedrepro.support.files import whole_folder
from fedrepro.support.locks import only_one

# What the standard library raises for a damaged archive.
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

    Only plain files and folders are made, with default permissions.

    Raises:
        UserError: when the archive is damaged or no archive at all; when a member has an absolute
            path, a '..', is a link or a device; when the disk refuses. `target` is then not made.
    """
    with only_one(target), whole_folder(target) as folder, _readable(archive):
        if zipfile.is_zipfile(archive):
            _unpack_zip(archive, folder)
        elif tarfile.is_tarfile(archive):
            _unpack_tar(archive, folder)
        else:
            raise UserError(f"{archive}: truncated, or not a zip or tar archive")


def unpack_around(archive: Path, target: Path, *names: str) -> Path:
    """Unpack an archive, and give the folder in which its files of these names are.

    Archives of the same content differ in the folders that they wrap it in.

    Raises:
        UserError: as `unpack` does, and when a file is missing.
    """
    unpack(archive, target)
    found = sorted(target.rglob(names[0]))
    root = found[0].parent if found else target
    for name in names:
        if not (root / name).is_file():
            raise UserError(f"{archive}: {name} is missing")
    return root


def gunzip(source: Path, target: Path, limit: int) -> None:
    """Write the uncompressed content of `source` to the file `target`, at most `limit` bytes.

    Raises:
        UserError: when `source` is damaged or holds more, or when the disk refuses.
    """
    with _readable(source), gzip.open(source) as packed:
        _copy(packed, target, limit, source)


@contextmanager
def _readable(archive: Path) -> Iterator[None]:
    """Turn what reading a damaged archive raises into one line."""
    try:
        yield
    except DAMAGE as error:
        raise UserError(f"{archive}: truncated or damaged: {error}") from None


def _unpack_zip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        members = file.infolist()
        places = [_place(folder, member.filename, archive) for member in members]
        for member, place in zip(members, places, strict=True):
            mode = member.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise UserError(f"{archive}: refused: {member.filename!r} is a link or a device")
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
                raise UserError(f"{archive}: refused: {member.name!r} is a link or a device")
            with source:
                _copy(source, place, member.size, archive)


def _place(folder: Path, name: str, archive: Path) -> Path:
    """Where a member goes, if that is inside `folder`."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or ":" in name:
        raise UserError(f"{archive}: refused: the member {name!r} would be written elsewhere")
    return folder / path


def _copy(source: IO[bytes] | gzip.GzipFile, place: Path, limit: int, archive: Path) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        file = place.open("xb")
    except FileExistsError:
        raise UserError(f"{archive}: refused: {place.name!r} occurs twice") from None
    except OSError as error:
        raise cannot_write(place, error) from error
    written = 0
    with file:
        while block := source.read(BLOCK):
            written += len(block)
            if written > limit:
                raise UserError(f"{archive}: refused: holds more than the {limit} bytes expected")
            try:
                file.write(block)
            except OSError as error:
                raise cannot_write(place, error) from error
