"""Find files that the user must supply, and know them by their bytes."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from fedrepro.data.catalogue.entries import Own
from fedrepro.data.catalogue.kinds import SPLITS, Plugin, Text
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError, unreadable
from fedrepro.support.files import files_below, sha256_of
from fedrepro.support.plugins import content_of

REMEMBERED, WHAT = Path(".snakemake/fedrepro-own-data"), "own data"


def own_places(given: str, archives: Path | None) -> list[Path]:
    """The places to look for an entry's `path`."""
    return [Path(given), *([archives / Path(given).name] if archives else [])]


def find_own(given: str, archives: Path | None) -> Path | None:
    """The first of these places that exists, or None.

    Raises:
        UserError: if it is no file or folder: reading a named pipe would wait for ever.
    """
    path = next((path for path in own_places(given, archives) if path.exists()), None)
    if path is not None and not (path.is_file() or path.is_dir()):
        raise unreadable(path, "it is neither a file nor a folder")
    return path


def files_of(path: Path) -> list[Path]:
    """All files in a folder, sorted; for a file, the file itself."""
    return sorted(filter(Path.is_file, files_below(path))) if path.is_dir() else [path]


def digest_of(path: Path) -> str:
    """The SHA-256 of a file; of a folder, one of the names and contents of all its files."""
    if not path.is_dir():
        return sha256_of(path)
    lines = (f"{file.relative_to(path)}\t{sha256_of(file)}\n" for file in files_of(path))
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def with_code(spec: Own, digest: str) -> str:
    """A digest of files together with that of the plug-in, or of the tokenizer, that reads them.

    All code in the plug-in's folder counts, as the function may import it.
    """
    others: list[str] = []
    if isinstance(spec, Plugin) and spec.file is not None:
        files = [file for file in files_of(spec.file.parent) if file.suffix == ".py"]
        others = [hashlib.sha256(content_of(file)).hexdigest() for file in files]
    elif isinstance(spec, Text) and spec.tokenizer not in SPLITS and Path(spec.tokenizer).is_dir():
        others = [digest_of(Path(spec.tokenizer))]
    return hashlib.sha256(" ".join([digest, *others]).encode()).hexdigest() if others else digest


def sha256_of_own(spec: Own, archives: Path | None) -> str | None:
    """The digest of the files that the user supplies; None if there are none.

    Bytes are read when a file's size or time is new: a copy or a `touch` is no change.

    Raises:
        UserError: if a file cannot be read.
    """
    path = find_own(spec.path, archives)
    if path is None:
        return None
    known = _remembered()
    before = known.get(spec.path, {})
    try:
        signature = _signature(path)
        if before.get("seen") == signature:
            return with_code(spec, before["sha256"])
        digest = digest_of(path)
    except OSError as error:
        raise unreadable(error.filename or path, error.strerror) from None
    entry = {"seen": signature, "sha256": digest}
    with suppress(UserError):  # read-only: the bytes are read again each time
        checksummed_json.write(REMEMBERED, {**known, spec.path: entry}, WHAT)
    return with_code(spec, digest)


def _signature(path: Path) -> str:
    """A hash of the names, sizes and times of files."""
    seen = [
        (os.path.relpath(file, path), at.st_size, at.st_mtime_ns, at.st_ctime_ns)
        for file in files_of(path)
        for at in [file.stat()]
    ]
    return hashlib.sha256(repr(seen).encode()).hexdigest()


def _remembered() -> dict[str, dict[str, str]]:
    """The digest of each entry's files, by its `path`; nothing if the record is damaged."""
    with suppress(FileNotFoundError, UserError):
        content = checksummed_json.read(REMEMBERED, WHAT)
        return {key: each for key, each in content.items() if isinstance(each, dict)}
    return {}
