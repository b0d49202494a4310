"""Landed results of scale compact: Parquet files that hold all runs of a setting.

``reports/papers/<system>/compact/<setting>/`` has ``runs.parquet`` with a row for each run: method,
seed, its sealed manifest, timing and quality as JSON, and a checksum. Beside it, ``rounds.parquet``
has all evaluated rounds of all runs, and ``clients.parquet``, ``decisions.parquet`` and
``mixtures.parquet``, where runs have them, the rows of the last evaluated round. pandas reads them.
Models are not kept.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fedrepro.config.targets import RunKey
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError, brief, damaged
from fedrepro.support.files import parse_json, plain, write_atomically
from fedrepro.support.grouping import grouped

if TYPE_CHECKING:  # most commands read no table
    import pyarrow

PAPERS = Path("reports/papers")
ORDER = PAPERS / "systems.yaml"  # the papers that the site lists
COMPACT = "compact"
RUNS = "runs.parquet"
ROUNDS = "rounds.parquet"
LAST_ROUND = ("clients.parquet", "decisions.parquet", "mixtures.parquet")
BY_BATCH = "_batch"
TABLES = (ROUNDS, *LAST_ROUND)
AGAIN = (
    "; restore it: `git restore` in a clone; elsewhere delete it: `fedrepro init --with` copies it"
)

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class LandedRun:
    """A run's landed result.

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


def landed_run(root: Path, run: RunKey) -> LandedRun | None:
    """A run's landed result, checked; None if there is none.

    Raises:
        UserError: if the files are damaged.
    """
    return runs_landed_in(root, run.setting).get(run)


def settings_with_results(root: Path) -> list[str]:
    """The settings that have landed results, by name."""
    paths = sorted((root / PAPERS).glob(f"*/{COMPACT}/*/{RUNS}"))
    return [f"{path.parts[-4]}/{path.parts[-2]}" for path in paths]


def runs_landed_in(root: Path, setting: str) -> Mapping[RunKey, LandedRun]:
    """All landed results of a setting.

    Raises:
        UserError: if the files are damaged.
    """
    folder = root / folder_of(setting)
    if not (folder / RUNS).exists():
        return {}
    return _read(folder, setting, _stamp(folder))


def reduced(name: str, columns: Columns) -> Columns:
    """The landed part of a run's table: all rounds, or the rows of the last; no empty columns.

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


def write(root: Path, setting: str, runs: Mapping[RunKey, LandedRun]) -> Path:
    """Replace a setting's landed results by these runs.

    Killed at any point, this leaves the runs that stay as they were, and no damaged one.
    """
    folder = root / folder_of(setting)
    folder.mkdir(parents=True, exist_ok=True)
    before: Mapping[RunKey, LandedRun] = {}
    with suppress(UserError):  # damaged files have no runs to keep
        before = runs_landed_in(root, setting)
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


def _write_runs(folder: Path, runs: Mapping[RunKey, LandedRun]) -> None:
    about: Columns = {"method": [run.method for run in runs], "seed": [run.seed for run in runs]}
    for key in ("manifest", "timing", "quality"):
        about[key] = [json.dumps(getattr(run, key), sort_keys=True) for run in runs.values()]
    about["seal"] = [run.seal for run in runs.values()]
    _write(folder / RUNS, about)


def _joined(rows: Sequence[tuple[RunKey, Columns]]) -> Columns:
    """The rows of several runs below each other, with method and seed first."""
    names = dict.fromkeys(name for _, columns in rows for name in columns)
    joined: Columns = {name: [] for name in ("method", "seed", *names)}
    for run, columns in rows:
        length = len(next(iter(columns.values())))
        joined["method"] += [run.method] * length
        joined["seed"] += [run.seed] * length
        for name in names:
            joined[name] += columns.get(name, [None] * length)
    return joined


def _write(path: Path, columns: Columns) -> None:
    import pyarrow.parquet

    with write_atomically(path) as temporary:
        pyarrow.parquet.write_table(
            pyarrow.table(columns), temporary, compression="zstd", compression_level=19
        )


def _stamp(folder: Path) -> tuple[tuple[int, ...], ...]:
    """A setting's files as they are now: any write changes it."""
    stamps = []
    for name in (RUNS, *TABLES):
        if (path := folder / name).exists():
            about = path.stat()
            stamps.append((about.st_dev, about.st_ino, about.st_ctime_ns, about.st_size))
    return tuple(stamps)


@cache  # a table asks for each of its runs
def _read(folder: Path, setting: str, _when: object) -> Mapping[RunKey, LandedRun]:
    shown = folder_of(setting)
    runs: dict[RunKey, LandedRun] = {}

    def columns(name: str) -> Columns:
        return read_columns(folder / name, shown / name, lambda column: column.to_pylist(), AGAIN)

    try:
        about = columns(RUNS)
        tables = {name: _split(columns(name)) for name in TABLES if (folder / name).exists()}
        for row in zip(*(about[key] for key in _KEYS), strict=True):
            method, seed, manifest, timing, quality, seal = row
            run = LandedRun(
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
            described, key = run.manifest["run"], RunKey(setting, method, seed)
            if RunKey(described["setting"], described["method"], described["seed"]) != key:
                raise ValueError(f"{method} seed {seed}: it is another run")
            if key in runs:
                raise ValueError(f"{method} seed {seed}: it is there twice")
            runs[key] = run
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(shown, f"{brief(str(error))}{AGAIN}") from None
    return MappingProxyType(runs)


_KEYS = ("method", "seed", "manifest", "timing", "quality", "seal")


def read_columns(
    path: Path,
    shown: Path,
    values_of: "Callable[[pyarrow.ChunkedArray], list[Any]]",
    again: str = "",
) -> Columns:
    """The columns of a Parquet file, by name.

    Args:
        shown: its path in messages.
        again: what to do about a damaged file, in words.

    Raises:
        UserError: if it is damaged.
    """
    import pyarrow.parquet  # a tenth of a second, in which `snakemake -n` needs no table

    try:
        # `read_table` would import pandas, which takes half a second, and other threads cost more
        # than they save.
        table = pyarrow.parquet.ParquetFile(plain(path)).read(use_threads=False)
        columns = zip(table.column_names, table.columns, strict=True)
        return {name: values_of(column) for name, column in columns}
    except Exception as error:  # pyarrow raises many exception types
        first = brief(str(error).partition("\n")[0]) or type(error).__name__
        raise damaged(shown, f"{first}{again}") from None


def _split(columns: Columns) -> dict[tuple[str, int], Columns]:
    """The rows of each run, without the columns that it does not have."""
    keys = [*zip(columns["method"], columns["seed"], strict=True)]
    tables = {}
    for key, chosen in grouped(range(len(keys)), keys.__getitem__).items():
        rows = {
            name: [values[place] for place in chosen]
            for name, values in columns.items()
            if name not in ("method", "seed")
        }
        tables[key] = {name: values for name, values in rows.items() if _any_value(values)}
    return tables


def _any_value(values: Iterable[Any]) -> bool:
    """True if a column has a value."""
    return any(each is not None for each in values)
