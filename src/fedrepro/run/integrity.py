"""Check the files of a results tree, and reference results, against their checksums and places.

Needs no torch and changes nothing. Files have another name while they are written, so a tree can be
checked during runs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrepro.config.targets import RunKey
from fedrepro.data.dataset import arrays_of, read_meta
from fedrepro.data.partition.partition import Partition
from fedrepro.run import digests, results
from fedrepro.run.derived_files import REPLACED, changed_sources
from fedrepro.run.landed_runs import PAPERS, runs_landed_in, settings_with_results
from fedrepro.run.results import MANIFEST, MODEL, REFERENCE, TIMING, changed_files
from fedrepro.support import checksummed_json, commands
from fedrepro.support.errors import UserError, refusal
from fedrepro.support.files import sha256_of

# The sealed files of each folder. Partitions and runs are checked with what is beside them.
SEALED = {
    "downloads": "*/files.json",
    "data": "*/meta.json",
    "trunks": "*/*/*/*/*/about.json",
}
WORDS = {"data": "prepared data sets", "trunks": "kept checkpoints"}
WRITTEN = ("rounds.parquet", "clients.parquet", MODEL)  # by every run

OTHERWISE = (AttributeError, KeyError, TypeError, ValueError)  # raised for unexpected JSON


@dataclass
class Check:
    """One pass over a results tree, or over the reference results of ``reports``.

    Attributes:
        results: its folder.
        full: whether to hash prepared data and downloads completely; else only sizes are compared.
        counts: how many items of each kind were checked, once :meth:`faults` has ended.
        unrecorded: the papers whose printed numbers and landed results have no record to compare
            them with, likewise.
        unlisted: the papers that are not in the list of those that have pages, likewise.
    """

    results: Path
    full: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    unrecorded: list[str] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)

    def faults(self) -> Iterator[str]:
        """All faults: one line each, which starts with the file or folder.

        Raises:
            UserError: if the folder does not exist.
        """
        if not self.results.is_dir():
            raise refusal(self.results, "expected the folder of a results tree", code="missing")
        yield from self._sealed()
        yield from self._partitions()
        yield from self._runs()
        yield from self._references()
        yield from self._landed()

    def _sealed(self) -> Iterator[str]:
        """All JSON files except those of runs, and the files that they list."""
        files = (Path(name) for name in commands.written() if name.startswith("results/"))
        folders = sorted(path.parts[1] for path in files if path.suffix == ".json")
        for kind, pattern in {**dict.fromkeys(folders, "**/*.json"), **SEALED}.items():
            for path in sorted((self.results / kind).glob(pattern)):
                parts = path.relative_to(self.results).parts
                if not any(part.startswith(".") for part in parts):
                    self.counts[WORDS.get(kind, kind)] += 1
                    yield from self._faults_of(path, checksummed_json.place(path, len(parts)))

    def _faults_of(self, path: Path, what: str) -> Iterator[str]:
        try:
            content = checksummed_json.checked(path, what)
            if what.startswith("data/"):
                yield from self._arrays(path.parent)
            elif what.startswith("downloads/"):
                for name, each in content["files"].items():
                    if "size" in each:  # a user's own files are not copied
                        yield from self._file(path.parent / name, each)
            else:
                folder = path.parent if what.startswith("trunks/") else path
                for fault in changed_files(path.parent, content):
                    yield f"{folder}: damaged: {fault}"
            for name in changed_sources(content, self._seal_of):
                yield f"{path}: {REPLACED.format(name)}"
        except (FileNotFoundError, *OTHERWISE) as error:
            yield f"{path}: damaged: {error}"
        except UserError as error:
            yield str(error)

    def _seal_of(self, run: RunKey) -> str | None:
        """The seal of a run's result in this tree or of its reference result; None without one."""
        seal = results.seal_of_run(self.results.parent, run, Path(self.results.name) / "runs")
        return None if seal in ("", "damaged") else seal  # damage is said of the file itself

    def _arrays(self, folder: Path) -> Iterator[str]:
        meta = read_meta(folder)
        assert meta is not None
        for name, about in arrays_of(meta).items():
            # The folder, because a single array cannot be made again.
            for fault in self._file(folder / name, about):
                yield f"{folder}: {fault.rpartition('/')[2]}"

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
                Partition.load(path)
            except UserError as error:
                yield str(error)

    def _runs(self) -> Iterator[str]:
        for folder, run in results.runs_in(self.results / "runs"):
            self.counts["runs"] += 1
            yield from _faults_of_run(folder, run, reference=False)

    def _references(self) -> Iterator[str]:
        """Reference results, which keep neither models nor images."""
        for folder, run in results.runs_in(self.results / "papers", REFERENCE):
            self.counts["reference results"] += 1
            yield from _faults_of_run(folder, run, reference=True)
            if (folder / "quality.json").exists():
                what = checksummed_json.of_results(run.analysis("quality"))
                yield from self._faults_of(folder / "quality.json", what)

    def _landed(self) -> Iterator[str]:
        """Landed results of scale compact, which a folder `reports` has."""
        if not (self.results / "papers").is_dir():
            return
        root = self.results.parent
        for setting in settings_with_results(root):
            try:
                self.counts["landed compact results"] += len(runs_landed_in(root, setting))
            except UserError as error:
                yield str(error)
        for system, is_listed in digests.papers_in(root).items():
            self.counts["papers"] += 1
            self.unlisted += [system] * (not is_listed)
            if digests.is_recorded(root, system) or not (root / PAPERS / system).is_dir():
                yield from digests.faults(root, system)
            else:
                self.unrecorded.append(system)


def _faults_of_run(folder: Path, run: RunKey, *, reference: bool) -> Iterator[str]:
    path = folder / MANIFEST
    try:
        manifest = results.manifest_in(folder)
    except FileNotFoundError:
        yield f"{folder}: damaged: there is no {MANIFEST}"
        return
    except ValueError as error:
        yield f"{path}: damaged: {error}"
        return
    if why := results.fault_of_manifest(manifest, run):
        yield f"{folder}: damaged: {why}"
        return
    for name in WRITTEN:
        if name not in manifest["files"]:
            yield f"{path}: damaged: it does not list {name}"
    for fault in changed_files(folder, manifest, ".parquet" if reference else ""):
        yield f"{folder}: damaged: {fault}"
    try:
        checksummed_json.checked(folder / TIMING, results.timing_of(manifest))
    except FileNotFoundError:
        yield f"{folder / TIMING}: missing"
    except ValueError as error:
        yield f"{folder / TIMING}: damaged: {error}"
