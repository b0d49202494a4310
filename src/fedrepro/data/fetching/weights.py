"""Pretrained weights: fetched once, read only if their SHA-256 matches config/datasets.yaml."""

import hashlib
import shutil
from functools import partial
from pathlib import Path

from fedrepro.data.catalogue.catalogue import CATALOGUE, Weights
from fedrepro.data.fetching.http import Fetcher
from fedrepro.data.fetching.raw_files import DOWNLOADS
from fedrepro.support.errors import UserError, missing_value, reading, refusal
from fedrepro.support.files import make_folder, sha256_of, write_atomically
from fedrepro.support.locks import exclusive_lock

FOLDER = DOWNLOADS / "weights"


def fetch_weights(name: str, spec: Weights, archives: Path | None = None) -> Path:
    """Get the file for :func:`read_weights`: the user's, from the archives, or downloaded.

    Raises:
        UserError: if it cannot be obtained, or its SHA-256 is wrong or not configured.
    """
    kept = FOLDER / spec.name
    with exclusive_lock(FOLDER):
        given = _given(spec)
        if given is not None:
            _refuse_other(name, spec, given, sha256_of(given))
            return given
        if archives is not None and (archives / spec.name).is_file():
            candidate = archives / spec.name
            _refuse_other(name, spec, candidate, sha256_of(candidate))
            with write_atomically(kept) as temporary:
                shutil.copyfile(candidate, temporary)
            return kept
        if spec.sha256 is None:
            raise _unknown(name)
        make_folder(FOLDER)
        with Fetcher(name) as fetcher:
            if fetcher.fetch_first(spec.urls, kept, spec.size, partial(_fault, spec)):
                return kept
    places = f"{FOLDER}, the folder of archives{f' or to {spec.path}' if spec.path else ''}"
    line = f"cannot get {spec.name} ({fetcher.why}): put it into {places}"
    raise refusal(name, line, spec.name, code="missing")


def read_weights(name: str, spec: Weights) -> tuple[bytes, str]:
    """The bytes of the file, and their SHA-256. The returned bytes are those that were verified.

    Raises:
        UserError: if the file is missing, or its SHA-256 is wrong or not configured.
    """
    path = _given(spec)
    if path is None:
        why = f"there is no such file: run `fedrepro download {name}`"
        raise refusal(FOLDER / spec.name, why, code="missing")
    with reading(path, OSError):
        content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    _refuse_other(name, spec, path, digest)
    return content, digest


def is_there(spec: Weights) -> bool:
    """Return True if :func:`read_weights` would find a file, which may have a wrong checksum."""
    return _given(spec) is not None


def _given(spec: Weights) -> Path | None:
    places = (FOLDER / spec.name, *([spec.path] if spec.path else []))
    return next((path for path in places if path.is_file()), None)


def _fault(spec: Weights, path: Path) -> str | None:
    digest = sha256_of(path)
    return None if digest.startswith(spec.sha256 or "") else f"sha256 {digest}, not {spec.sha256}"


def _refuse_other(name: str, spec: Weights, path: Path, digest: str) -> None:
    if spec.sha256 is None:
        raise _unknown(name, f"; that of {path} is {digest}")
    if not digest.startswith(spec.sha256):
        said = f"{spec.sha256}, from weights.{name} in {CATALOGUE}"
        raise refusal(path, f"sha256 {digest}: expected {said}", "sha256", digest, "damaged")


def _unknown(name: str, there: str = "") -> UserError:
    wanted = f"the SHA-256 of a file that you trust{there}"
    return missing_value(CATALOGUE, f"weights.{name}.sha256", wanted)
