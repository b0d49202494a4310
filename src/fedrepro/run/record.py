"""The measurements of a run, round by round, and the Parquet files they are written to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

WHOLE = {
    "round", "client", "train_samples", "test_samples", "validation_samples", "participations",
    "bytes_down", "bytes_up",
}  # fmt: skip

ROUND_COLUMNS = (
    "round", "learning_rate", "test_loss", "test_accuracy", "bytes_down", "bytes_up",
)  # fmt: skip
PERSONAL_ROUND_COLUMNS = (*ROUND_COLUMNS, "client_loss", "client_accuracy", "client_accuracy_std")
VALIDATION_COLUMNS = ("validation_loss", "validation_accuracy")  # of rounds, if clients have any
ENSEMBLE_COLUMNS = ("ensemble_loss", "ensemble_accuracy")  # of methods that distil
CLIENT_COLUMNS = ("round", "client", "train_samples", "update_norm")
DECISION_COLUMNS = ("round", "client", "loss", "weight")
PERSONAL_CLIENT_COLUMNS = (
    "round", "client", "train_samples", "test_samples", "participations", "loss", "accuracy",
)  # fmt: skip
MIXTURE_COLUMNS = ("client", "weight", "test_samples", "loss", "accuracy")


@dataclass
class Rows:
    """A growing table of numbers; int columns are kept as floats, exact up to 2**53."""

    columns: tuple[str, ...]
    rows: list[tuple[float, ...]] = field(default_factory=list)

    def add(self, values: Mapping[str, float]) -> None:
        self.rows.append(tuple(float(values[column]) for column in self.columns))

    def extend(self, many: Iterable[Mapping[str, float]]) -> None:
        for values in many:
            self.add(values)

    def as_tree(self) -> dict[str, torch.Tensor]:
        """The rows as float64 tensors, for a checkpoint."""
        table = torch.tensor(self.rows, dtype=torch.float64).reshape(-1, len(self.columns))
        return {column: table[:, index].clone() for index, column in enumerate(self.columns)}

    @classmethod
    def from_tree(cls, columns: tuple[str, ...], saved: Mapping[str, torch.Tensor]) -> "Rows":
        return cls(columns, list(zip(*(saved[column].tolist() for column in columns), strict=True)))

    def last(self, column: str) -> float:
        return self.rows[-1][self.columns.index(column)]

    def write(self, path: Path) -> None:
        """Write Parquet; equal rows give equal bytes."""
        # Imported here, as it is needed once per run and must not delay the first round.
        import pyarrow
        from pyarrow import parquet

        arrays = []
        for index, column in enumerate(self.columns):
            kind = np.int64 if column in WHOLE else np.float64
            values = np.array([row[index] for row in self.rows], dtype=kind)
            # From bytes: for any other object pyarrow imports pandas, which takes a second.
            arrays.append(
                pyarrow.Array.from_buffers(
                    pyarrow.from_numpy_dtype(kind), len(values), [None, pyarrow.py_buffer(values)]
                )
            )
        parquet.write_table(pyarrow.Table.from_arrays(arrays, names=list(self.columns)), path)
