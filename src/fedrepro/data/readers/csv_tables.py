"""Tables as data frames."""

import bz2
import csv
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pandas as pd

from fedrepro.support.errors import refusal, refuse_unknown, unreadable
from fedrepro.support.files import plain

OPENERS: Mapping[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
LONGEST_CELL = 2**31 - 1  # characters; a text may be longer than Python's default


def rows_of(path: Path) -> Iterator[list[str]]:
    """The rows of a CSV file as they are written, the header first.

    Raises:
        OSError, EOFError, UnicodeDecodeError, csv.Error: if it cannot be read.
    """
    default = csv.field_size_limit(LONGEST_CELL)
    opened = OPENERS.get(path.suffix.lower(), open)
    try:
        with opened(plain(path), "rt", encoding="utf-8-sig", newline="") as file:
            yield from csv.reader(file)
    finally:
        csv.field_size_limit(default)


def read_table(
    path: Path, columns: Sequence[str] = (), where: object = None, **options: Any
) -> pd.DataFrame:
    """A CSV file.

    Args:
        columns: names that it must have.
        where: its place in errors; by default the path.
        options: of ``pandas.read_csv``.

    Raises:
        UserError: if it cannot be read, or lacks a column.
    """
    where = where or path
    try:
        table: pd.DataFrame = pd.read_csv(plain(path), **options)
    except UnicodeDecodeError:
        why = "expected text in UTF-8: save the table as CSV UTF-8"
        raise refusal(where, why, code="unreadable") from None
    except (OSError, ValueError, EOFError, BadZipFile, lzma.LZMAError, zlib.error) as error:
        reason = str(error).strip().partition("\n")[0]
        raise unreadable(where, reason, "CSV") from None
    refuse_unknown(where, "column", columns, table.columns, "in the file")
    return table
