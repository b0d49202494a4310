"""Read run folders, including missing and damaged ones."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from fedrepro.config.targets import RunKey
from fedrepro.run.landed_runs import PAPERS, LandedRun, folder_of, landed_run, read_columns
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError, damaged, refusal
from fedrepro.support.files import read_bytes, sha256_of
from fedrepro.support.locks import is_locked
from fedrepro.support.printing import redact
from fedrepro.support.scoped_cache import ScopedCache

if TYPE_CHECKING:  # most commands read no table
    import pyarrow

RunStatus = Literal[
    "finished", "diverged", "stopped early", "under way", "failed", "damaged", "not run"
]
LOGS = Path("results/logs/run")
REFERENCE = "reference"
REFERENCES = PAPERS / "references.yaml"
VALIDATION = "validation_"
# Columns of rounds.parquet that no samples are scored for.
NOT_SCORED = ("round", "learning_rate", "bytes_down", "bytes_up")
IMAGES = "round{}-images.safetensors"
MANIFEST = "manifest.json"
TIMING = "timing.json"
MODEL = "model.safetensors"
PAIRS = ".pairs.safetensors"  # beside quality.json: the nearest images
FINISHED = "finished"  # in a run's folder of checkpoints: a complete result, not yet in place
# How lines of errors begin in a log: the command's own, and those of Python about a signal.
DONE, ROUND = "done", ": round "  # in a run's log: at its end, and after each round
SAID = ("fedrepro: ", "Fatal Python error: ")
ENDED = "it ended {}, perhaps because memory ran out (`mem_mb` in the setting's `resources`)"


@dataclass(frozen=True)
class RunRecord:
    """A run's folder and its state.

    Attributes:
        folder: relative to the root.
        reference: whether it is a committed reference result, not a result of this machine.
        why: for a state other than "finished", the reason in words.
        timing: wall_seconds and so on, or empty if the file was not kept.
        scored_on: the samples behind the test-score columns of ``rounds`` and ``clients``: with
            "validation" these hold no scores on test samples.
        landed: what a landed result of scale compact keeps, instead of files in the folder.
        up_to: the last round of its tables to read; None for all.
    """

    root: Path
    run: RunKey
    folder: Path
    reference: bool
    state: RunStatus
    why: str = ""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    timing: Mapping[str, Any] = field(default_factory=dict)
    scored_on: Literal["test", "validation"] = "test"
    landed: LandedRun | None = None
    up_to: int | None = None

    @property
    def page(self) -> Path:
        """Its page, relative to the site."""
        top = "reference" if self.reference else "runs"
        return Path(top) / self.run.setting / self.run.method / f"seed{self.run.seed}.html"

    @cached_property
    def quality(self) -> dict[str, Any]:
        """Measures of this run's synthetic set; empty if none were computed.

        Raises:
            UserError: if the file is damaged.
        """
        if self._is_cut:  # it is of the set that the last round left
            return {}
        what = self.run.analysis("quality")
        path = self.folder / "quality.json" if self.reference else what
        try:
            if self.landed:
                quality = dict(self.landed.quality)
            else:
                quality = checksummed_json.read(
                    self.root / path, checksummed_json.of_results(what), path
                )
        except FileNotFoundError:
            return {}
        if quality.get("of") != made_of([self]):
            return {}
        numbers, classes = quality.get("numbers"), quality.get("classes")
        if not isinstance(numbers, dict) or not all(map(_is_number, numbers.values())):
            raise damaged(path, "numbers: expected names with numbers or null")
        if not isinstance(classes, int) or classes < 1:
            raise damaged(path, "classes: expected a whole number of at least 1")
        if self.scored_on == "validation":
            quality["numbers"] = {
                name.removeprefix(VALIDATION): value
                for name, value in numbers.items()
                if name.startswith(VALIDATION)
            }
        return quality

    @cached_property
    def rounds(self) -> dict[str, list[float]]:
        """rounds.parquet: column -> values; empty if there is no such file."""
        return self._chosen(self._columns("rounds.parquet"), NOT_SCORED, "test_")

    @cached_property
    def clients(self) -> dict[str, list[float]]:
        """clients.parquet: column -> values; empty if there is no such file."""
        columns = self._columns("clients.parquet")
        chosen = self._chosen(columns, ("round", "client", "train_samples"), "")
        return {"test_samples" if name == "samples" else name: chosen[name] for name in chosen}

    @cached_property
    def decisions(self) -> dict[str, list[float]]:
        """decisions.parquet: column -> values; empty without adaptive weighting."""
        return self._columns("decisions.parquet")

    @cached_property
    def mixtures(self) -> dict[str, list[float]]:
        """mixtures.parquet: column -> values; empty if the method interpolates no models."""
        return self._columns("mixtures.parquet") if self.scored_on == "test" else {}

    @property
    def rounds_with_images(self) -> list[int]:
        """The rounds after which it saved images, in order."""
        matches = (re.fullmatch(IMAGES.format(r"(\d+)"), name) for name in self._files)
        return sorted(int(match[1]) for match in matches if match)

    def images(self, number: int) -> NDArray[np.uint8]:
        """The images saved after a round, [n, channels, height, width].

        Raises:
            UserError: if the file differs from the manifest's hash, or does not hold such images.
        """
        name = IMAGES.format(number)
        path = self.root / self.folder / name
        try:
            content = read_bytes(path)
            if sha256_of(path) != self._files[name]:
                raise ValueError("differs from the hash in its manifest")
            images = load(content)["images"]
        except UserError:  # it cannot be read for a moment
            raise
        except Exception as error:  # safetensors raises its own exception type
            first_line = str(error).partition("\n")[0] or type(error).__name__
            raise damaged(self.folder / name, first_line) from None
        if images.dtype != np.uint8 or images.ndim != 4 or not images.size:
            raise damaged(self.folder / name, f"images of shape {images.shape}")
        return images

    @property
    def _files(self) -> dict[str, str]:
        """SHA-256 by name of the existing files; a reference result keeps no images."""
        if self.state == "damaged":
            return {}
        files: dict[str, str] = self.manifest.get("files", {})
        folder = self.root / self.folder
        return {
            name: digest
            for name, digest in files.items()
            if not self.reference or (folder / name).exists()
        }

    def _chosen(
        self, columns: dict[str, list[float]], kept: tuple[str, ...], prefix: str
    ) -> dict[str, list[float]]:
        """All columns, or those in ``kept`` and validation scores with another prefix."""
        if self.scored_on == "test":
            return columns
        own = {name: columns[name] for name in kept if name in columns}
        validated = {name.removeprefix(VALIDATION): name for name in columns}
        return own | {
            f"{prefix}{name}": columns[column]
            for name, column in validated.items()
            if column.startswith(VALIDATION)
        }

    @property
    def _is_cut(self) -> bool:
        """True if it has more rounds than are read."""
        return self.up_to is not None and self.up_to < self.manifest.get("rounds_done", 0)

    def _columns(self, name: str) -> dict[str, list[float]]:
        if self.landed:
            tables = self.landed.tables.get(name, {})
            columns = {column: _as_numbers(values) for column, values in tables.items()}
        elif name not in self._files:  # nor a file of another run that lies beside
            return {}
        else:
            path = self.folder / name
            columns = read_columns(self.root / path, path, _numbers_in)
        if self.up_to is None or "round" not in columns:
            return columns
        kept = [number <= self.up_to for number in columns["round"]]
        return {name: [*compress(values, kept)] for name, values in columns.items()}


def _numbers_in(column: "pyarrow.ChunkedArray") -> list[float]:
    """A Parquet column's numbers; a missing one is NaN. `to_numpy` would import pandas."""
    kind = {"double": np.float64, "int64": np.int64}.get(str(column.type))
    if kind is None or column.null_count:
        return _as_numbers(column.to_pylist())
    numbers: list[float] = []
    for chunk in column.chunks:
        whole = np.frombuffer(chunk.buffers()[1], dtype=kind)
        numbers += whole[chunk.offset : chunk.offset + len(chunk)].astype(np.float64).tolist()
    return numbers


