"""Read arrays of npz archives, rejecting pickled ones, check inputs and standardise features."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.support.errors import UserError, bad_value, reading, refusal
from fedrepro.support.files import plain

DAMAGE = (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError)


def npz_arrays(path: Path, names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """The named arrays of an archive, or all of them.

    Raises:
        UserError: if the file or one of them is missing, damaged or pickled.
    """
    with reading(path, *DAMAGE, kind="an npz archive"), plain(path).open("rb") as file:
        arrays = np.load(file, allow_pickle=False)
        if isinstance(arrays, np.ndarray):
            raise refusal(
                path, "one array without a name: expected an npz archive", code="unreadable"
            )
        return {name: arrays[name] for name in (arrays.files if names is None else names)}


def unlike(path: Path, name: str, array: NDArray[Any], wanted: str) -> UserError:
    """The error for an array of another type or shape."""
    return refusal(path, f"{name}: {array.dtype} {array.shape}: expected {wanted}", name)


WHOLE = (np.int32, np.int64)  # what whole numbers are stored as, the first that holds them
SEEN = 2**21  # numbers that are looked at for what float32 loses


def as_float32(
    where: object,
    key: str,
    x: NDArray[Any],
    names: Sequence[str] = (),
    standardised: bool = False,
) -> NDArray[np.float32]:
    """Finite numbers [n, ...] as float32.

    Float32 has seven digits: numbers that lie far from 0 beside their differences, as times in
    seconds since 1970 do, become equal.

    Args:
        names: of the columns of x [n, columns].
        standardised: whether the columns are, so that one number may have moved all others.

    Raises:
        UserError: if a column loses a tenth of its different numbers and a hundredth of its spread.
    """
    stored = np.asarray(x.astype(np.float32))
    if x.dtype in (np.float32, np.float16) or x.dtype.kind == "b" or len(x) < 2:
        return stored
    flat, kept = x.reshape(len(x), -1), stored.reshape(len(x), -1)
    some = slice(None, None, 1 + flat.size // SEEN)
    exact = flat[some]
    if exact.dtype.kind == "f":  # without the last bits, in which sums that should be equal differ
        mantissa, exponent = np.frexp(exact)
        exact = np.ldexp(np.round(mantissa * 2**44), exponent)
    for column in np.flatnonzero(_different(kept[some]) < 0.9 * _different(exact)).tolist():
        numbers = np.unique(flat[some, column])
        low, middle, high = (float(np.quantile(numbers, q)) for q in (0.25, 0.5, 0.75))
        if np.spacing(np.float32(max(abs(low), abs(high)))) <= 0.01 * (high - low):
            continue
        place, left = names[column] if names else key, len(np.unique(kept[some, column]))
        repair = f"subtract one amid them, such as {middle:.15g}"
        if standardised:
            repair = "one is far from all others: list it in `missing` if it stands for none"
        digits = "float32, which has seven digits"
        why = f"{place}: {len(numbers):,} different numbers become {left:,} in {digits}: {repair}"
        raise refusal(where, why, place)
    return stored


def _different(x: NDArray[Any]) -> NDArray[np.int64]:
    """How many different numbers there are in each column of x [n, columns]."""
    return np.asarray(1 + np.count_nonzero(np.diff(np.sort(x, axis=0), axis=0), axis=0))


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
        wrong = np.argwhere(~np.isfinite(x.astype(np.float32)))
    if len(wrong):
        row, value = wrong[0][0], float(x[tuple(wrong[0])])
        raise bad_value(where, f"{key}, row {row}", value, "a finite number of float32")
    return as_float32(where, key, x)


def as_type(where: object, key: str, x: NDArray[Any], kind: type[np.generic]) -> NDArray[Any]:
    """Numbers [n, ...] as another type.

    Raises:
        UserError: as :func:`as_float32`.
    """
    return as_float32(where, key, x) if kind is np.float32 else x.astype(kind)


def kind_of(x: NDArray[Any]) -> str:
    """Bytes, whole numbers or fractions: clients may have them in different types."""
    return "bytes" if x.dtype == np.uint8 else "fractions" if x.dtype.kind == "f" else "whole"


def stored_as(where: object, key: str, parts: Sequence[NDArray[Any]]) -> type[np.generic]:
    """The type that all inputs are stored as.

    Raises:
        UserError: for bytes of 0 and 1, as from one-hot features: bytes are divided by 255. And for
            whole numbers that int64 cannot hold: float32 would round them, perhaps ids.
    """
    if kind_of(parts[0]) == "bytes":
        if max(int(x.max(initial=0)) for x in parts) == 1:
            wanted = "floats or truth values: bytes are divided by 255, as in images"
            raise bad_value(where, key, "bytes of 0 and 1", wanted)
        return np.uint8
    if kind_of(parts[0]) == "fractions":
        return np.float32
    low = min(int(x.min(initial=0)) for x in parts)
    high = max(int(x.max(initial=0)) for x in parts)
    for kind in WHOLE:
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return kind
    raise bad_value(where, key, high, "whole numbers below 2^63, or floats if they are no ids")


def numbers_of(where: object, key: str, y: NDArray[Any], task: str) -> NDArray[np.float32]:
    """Targets [n, ...] as finite float32; with the task multi_label [n, k] of 0 and 1.

    Raises:
        UserError: for others.
    """
    y = as_float32(where, key, inputs_of(where, key, y))
    if task == "multi_label" and (y.ndim != 2 or not np.isin(y, (0, 1)).all()):
        wrong = [*y.shape] if y.ndim != 2 else float(y[~np.isin(y, (0, 1))][0])
        raise bad_value(where, key, wrong, "[n, labels] of 0 and 1, as the task is multi_label")
    return y


def targets_of(x: NDArray[Any], y: NDArray[Any]) -> int:
    """How many numbers y [n], [n, k] or [n, k, ...] has of a sample x, or at each place of it."""
    return int(y.shape[1]) if y.ndim == 2 or 2 < y.ndim == x.ndim else 1


def fitted(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The means of features [n, k] that are finite, and divisors with means for the others."""
    known = np.isfinite(x)
    mean = np.where(known, x, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return mean, divisor_of(np.where(known, x, mean))


def divisor_of(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The standard deviation of each column, 1 for a constant one.

    A constant column becomes 0, but for the rounding of its sums: its deviation may be 1e-17.
    """
    deviation = rows.std(axis=0)
    deviation[deviation < 1e-12 * (1 + np.abs(rows.mean(axis=0)))] = 1
    return np.asarray(deviation)
