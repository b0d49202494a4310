"""Landed results of scale compact: Parquet files that hold all runs of a setting.

``reports/papers/<system>/compact/<setting>/`` has ``runs.parquet`` with a row for each run: method,
seed, its sealed manifest, timing and quality as JSON, and a checksum. Beside it, ``rounds.parquet``
has all evaluated rounds of all runs, and ``clients.parquet``, ``decisions.parquet`` and
``mixtures.parquet``, where runs have them, the rows of the last evaluated round. pandas reads them.
Models are not kept.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedrepro.config.targets import RunKey
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError, brief
from fedrepro.support.files import parse_json, write_atomically

PAPERS = Path("reports/papers")
COMPACT = "compact"
RUNS = "runs.parquet"
ROUNDS = "rounds.parquet"
LAST_ROUND = ("clients.parquet", "decisions.parquet", "mixtures.parquet")
BY_BATCH = "_batch"
TABLES = (ROUNDS, *LAST_ROUND)
AGAIN = (
    "restore it: `git restore` in a clone; elsewhere delete it: `fedrepro init --with` copies it"
)

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class ArchivedRun:
    """What is kept of a run.

    Attributes:
        tables: by name, column -> values; a missing number is None.
        quality: the evaluation of its synthetic set, as the file has it; empty if there is none.
    """

    manifest: Mapping[str, Any]
    timing: Mapping[str, Any]
    quality: Mapping[str, Any]
    tables: Mapping[str, Columns]

    @property
    def seal(self) -> str:
        """The checksum of all of it."""
        content = [self.manifest, self.timing, self.quality, self.tables]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@cache  # a site asks for the same few paths 50,000 times
def folder_of(setting: str) -> Path:
    """The folder of a setting's landed results."""
    system, _, name = setting.partition("/")
    return PAPERS / system / COMPACT / name


def archived_run(root: Path, run: RunKey) -> ArchivedRun | None:
    """A run's landed result, checked; None if there is none.

    Raises:
        UserError: if the files are damaged.
    """
    file = root / folder_of(run.setting) / RUNS
    if not file.exists():
        return None
    return _read(file.parent, run.setting, _stamp(file.parent)).get((run.method, run.seed))


def settings_with_results(root: Path) -> list[str]:
    """The settings that have landed results, by name."""
    found = sorted((root / PAPERS).glob(f"*/{COMPACT}/*/{RUNS}"))
    return [f"{path.parts[-4]}/{path.parts[-2]}" for path in found]


def archived_runs(root: Path, setting: str) -> dict[RunKey, ArchivedRun]:
    """All landed results of a setting.

    Raises:
        UserError: if the files are damaged.
    """
    folder = root / folder_of(setting)
    if not (folder / RUNS).exists():
        return {}
    found = _read(folder, setting, _stamp(folder))
    return {RunKey(setting, *key): each for key, each in found.items()}


def reduced(name: str, columns: Columns) -> Columns:
    """What is kept of a run's table: all rounds, or the rows of the last one; no empty columns.

    Of clients, only scores are kept: without any, nothing. Scores as SuPerFed's code averages them
    over batches are left out, which makes a third of the size; no compact table shows them.
    """
    if name == "clients.parquet" and not any("test_" in column for column in columns):
        return {}
    if name in LAST_ROUND and "round" in columns:  # mixtures are scored once, after the last
        last = max(columns["round"])
        kept = [place for place, number in enumerate(columns["round"]) if number == last]
        columns = {key: [values[place] for place in kept] for key, values in columns.items()}
    return {
        key: values
        for key, values in columns.items()
        if _any_value(values) and not key.endswith(BY_BATCH)
    }


def write(root: Path, setting: str, runs: Mapping[RunKey, ArchivedRun]) -> Path:
    """Replace a setting's landed results by these runs.

    Killed at any point, this leaves the runs that stay as they were, and no damaged one.
    """
    folder = root / folder_of(setting)
    folder.mkdir(parents=True, exist_ok=True)
    before: Mapping[RunKey, ArchivedRun] = {}
    with suppress(UserError):  # damaged files have no runs to keep
        before = archived_runs(root, setting)
    staying = {run: each for run, each in before.items() if runs.get(run) == each}
    if staying != before:  # the others' rows are about to change
        _write_runs(folder, staying)
    ordered = sorted(runs.items(), key=lambda item: (item[0].method, item[0].seed))
    for name in TABLES:
        rows = [(run, each.tables[name]) for run, each in ordered if each.tables.get(name)]
        if rows:
            _write(folder / name, _joined(rows))
        else:
            (folder / name).unlink(missing_ok=True)
    _write_runs(folder, dict(ordered))  # last, as it has the checksums of the others' rows
    return folder