def _as_numbers(values: Iterable[Any]) -> list[float]:
    """A column's numbers; a missing one is NaN."""
    return [math.nan if value is None else float(value) for value in values]


def _is_number(value: object) -> bool:
    """True for a number of JSON, or null."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


@cache  # as landed_runs.folder_of
def reference_folder(run: RunKey) -> Path:
    """The folder of the committed reference result of this run."""
    system, _, setting = run.setting.partition("/")
    return PAPERS / system / REFERENCE / setting / run.method / f"seed{run.seed}"


_records = ScopedCache[tuple[Path, RunKey, bool], RunRecord]()
_manifests = ScopedCache[Path, dict[str, Any]]()
_seals = ScopedCache[tuple[Path, RunKey, Path], str]()


def manifest_in(folder: Path) -> dict[str, Any]:
    """The manifest in a run's folder, not compared with its checksum, and not to be changed.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it cannot be read, or lists no configuration or no files.
    """

    def manifest() -> dict[str, Any]:
        content = checksummed_json.parsed(folder / MANIFEST)
        run_of(content)
        return content

    return _manifests.of(folder, manifest)


def read_run(root: Path, run: RunKey, reference: bool = False) -> RunRecord:
    """Read a run; with ``reference``, its committed result of scale paper, or else compact.

    A run is damaged if its manifest has another checksum or is of another run, or if its tables
    differ from the hashes in the manifest. Such a run has no numbers.
    """
    return _records.of((root, run, reference), lambda: _record_of(root, run, reference))


def _record_of(root: Path, run: RunKey, reference: bool) -> RunRecord:
    record = read_folder(root, run, reference_folder(run) if reference else run.folder, reference)
    if reference and record.state == "not run":
        return _read_landed(root, run) or record
    return record


def _read_landed(root: Path, run: RunKey) -> RunRecord | None:
    """A landed result of scale compact, if there is one."""
    folder = folder_of(run.setting)
    try:
        landed = landed_run(root, run)
    except UserError as error:
        return RunRecord(root, run, folder, True, "damaged", f"damaged: {error}")
    if landed is None:
        return None
    state, why = status_of(landed.manifest)
    return RunRecord(
        root, run, folder, True, state, why, landed.manifest, landed.timing, landed=landed
    )


def read_folder(root: Path, run: RunKey, folder: Path, reference: bool = False) -> RunRecord:
    """Read a run whose files are, or should be, in ``folder``."""
    try:
        manifest = manifest_in(root / folder)
    except FileNotFoundError:
        state, why = _missing(root, run, reference)
        return RunRecord(root, run, folder, reference, state, why)
    except ValueError as error:
        why = f"{folder / MANIFEST}: damaged: {error}"
        return RunRecord(root, run, folder, reference, "damaged", why)
    state, why = status_of(manifest)
    changed = fault_of_manifest(manifest, run) or next(
        changed_files(root / folder, manifest, ".parquet"), None
    )
    if changed:
        state, why = "damaged", f"damaged: {changed}"
    timing = read_timing(root / folder, manifest)
    return RunRecord(root, run, folder, reference, state, why, manifest, timing)


def run_of(manifest: Mapping[str, Any]) -> RunKey:
    """The run that a manifest describes.

    Raises:
        ValueError: if it does not say, or lists no files.
    """
    run, files = manifest.get("run"), manifest.get("files")
    if not isinstance(run, dict) or not isinstance(files, dict):
        raise ValueError("it lists no configuration or no files")
    return RunKey(str(run.get("setting")), str(run.get("method")), run.get("seed", -1))


def fault_of_manifest(manifest: Mapping[str, Any], run: RunKey) -> str:
    """The reason why a manifest is not of an unchanged result of a run, in words; or ""."""
    described = run_of(manifest)
    if why := checksummed_json.fault(manifest):
        return f"manifest.json: {why}"
    if described != run:
        return f"the folder holds another run: {described.words}"
    return ""


def read_timing(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A run's timing.json; empty if it is missing, damaged, or of another result."""
    try:
        return checksummed_json.checked(folder / TIMING, timing_of(manifest))
    except (FileNotFoundError, ValueError):
        return {}


