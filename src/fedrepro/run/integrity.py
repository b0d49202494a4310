"""Check the files of a results tree against their recorded hashes and sizes.

Needs no torch and changes nothing. Files have another name while they are written, so a tree can be
checked during runs.
"""

import json
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrepro.config.targets import RunKey
from fedrepro.data.dataset import read_meta
from fedrepro.data.partition.partition import Partition
from fedrepro.run import fingerprint
from fedrepro.run.results import are_numbers, changed_files
from fedrepro.support.errors import UserError
from fedrepro.support.files import sha256_of

JSON_FOLDERS = ("tables", "landscapes", "regrets", "quality")
WRITTEN = ("rounds.parquet", "clients.parquet", "model.safetensors")  # by every run

OTHERWISE = (AttributeError, KeyError, TypeError, ValueError)  # raised for unexpected JSON


@dataclass
class Check:
    """One pass over a results tree.

    Attributes:
        results: its folder.
        full: whether to hash prepared data and downloads completely; else only sizes are compared.
        counts: how many items of each kind were checked, once :meth:`faults` has ended.
    """

    results: Path
    full: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    def faults(self) -> Iterator[str]:
        """All faults: one line each, which starts with the file or folder.

        Raises:
            UserError: if the folder does not exist.
        """
        if not self.results.is_dir():
            raise UserError(f"{self.results}: expected the folder of a results tree")
        yield from self._downloads()
        yield from self._prepared()
        yield from self._partitions()
        yield from self._runs()
        for path in sorted(self.results.glob("trunks/*/*/*/seed*/[!.]*/about.json")):
            self.counts["kept checkpoints"] += 1
            about, faults = _read_json(path)
            changed = changed_files(path.parent, about)
            yield from (*faults, *(f"{path.parent}: damaged: {fault}" for fault in changed))
        for kind in JSON_FOLDERS:
            for path in sorted((self.results / kind).rglob("[!.]*.json")):
                self.counts[kind] += 1
                yield from _read_json(path)[1]

    def _downloads(self) -> Iterator[str]:
        for record in sorted(self.results.glob("downloads/[!.]*/files.json")):
            self.counts["downloads"] += 1
            about, faults = _read_json(record)
            yield from faults
            try:
                for name, each in about.get("files", {}).items():
                    if "size" in each:  # a user's own files are not copied
                        yield from self._file(record.parent / name, each)
            except OTHERWISE:
                yield f"{record}: damaged: it does not list what was downloaded"

    def _prepared(self) -> Iterator[str]:
        for path in sorted(self.results.glob("data/[!.]*/meta.json")):
            self.counts["prepared data sets"] += 1
            try:
                meta = read_meta(path.parent)
                assert meta is not None
                for split in meta["splits"].values():
                    for key, about in split["arrays"].items():
                        # The folder, because a single array cannot be made again.
                        for fault in self._file(path.parent / f"{key}.npy", about):
                            yield f"{path.parent}: {fault.rpartition('/')[2]}"
            except UserError as error:
                yield str(error)
            except OTHERWISE:
                yield f"{path}: damaged: it lists no arrays"

    def _file(self, path: Path, about: Mapping[str, Any]) -> Iterator[str]:
        """Compare a file with its recorded ``size`` and, in a full check, ``sha256``."""
        try:
            size = path.stat().st_size
            if size != about["size"]:
                yield f"{path}: damaged: {size} bytes, not {about['size']}"
            elif self.full and sha256_of(path) != about["sha256"]:
                yield f"{path}: damaged: its content differs from the recorded hash"
        except FileNotFoundError:
            yield f"{path}: missing"
        except OSError as error:
            yield f"{path}: can't be read: {error.strerror}"

    def _partitions(self) -> Iterator[str]:
        for path in sorted(self.results.glob("partitions/*/*/[!.]*.npz")):
            self.counts["partitions"] += 1
            try:
                yield from _faults_of_partition(path)
            except UserError as error:
                yield str(error)

    def _runs(self) -> Iterator[str]:
        root = self.results / "runs"
        for folder in sorted(root.glob("*/*/*/seed*")):
            if folder.name.removeprefix("seed").isdigit():
                self.counts["runs"] += 1
                yield from _faults_of_run(root, folder)


def _faults_of_partition(path: Path) -> Iterator[str]:
    """Check its checksums (of a zip's members), and its arrays against its histogram.

    Raises:
        UserError: if it cannot be read.
    """
    partition = Partition.load(path)
    with zipfile.ZipFile(path) as archive:
        member = archive.testzip()
    if member:
        yield f"{path}: damaged: {member}"
        return
    histogram, faults = _read_json(path.with_suffix(".json"))
    yield from faults
    parts = {name: (rows, counts.tolist()) for name, rows, counts in partition.parts}
    for name in ("train", "test", "validation"):
        rows, there = parts.get(name, (None, None))
        sizes = None if rows is None else [len(each) for each in rows]
        if there != histogram.get(name) or sizes != (there and [sum(each) for each in there]):
            yield f"{path.with_suffix('.json')}: damaged: does not match {path.name} ({name})"


def _faults_of_run(root: Path, folder: Path) -> Iterator[str]:
    path = folder / "manifest.json"
    manifest, faults = _read_json(path)
    if faults:
        missing = faults == [f"{path}: missing"]
        yield from ([f"{folder}: damaged: there is no manifest.json"] if missing else faults)
        return
    run, files = manifest.get("run"), manifest.get("files")
    if not isinstance(run, dict) or not isinstance(files, dict):
        yield f"{path}: damaged: it lists no configuration or no files"
        return
    system, setting, method, seed = folder.relative_to(root).parts
    place = RunKey(f"{system}/{setting}", method, int(seed.removeprefix("seed")))
    if RunKey(str(run.get("setting")), str(run.get("method")), run.get("seed", -1)) != place:
        yield f"{path}: damaged: it belongs to another run"
    if fingerprint.of_text(json.dumps(run, sort_keys=True)) != manifest.get("config_hash"):
        yield f"{path}: damaged: its configuration does not match the hash in it"
    elif manifest.get("seal") not in (None, fingerprint.of_manifest(manifest)):
        yield f"{path}: damaged: it does not match its checksum"
    for name in WRITTEN:
        if name not in files:
            yield f"{path}: damaged: it does not list {name}"
    yield from (f"{folder}: damaged: {fault}" for fault in changed_files(folder, manifest))
    timing, faults = _read_json(folder / "timing.json")
    yield from faults
    if not faults and not are_numbers(timing):
        yield f"{folder / 'timing.json'}: damaged: expected a number for each key"


def _read_json(path: Path) -> tuple[dict[str, Any], list[str]]:
    """A file's keys and values, and its faults."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}, [f"{path}: missing"]
    except OSError as error:
        return {}, [f"{path}: can't be read: {error.strerror}"]
    except (ValueError, RecursionError) as error:
        return {}, [f"{path}: damaged: {error}"]
    if not isinstance(found, dict):
        return {}, [f"{path}: damaged: expected keys with values"]
    return found, []
