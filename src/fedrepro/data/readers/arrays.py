"""Read arrays of npz archives, rejecting pickled ones, and check inputs."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.support.errors import UserError, bad_value, refusal, unreadable
from fedrepro.support.files import plain


def read_npz(path: Path, names: Sequence[str]) -> list[NDArray[Any]]:
    """The named arrays of an archive.

    Raises:
        UserError: if the file or one of them is missing, damaged or pickled.
    """
    return [*npz_arrays(path, names).values()]


def npz_arrays(path: Path, names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """The named arrays of an archive, or all of them.

    Raises:
        UserError: if the file or one of them is missing, damaged or pickled.
    """
    try:
        with plain(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in (arrays.files if names is None else names)}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        reason = str(error).strip("\"'").partition("\n")[0]
        raise unreadable(path, reason, "an npz archive") from None
    except TypeError:  # the file of a single array
        why = "one array without a name: expected an npz archive"
        raise refusal(path, why, code="unreadable") from None


def unlike(path: Path, name: str, array: NDArray[Any], wanted: str) -> UserError:
    """The error for an array of another type or shape."""
    return refusal(path, f"{name}: {array.dtype} {array.shape}: expected {wanted}", name)


def inputs_of(where: object, key: str, x: NDArray[Any]) -> NDArray[Any]:
    """Inputs [n, ...] as whole numbers or finite float32.

    Raises:
        UserError: for what is no number, or none of float32.
    """
    if x.dtype.kind not in "fiub":
        raise bad_value(where, key, x.dtype.name, "numbers")
    if x.dtype.kind != "f":
        return x
    with np.errstate(over="ignore"):  # beyond float32 is infinite
        stored = x.astype(np.float32)
    wrong = np.argwhere(~np.isfinite(stored))
    if len(wrong):
        row, value = wrong[0][0], float(x[tuple(wrong[0])])
        raise bad_value(where, f"{key}, row {row}", value, "a finite number of float32")
    return stored


def kind_of(x: NDArray[Any]) -> str:
    """Bytes, whole numbers or fractions: clients may have them in different types."""
    return "bytes" if x.dtype == np.uint8 else "fractions" if x.dtype.kind == "f" else "whole"


def stored_as(where: object, key: str, parts: Sequence[NDArray[Any]]) -> type[np.generic]:
    """The type that all inputs are stored as; whole numbers beyond int32 are features.

    Raises:
        UserError: for bytes of 0 and 1, as from one-hot features: bytes are divided by 255.
    """
    if kind_of(parts[0]) == "bytes":
        if max(int(x.max(initial=0)) for x in parts) == 1:
            wanted = "floats or truth values: bytes are divided by 255, as in images"
            raise bad_value(where, key, "bytes of 0 and 1", wanted)
        return np.uint8
    span = np.iinfo(np.int32)
    whole = kind_of(parts[0]) == "whole"
    small = all(not x.size or (x.min() >= span.min and x.max() <= span.max) for x in parts)
    return np.int32 if whole and small else np.float32


def numbers_of(where: object, key: str, y: NDArray[Any], task: str) -> NDArray[np.float32]:
    """Targets [n, ...] as finite float32; with the task multi_label [n, k] of 0 and 1.

    Raises:
        UserError: for others.
    """
    y = inputs_of(where, key, y).astype(np.float32)
    if task == "multi_label" and (y.ndim != 2 or not np.isin(y, (0, 1)).all()):
        wrong = [*y.shape] if y.ndim != 2 else float(y[~np.isin(y, (0, 1))][0])
        raise bad_value(where, key, wrong, "[n, labels] of 0 and 1, as the task is multi_label")
    return y


def targets_of(x: NDArray[Any], y: NDArray[Any]) -> int:
    """How many numbers y [n], [n, k] or [n, k, ...] has of a sample x, or at each place of it."""
    return int(y.shape[1]) if y.ndim == 2 or 2 < y.ndim == x.ndim else 1