def fault_of_result(folder: Path, manifest: Mapping[str, Any]) -> str:
    """The first fault of the result that a manifest describes, in words; or ""."""
    fault = checksummed_json.fault(manifest) or next(changed_files(folder, manifest), "")
    return fault or ("" if read_timing(folder, manifest) else f"{TIMING} is missing or damaged")


def timing_of(manifest: Mapping[str, Any]) -> str:
    """The key ``what`` of timing.json beside this manifest."""
    return f"timing of {manifest.get('seal')}"


def read_any(root: Path, folder: Path) -> RunRecord:
    """Read the run in a folder, whose place need not say which run it is."""
    try:
        run = run_of(manifest_in(root / folder))
    except (FileNotFoundError, ValueError):
        run = RunKey(folder.as_posix(), "", 0)
    return read_folder(root, run, folder)


def changed_files(folder: Path, manifest: Mapping[str, Any], suffix: str = "") -> Iterator[str]:
    """Faults of the files that a manifest lists, such as "rounds.parquet is missing".

    Args:
        suffix: only check files whose names end with it.
    """
    files = manifest.get("files", {})
    if not isinstance(files, Mapping):
        yield "files: expected names with hashes"
        return
    for name, sha256 in files.items():
        if not name.endswith(suffix):
            continue
        try:
            digest = sha256_of(folder / name)
        except FileNotFoundError:
            yield f"{name} is missing"
        except OSError as error:
            yield f"{name} can't be read: {error.strerror}"
        except ValueError:  # a zero byte
            yield f"{name!r} is not a file name"
        else:
            if digest != sha256:
                yield f"{name} differs from the hash in its manifest"


def find_run(root: Path, run: RunKey) -> RunRecord:
    """A run of this machine or, if there is none, the committed reference result."""
    record = read_run(root, run)
    if record.manifest or record.state == "damaged":  # which is said, not passed over
        return record
    reference = read_run(root, run, reference=True)
    return record if reference.state == "not run" else reference


