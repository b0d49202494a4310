"""Columns of Parquet files."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedrepro.support.errors import UserError, brief, reading, refusal, refuse_unknown
from fedrepro.support.files import plain

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
