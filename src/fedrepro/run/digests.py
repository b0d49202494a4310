"""Digests of printed numbers and landed results, in ``landed.json`` of each paper's folder.

It has a digest of every row of the paper's CSV files, every landed run and every replay, so that
``fedrepro verify`` names one that was changed, dropped or added. Checksums inside of files cannot
tell that a row or a whole file is gone. The tools that land results record them before they write
them: if they are killed in between, the result is missing by this record, and is landed again.
"""

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrepro.config.targets import RunKey
from fedrepro.run.landed_runs import COMPACT, ORDER, PAPERS, RUNS, LandedRun, runs_landed_in
from fedrepro.run.replayed import NAME as REPLAYED
from fedrepro.run.results import MANIFEST, REFERENCE, TIMING
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError, damaged
from fedrepro.support.files import visible
from fedrepro.support.packaged import is_distribution
from fedrepro.support.typed_yaml import read_yaml

FILE = "landed.json"
DIGITS = 12
VALUES = ("mean", "std", "doubt", "text", "state", "note")  # the other columns name a row
MEMBER = "method"  # with this column begins a row's name within its group
SEALED = (MANIFEST, TIMING, "quality.json")  # of a reference result
REPLAYS = f"{REFERENCE}/{REPLAYED}"
RESTORE = "restore it from the repository"

# File -> row -> digest. A row's name is a pair: its group, and its name within the group.
Row = tuple[str, str]
Rows = dict[str, dict[Row, str]]


@dataclass(frozen=True)
class Present:
    """The rows of a paper's folder.

    Attributes:
        lines: the lines of rows of CSV files.
        damaged: files that cannot be read, and why; "" if another check of `fedrepro verify` says.
    """

    rows: Rows = field(default_factory=dict)
    lines: dict[tuple[str, Row], int] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)


def papers_in(root: Path) -> dict[str, bool]:
    """The papers that have a folder or that the site lists, and whether it lists them."""
    listed = read_yaml(root / ORDER, ORDER) if (root / ORDER).exists() else []
    names = {str(name) for name in listed} if isinstance(listed, list) else set()
    there = {path.parent.name for path in (root / PAPERS).glob("*/paper.yaml")}
    return {name: name in names for name in sorted(names | there)}


def is_recorded(root: Path, system: str) -> bool:
    """True if a paper has a record; one's own need not."""
    return _file(root, system).exists()


def faults(root: Path, system: str) -> Iterator[str]:
    """The rows of a paper that are not as recorded: one line each, which starts with the file."""
    folder = PAPERS / system
    if not (root / folder).is_dir():
        yield f"{folder}: missing, though {ORDER} lists it"
        return
    present = read(root, system)
    yield from (f"{folder / file}: damaged: {why}" for file, why in present.damaged.items() if why)
    try:
        recorded = _recorded(root, system)
    except UserError as error:
        yield str(error)
        return
    left_out = is_distribution(root) and not (root / folder / REFERENCE).exists()
    for file in sorted({*recorded, *present.rows}):
        if file in present.damaged or (left_out and file.startswith(f"{REFERENCE}/")):
            continue
        then, now = recorded.get(file, {}), present.rows.get(file, {})
        if then and not (root / folder / file).exists():
            rows = "; ".join(map(_in_words, then)) if len(then) <= 3 else f"{len(then):,} rows"
            yield f"{folder / file}: missing: {rows}"
            continue
        for row in {**then, **now}:
            if then.get(row) != now.get(row):
                what = "changed" if row in then and row in now else "added"
                line = present.lines.get((file, row))
                place = f"{file}: line {line}" if line else file
                yield f"{folder / place}: {_in_words(row)}: {what if row in now else 'dropped'}"


def read(root: Path, system: str) -> Present:
    """The rows that a paper's folder has now."""
    present, folder = Present(), root / PAPERS / system
    for path in visible(folder, "*.csv"):
        try:
            for line, row, digest in _rows_of(path):
                present.rows.setdefault(path.name, {})[row] = digest
                present.lines[path.name, row] = line
        except (OSError, ValueError, csv.Error) as error:
            present.damaged[path.name] = str(error)
    for path in sorted(folder.glob(f"{COMPACT}/*/{RUNS}")):
        file = path.relative_to(folder).as_posix()
        try:
            runs = runs_landed_in(root, f"{system}/{path.parent.name}")
        except UserError:
            present.damaged[file] = ""
        else:
            present.rows[file] = {_row_of(run): digest_of(each) for run, each in runs.items()}
    for path in sorted(folder.glob(f"{REFERENCE}/*/*/seed*/{MANIFEST}")):
        _, setting, method, seed, _ = path.relative_to(folder).parts
        run = (method, seed.replace("seed", "seed "))
        rows = present.rows.setdefault(f"{REFERENCE}/{setting}", {})
        rows[run] = digest_of_files({file.name: file for file in path.parent.iterdir()})
    try:
        replays = checksummed_json.parsed(folder / REPLAYS)
    except FileNotFoundError:
        pass
    except ValueError as error:
        present.damaged[REPLAYS] = str(error)
    else:
        rows = present.rows[REPLAYS] = {}
        for name, replay in replays.items():
            of, _, seed = name.rpartition("/")
            rows[of, seed.replace("seed", "seed ")] = _digest(replay)
    return present