def reference_runs(root: Path) -> list[RunRecord]:
    """All committed reference results, in order of name."""
    return [
        read_run(root, run, reference=True)
        for folder, run in runs_in(root / PAPERS, REFERENCE)
        if (folder / MANIFEST).exists()
    ]


def runs_in(folder: Path, within: str = "") -> Iterator[tuple[Path, RunKey]]:
    """The folders of runs below a folder, each with the run that must be in it.

    Args:
        within: the folder of each system that has them, such as "reference".
    """
    for path in sorted(folder.glob("/".join(("*", *filter(None, [within]), "*/*/seed*")))):
        system, *_, setting, method, seed = path.relative_to(folder).parts
        if seed.removeprefix("seed").isdigit():
            yield path, RunKey.parse(f"{system}/{setting}/{method}/{seed}")


def status_of(manifest: Mapping[str, Any]) -> tuple[RunStatus, str]:
    """The state of the result that a manifest describes, and why it is not finished, in words."""
    if manifest.get("status") == "diverged":
        return "diverged", f"diverged at round {manifest.get('diverged_at')}"
    wanted, done = manifest.get("run", {}).get("rounds"), manifest.get("rounds_done")
    as_asked = manifest.get("stopped")
    if isinstance(wanted, int) and isinstance(done, int) and done < wanted and not as_asked:
        return "stopped early", f"stopped after round {done} of {wanted}"
    return "finished", ""


def partial_of(folder: Path) -> Path:
    """The folder of a run's checkpoints while it is unfinished."""
    return folder.with_name(f"{folder.name}.partial")


def _missing(root: Path, run: RunKey, reference: bool) -> tuple[RunStatus, str]:
    """The state of a run without a result, by its checkpoints and its log."""
    if reference:
        return "not run", "not run"
    log = root / LOGS / f"{run.name}.log"
    partial = partial_of(root / run.folder)
    begun = partial.exists()
    if begun and is_locked(partial):
        return "under way", "under way"
    if not begun and not log.exists():
        return "not run", "not run"
    if not log.is_file():
        return "failed", "stopped before its last round"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if not begun and _was_done(lines):  # and its result has been deleted
        return "not run", "not run"
    return "failed", f"failed: {redact(_reason(lines), root)}"


def _was_done(lines: Sequence[str]) -> bool:
    """Return True if the last call in a run's log, which may have several, ended well."""
    ends = [at for at, line in enumerate(lines) if f": {DONE}" in line]
    later = lines[ends[-1] + 1 :] if ends else lines
    return bool(ends) and not any(line.startswith(SAID) or ROUND in line for line in later)


def _reason(lines: Sequence[str]) -> str:
    """The reason why a run failed: the last error in its log."""
    said = next((line for line in reversed(lines) if line.startswith(SAID)), None)
    if said is None:
        return ENDED.format("without a word")
    own, signal = map(said.removeprefix, SAID)
    return own if own != said else ENDED.format(f"by a signal, {signal!r}")


def made_of(records: Iterable[RunRecord]) -> dict[str, str]:
    """The key ``of`` of a file made from these runs: name -> the seal of the manifest."""
    return {record.run.name: str(record.manifest.get("seal")) for record in records}


def seal_of_run(root: Path, run: RunKey, runs: Path = Path("results/runs")) -> str:
    """The seal in the manifest of this machine's result or else the reference result, or "".

    Args:
        runs: the folder of this machine's results, relative to the root.
    """
    return _seals.of((root, run, runs), lambda: _seal_of_run(root, run, runs))


def _seal_of_run(root: Path, run: RunKey, runs: Path) -> str:
    for folder in (runs / run.name, reference_folder(run)):
        try:
            return str(manifest_in(root / folder).get("seal"))
        except FileNotFoundError:
            continue
        except ValueError:
            return "damaged"
    try:
        landed = landed_run(root, run)
    except UserError:
        return "damaged"
    return str(landed.manifest.get("seal")) if landed else ""


def seals_of(root: Path, runs: Iterable[RunKey]) -> dict[str, str]:
    """The key ``of`` of a file made from those of these runs that have a result."""
    seals = {run.name: seal_of_run(root, run) for run in runs}
    return {name: seal for name, seal in seals.items() if seal}


def finished_run(root: Path, run: RunKey) -> RunRecord:
    """A run of this machine.

    Raises:
        UserError: if it is not finished, with the command that makes it.
    """
    record = read_run(root, run)
    if record.state != "finished":
        raise not_finished(run, record.why)
    return record


def not_finished(run: RunKey, why: str) -> UserError:
    """The error for a run whose finished result is needed, with the command that makes it."""
    return refusal(run.folder, f"{why}: expected a finished run: {run.command}", code="missing")
