"""Turn clients' arrays or torch data sets into a data set with one natural client for each."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.dataset import Dataset, Split
from fedrepro.support.errors import UserError, bad_value

NAME = "arrays"
WHERE = "fedrepro.train"


def dataset_of(clients: Sequence[Any], test: Any = None) -> Dataset:
    """A data set for classification.

    Args:
        clients: for each, a pair of arrays or tensors (x [n, ...], y [n]), or a torch data set of
            pairs (x, class). uint8 is scaled to [0, 1]; other types are unchanged.
        test: test samples in the same form, which belong to no client.

    Raises:
        UserError: for samples in another form, or of different shapes or types, if classes are
            numbered from 1, or for a class without training samples.
    """
    if not len(clients):
        raise bad_value(WHERE, "clients", clients, "samples of at least one client")
    parts = [_pair(f"clients.{number}", each) for number, each in enumerate(clients)]
    held_out = None if test is None else _pair("test", test)
    for number, (x, _) in enumerate([*parts, *([held_out] if held_out else [])]):
        if x.shape[1:] != parts[0][0].shape[1:] or x.dtype != parts[0][0].dtype:
            key = f"clients.{number}" if number < len(parts) else "test"
            wanted = (
                f"{list(parts[0][0].shape[1:])} of {parts[0][0].dtype}, as the first client has"
            )
            raise bad_value(WHERE, key, f"{list(x.shape[1:])} of {x.dtype}", wanted)
    x, y = (np.concatenate(column) for column in zip(*parts, strict=True))
    if y.min() > 0:  # the model would have an output for class 0, too
        wanted = f"classes numbered from 0: subtract {y.min()}"
        raise bad_value(WHERE, "clients", f"classes from {y.min()} to {y.max()}", wanted)
    group = np.repeat(np.arange(len(parts)), [len(labels) for _, labels in parts])
    splits = [Split(x, y, group), *([Split(*held_out, None)] if held_out else [])]
    classes = 1 + max(int(split.y.max()) for split in splits)
    _refuse_untrained(splits, classes)
    digest = hashlib.sha256()
    for split in splits:
        digest.update(split.x.tobytes() + split.y.tobytes())
    return Dataset(
        name=NAME,
        task="classification",
        classes=classes,
        input_shape=x.shape[1:],
        train=splits[0],
        test=splits[1] if held_out else None,
        mean=None,
        std=None,
        meta={"content_sha256": digest.hexdigest()},
    )


def _refuse_untrained(splits: Sequence[Split], classes: int) -> None:
    """Refuse a class that a model has an output for but would never learn, as own files' is.

    Args:
        splits: the training samples, then the test samples if there are any.
    """
    trained = np.unique(splits[0].y)
    if len(trained) == classes:
        return
    missing = int(np.flatnonzero(np.append(trained, -1) != np.arange(len(trained) + 1))[0])
    key, repair = "clients", "number classes without gaps"
    if any(missing in split.y for split in splits[1:]):
        key, repair = "test", "leave it out, or give clients some"
    expected = f"expected some of each class from 0 to {classes - 1}: {repair}"
    raise UserError(f"{WHERE}: {key}: class {missing}: no training samples: {expected}")


def _pair(key: str, samples: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Inputs [n, ...] as uint8, int32 or float32, and classes [n]."""
    if isinstance(samples, tuple) and len(samples) == 2:
        x, y = (_array(f"{key}.{name}", part) for name, part in zip("xy", samples, strict=True))
    else:
        try:
            pairs = [samples[number] for number in range(len(samples))]
            columns = zip(*pairs, strict=True)
            x, y = (np.stack([np.asarray(part) for part in column]) for column in columns)
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise UserError(
                f"{WHERE}: {key}: expected (x, y), or a data set of such pairs: {error}"
            ) from None
    if not x.ndim or y.ndim != 1 or len(x) != len(y) or not len(y):
        shapes = f"{list(x.shape)} and {list(y.shape)}"
        raise bad_value(WHERE, key, shapes, "inputs [n, ...] and as many classes [n], n above 0")
    if y.dtype.kind not in "iu":
        raise bad_value(WHERE, f"{key}.y", y.dtype.name, "classes, whole numbers from 0")
    if y.min() < 0:
        row = int(np.argmax(y < 0))
        raise bad_value(WHERE, f"{key}.y, row {row}", int(y[row]), "a class, a whole number from 0")
    if x.dtype.kind not in "fiu":
        raise bad_value(WHERE, f"{key}.x", x.dtype.name, "numbers")
    if x.dtype.kind == "f":
        with np.errstate(over="ignore"):  # beyond float32 is infinite
            stored = x.astype(np.float32)
        wrong = np.argwhere(~np.isfinite(stored))
        if len(wrong):
            row, value = wrong[0][0], float(x[tuple(wrong[0])])
            raise bad_value(WHERE, f"{key}.x, row {row}", value, "a finite number of float32")
        return stored, y.astype(np.int64)
    return x if x.dtype == np.uint8 else x.astype(np.int32), y.astype(np.int64)


def _array(key: str, values: Any) -> NDArray[Any]:
    """Values as an array.

    Raises:
        UserError: for rows of different shapes, and for what is no array at all.
    """
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        for number, row in enumerate(values):
            if _shape(row) != _shape(values[0]):
                wanted = f"the shape {_shape(values[0])} of row 0"
                raise bad_value(WHERE, f"{key}, row {number}", _shape(row), wanted) from None
        raise UserError(f"{WHERE}: {key}: expected an array: {error}") from None


def _shape(row: Any) -> list[int] | str:
    try:
        return list(np.shape(row))
    except ValueError:
        return "rows of different shapes"
