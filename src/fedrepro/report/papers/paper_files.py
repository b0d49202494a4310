"""The files of a paper's folder as rows and entries, without what they mean."""

import csv
from pathlib import Path
from typing import Any, TypeVar

from fedrepro.support.errors import bad_value, missing_value, refusal, unreadable
from fedrepro.support.old_names import with_new_keys
from fedrepro.support.typed_yaml import Typed, read_yaml, validate

Entry = TypeVar("Entry", bound=Typed)

KEYS = ("dataset", "setting", "method", "metric")
COLUMNS = {
    "cells.csv": ("item", "table", *KEYS, "mean", "std", "doubt"),
    "notes.csv": ("item", "note"),
    "words.csv": ("item", "table", "setting", "method", "metric", "text"),
    "figures.csv": ("figure", "item", "state", "note"),
}
# Without it, a row says nothing, as a line that git left between two versions.
NEEDED = {"cells.csv": "metric", "notes.csv": "note", "words.csv": "text", "figures.csv": "state"}


def rows_of(root: Path, path: Path, needed: bool = True) -> list[dict[str, str]]:
    """The rows of a CSV file by column; none if it is not ``needed`` and not there.

    Raises:
        UserError: if it can't be read, has other columns, or has a row without its main value.
    """
    rows: list[tuple[int, dict[str, str]]] = []
    head: list[str] = []
    try:
        with (root / path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restval="", strict=True)
            head = list(reader.fieldnames or [])
            rows.extend((reader.line_num, row) for row in reader)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not needed:
            return []
        raise unreadable(path, error.strerror) from None
    except UnicodeDecodeError as error:
        raise unreadable(path, error) from None
    except csv.Error as error:  # of a quote that is not closed, which would hide what follows
        after = rows[-1][0] if rows else len(head[:1])
        raise unreadable(path, f"at or after line {after + 1}: {error}") from None
    columns = COLUMNS[path.name]
    if head != list(columns):
        raise bad_value(path, "line 1", ",".join(head), f"the columns {','.join(columns)}")
    if too_long := next((number for number, row in rows if None in row), None):
        line, wanted = f"line {too_long}", f"{len(columns)} values"
        why = f"{line}: too many values: expected {wanted}; one with a comma is in double quotes"
        raise refusal(path, why, line)
    filled = [(line, row) for line, row in rows if any(row.values())]  # spreadsheets leave others
    for number, row in filled:
        if not row[NEEDED[path.name]]:
            first = next(filter(None, row.values()))
            wanted = f"one in each row, and this has {first!r}"
            raise missing_value(path, f"line {number}: {NEEDED[path.name]}", wanted)
    return [row for _, row in filled]


def listed_in(root: Path, path: Path, needed: bool = False) -> list[Any]:
    """The entries of a YAML file that is a list; none if it is not ``needed`` and not there.

    Raises:
        UserError: if it can't be read, or is something else.
    """
    if not needed and not (root / path).exists():
        return []
    content = read_yaml(root / path, path) or []  # a file of comments
    if not isinstance(content, list):
        raise refusal(path, "expected a list, whose entries begin with `- `", value=content)
    return content


def entries_of(
    model: type[Entry], root: Path, path: Path, system: str, old_keys: str = ""
) -> list[Entry]:
    """The entries of an optional file of a paper, which may have old keys of a kind of file."""
    content = listed_in(root, path)
    if old_keys:
        content = with_new_keys(old_keys, content, path)
    return [entry_of(model, path, system, entry) for entry in content]


def entry_of(model: type[Entry], path: Path, system: str, given: object) -> Entry:
    """Validate a file's entry, adding the system that its folder names."""
    return validate(model, {"system": system, **given} if isinstance(given, dict) else given, path)
