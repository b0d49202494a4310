"""The measurements of a run, round by round, and the Parquet files they are written to."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

WHOLE = {
    "round", "client", "train_samples", "test_samples", "validation_samples", "participations",
    "bytes_down", "bytes_up",
}  # fmt: skip

DECISION_COLUMNS = ("round", "client", "loss", "weight")
MIXTURE_COLUMNS = ("client", "weight", "test_samples", "loss", "accuracy")


class Rows:
    """A growing table of numbers; int columns are kept as floats, exact up to 2**53.

    A row must have all of ``columns``; what else it has is not kept.
    """

    def __init__(self, columns: tuple[str, ...], table: NDArray[np.float64] | None = None) -> None:
        self.columns = columns
        empty = np.empty((0, len(columns)))
        self._blocks = [empty if table is None else table]  # as they came, [rows, columns]

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def put(self, values: Mapping[str, ArrayLike]) -> None:
        """Add one row or more, as columns; a single number is the same in all of them."""
        columns = np.broadcast_arrays(*(np.atleast_1d(values[column]) for column in self.columns))
        self._blocks.append(np.stack(columns, axis=1).astype(np.float64, copy=False))

    @property
    def table(self) -> NDArray[np.float64]:
        """All rows, [rows, columns]."""
        if len(self._blocks) > 1:
            self._blocks = [np.concatenate(self._blocks)]
        return self._blocks[0]

    def as_tree(self) -> dict[str, torch.Tensor]:
        """The columns as float64 tensors, for a checkpoint."""
        table = torch.from_numpy(self.table)
        return {column: table[:, index].clone() for index, column in enumerate(self.columns)}

    @classmethod
    def from_tree(cls, columns: tuple[str, ...], saved: Mapping[str, torch.Tensor]) -> "Rows":
        return cls(columns, np.stack([saved[column].numpy() for column in columns], axis=1))

    def last(self) -> dict[str, float]:
        """The row added last; empty if there is none."""
        last = self._blocks[-1]
        return dict(zip(self.columns, last[-1].tolist(), strict=True)) if len(last) else {}

    def write(self, path: Path) -> None:
        """Write Parquet; equal rows give equal bytes."""
        # Imported here, as it is needed once per run and must not delay the first round.
        import pyarrow.parquet

        arrays = []
        for index, column in enumerate(self.columns):
            kind = np.int64 if column in WHOLE else np.float64
            values = np.ascontiguousarray(self.table[:, index], dtype=kind)
            # From bytes: for any other object pyarrow imports pandas, which takes a second.
            arrays.append(
                pyarrow.Array.from_buffers(
                    pyarrow.from_numpy_dtype(kind), len(values), [None, pyarrow.py_buffer(values)]
                )
            )
        pyarrow.parquet.write_table(
            pyarrow.Table.from_arrays(arrays, names=list(self.columns)), path
        )
