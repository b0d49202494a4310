"""Read files of tables: CSV as data frames, and columns of Parquet as arrays."""

import bz2
import csv
import gzip
import lzma
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedrepro.support.errors import UserError, brief, reading, refusal, refuse_unknown, unreadable
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


PARQUET = (".parquet", ".pq")


def parquet_table(path: Path, names: Collection[str] | None = None) -> pa.Table:
    """Some columns of a file, or all.

    Raises:
        UserError: if it can't be read or lacks a column.
    """
    faults = pa.ArrowException, OSError
    with reading(path, *faults, kind="parquet"), pq.ParquetFile(plain(path)) as file:
        refuse_unknown(path, "column", names or (), file.schema_arrow.names)
        return file.read(columns=None if names is None else [*names])


def parquet_arrays(path: Path, names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Some columns of a Parquet file as arrays, or all; lists of equal lengths are further axes.

    Raises:
        UserError: if it can't be read or lacks a column, or a column has an empty cell or lists of
            several lengths.
    """
    table = parquet_table(path, names)
    return {name: _column(table[name], path, name) for name in table.schema.names}


def _column(cells: Any, path: Path, name: str) -> NDArray[Any]:
    def refused(why: str) -> UserError:
        return refusal(path, f"{name}: {why}", name)

    shape = [len(cells)]
    if isinstance(cells.type, pa.FixedShapeTensorType) and not cells.null_count:
        tensors: NDArray[Any] = cells.combine_chunks().to_numpy_ndarray()
        return tensors
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    while not cells.null_count and hasattr(cells.type, "value_type"):
        lengths = pc.unique(pc.list_value_length(cells)).to_pylist()
        if len(lengths) > 1:
            raise refused(f"lists of {lengths[0]} and {lengths[1]}: expected one length")
        shape += lengths
        cells = pc.list_flatten(cells)
    if cells.null_count:
        raise refused("expected a value in every place")
    values: NDArray[Any] = cells.to_numpy()
    if values.dtype.kind == "O" and not (len(values) and isinstance(values[0], str)):
        raise refused(f"a column of {cells.type}: expected numbers, words or lists")
    if 0 in shape:
        raise refused(f"{brief(shape)}: expected at least one value")
    return values.reshape(shape)