def digest_of(run: LandedRun) -> str:
    """The digest of a landed run of scale compact."""
    return run.seal[:DIGITS]


def digest_of_files(files: Mapping[str, Path]) -> str:
    """The digest of a reference result, by the seals of its files, which are given by name."""
    return _digest([_seal(files[name]) if name in files else "" for name in SEALED])


def record_runs(setting: str, digests: dict[RunKey, str]) -> None:
    """Record runs of scale compact of one setting, which are about to be landed."""
    system, _, name = setting.partition("/")
    rows = {_row_of(run): digest for run, digest in digests.items()}
    _add(system, {f"{COMPACT}/{name}/{RUNS}": rows})


def record_reference(run: RunKey, digest: str) -> None:
    """Record a reference result that is about to be landed."""
    system, _, name = run.setting.partition("/")
    _add(system, {f"{REFERENCE}/{name}": {_row_of(run): digest}})


def record_replay(run: RunKey, replay: Any) -> None:
    """Record what replaying a reference result gave, as its file will have it."""
    system, _, name = run.setting.partition("/")
    row = (f"{name}/{run.method}", f"seed {run.seed}")
    _add(system, {REPLAYS: {row: _digest(replay)}})


def record_all(root: Path, system: str) -> None:
    """Record a paper's folder as it is.

    Raises:
        UserError: if one of its files is damaged.
    """
    _write(root, system, _intact(root, system))


def forget_references(root: Path, system: str) -> None:
    """Drop the reference results from a record, for a copy of the paper's folder without them."""
    if is_recorded(root, system):
        rows = _recorded(root, system)
        kept = {file: rows[file] for file in rows if not file.startswith(f"{REFERENCE}/")}
        _write(root, system, kept)


def _add(system: str, rows: Rows) -> None:
    """Add rows to the record, which begins with what there is; other rows stay as recorded."""
    known = _recorded if is_recorded(Path(), system) else _intact
    recorded = known(Path(), system)
    for file, more in rows.items():
        recorded[file] = recorded.get(file, {}) | more
    _write(Path(), system, recorded)


def _intact(root: Path, system: str) -> Rows:
    present = read(root, system)
    for file, why in present.damaged.items():
        why = why or "see `fedrepro verify reports`"
        raise damaged(PAPERS / system / file, why)
    return present.rows


def _file(root: Path, system: str) -> Path:
    return root / PAPERS / system / FILE


def _what(system: str) -> str:
    return f"papers/{system}/landed"


def _recorded(root: Path, system: str) -> Rows:
    file, shown = _file(root, system), PAPERS / system / FILE
    content = checksummed_json.read(file, _what(system), shown, RESTORE)
    rows: Rows = {}
    for key, digests in content.items():
        if isinstance(digests, dict):
            name, _, group = key.partition(": ")
            rows.setdefault(name, {}).update({(group, row): digests[row] for row in digests})
    return rows


def _write(root: Path, system: str, rows: Rows) -> None:
    content: dict[str, dict[str, str]] = {}
    for file in sorted(rows):
        for (group, name), digest in rows[file].items():
            content.setdefault(f"{file}: {group}", {})[name] = digest
    checksummed_json.write(_file(root, system), content, _what(system))


def _rows_of(path: Path) -> Iterator[tuple[int, Row, str]]:
    """Line, name and digest of each row of a CSV file; a row named as one before is numbered."""
    times: dict[Row, int] = {}
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file, strict=True)
        header, line = next(reader, []), reader.line_num + 1
        names = [name for name in header if name not in VALUES]
        place = names.index(MEMBER) if MEMBER in names else 0
        for values in reader:
            if values:
                by_name = dict(zip(header, values, strict=False))
                parts = [by_name.get(name, "") for name in names]
                row = ", ".join(parts[:place]), ", ".join(parts[place:])
                times[row] = times.get(row, 0) + 1
                if times[row] > 1:
                    row = row[0], f"{row[1]} ({times[row]})"
                yield line, row, _digest([by_name, values[len(header) :]])
            line = reader.line_num + 1


def _row_of(run: RunKey) -> Row:
    return run.method, f"seed {run.seed}"


def _in_words(row: Iterable[str]) -> str:
    return ", ".join(filter(None, row))


def _seal(path: Path) -> str:
    """The seal that a file states; "" without one, which other checks name."""
    try:
        return str(checksummed_json.parsed(path).get("seal"))
    except (FileNotFoundError, ValueError):
        return ""


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:DIGITS]