def _write_runs(folder: Path, runs: Mapping[RunKey, ArchivedRun]) -> None:
    about: Columns = {"method": [run.method for run in runs], "seed": [run.seed for run in runs]}
    for key in ("manifest", "timing", "quality"):
        about[key] = [json.dumps(getattr(each, key), sort_keys=True) for each in runs.values()]
    about["seal"] = [each.seal for each in runs.values()]
    _write(folder / RUNS, about)


def _joined(rows: Sequence[tuple[RunKey, Columns]]) -> Columns:
    """The rows of several runs below each other, with method and seed first."""
    names = dict.fromkeys(name for _, columns in rows for name in columns)
    found: Columns = {name: [] for name in ("method", "seed", *names)}
    for run, columns in rows:
        length = len(next(iter(columns.values())))
        found["method"] += [run.method] * length
        found["seed"] += [run.seed] * length
        for name in names:
            found[name] += columns.get(name, [None] * length)
    return found


def _write(path: Path, columns: Columns) -> None:
    import pyarrow
    import pyarrow.parquet

    with write_atomically(path) as temporary:
        pyarrow.parquet.write_table(
            pyarrow.table(columns), temporary, compression="zstd", compression_level=19
        )


def _stamp(folder: Path) -> tuple[tuple[int, ...], ...]:
    """What tells whether a setting's files are those that were read: a write changes its time."""
    found = []
    for name in (RUNS, *TABLES):
        if (path := folder / name).exists():
            about = path.stat()
            found.append((about.st_dev, about.st_ino, about.st_ctime_ns, about.st_size))
    return tuple(found)


@cache  # a table asks for each of its runs
def _read(folder: Path, setting: str, _when: object) -> dict[tuple[str, int], ArchivedRun]:
    shown = folder_of(setting)
    found: dict[tuple[str, int], ArchivedRun] = {}
    try:
        about = _columns(folder / RUNS, shown / RUNS)
        tables = {
            name: _split(_columns(folder / name, shown / name))
            for name in TABLES
            if (folder / name).exists()
        }
        for row in zip(*(about[key] for key in _KEYS), strict=True):
            method, seed, manifest, timing, quality, seal = row
            run = ArchivedRun(
                parse_json(manifest),
                parse_json(timing),
                parse_json(quality),
                {
                    name: rows[method, seed]
                    for name, rows in tables.items()
                    if (method, seed) in rows
                },
            )
            if run.seal != seal or checksummed_json.fault(run.manifest):
                raise ValueError(f"{method} seed {seed}: {checksummed_json.DIFFERS}")
            theirs = run.manifest["run"]
            if (theirs["setting"], theirs["method"], theirs["seed"]) != (setting, method, seed):
                raise ValueError(f"{method} seed {seed}: it is another run")
            if (method, seed) in found:
                raise ValueError(f"{method} seed {seed}: it is there twice")
            found[method, seed] = run
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{shown}: damaged: {brief(str(error))}; {AGAIN}") from None
    return found


_KEYS = ("method", "seed", "manifest", "timing", "quality", "seal")


def _columns(path: Path, shown: Path) -> Columns:
    import pyarrow.parquet

    try:
        found: Columns = pyarrow.parquet.ParquetFile(path).read().to_pydict()
        return found
    except Exception as error:  # pyarrow raises many exception types
        first = brief(str(error).partition("\n")[0])
        raise UserError(f"{shown}: damaged: {first}; {AGAIN}") from None


def _split(columns: Columns) -> dict[tuple[str, int], Columns]:
    """The rows of each run, without the columns that it does not have."""
    places: dict[tuple[str, int], list[int]] = {}
    for place, key in enumerate(zip(columns["method"], columns["seed"], strict=True)):
        places.setdefault(key, []).append(place)
    found = {}
    for key, chosen in places.items():
        rows = {
            name: [values[place] for place in chosen]
            for name, values in columns.items()
            if name not in ("method", "seed")
        }
        found[key] = {name: values for name, values in rows.items() if _any_value(values)}
    return found


def _any_value(values: Iterable[Any]) -> bool:
    """Whether a column has a value."""
    return any(each is not None for each in values)
