"""Turn clients' arrays or torch data sets into a data set with one natural client for each."""

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.catalogue.entries import NUMBERS
from fedrepro.data.dataset import Dataset, Split
from fedrepro.data.readers.arrays import (
    inputs_of,
    kind_of,
    numbers_of,
    stored_as,
    targets_of,
)
from fedrepro.support.errors import UserError, bad_value, listed

NAME = "arrays"
WHERE = "fedrepro.train"
MOST_CLASSES = 2**31 - 1
READ_AGAIN = 8  # samples of a data set


def dataset_of(clients: Sequence[Any], test: Any = None, task: str = "classification") -> Dataset:
    """A data set of samples in memory.

    Args:
        clients: for each, a pair of arrays or tensors (x [n, ...], y [n]), or a torch data set of
            pairs (x, class). uint8 is scaled to [0, 1]; other whole numbers are words' ids, or
            features where the model takes no ids; other types are unchanged.
        test: test samples in the same form, which belong to no client.
        task: "classification", "binary", "regression", whose y are numbers [n] or [n, ...], or
            "multi_label", whose y [n, labels] are 0 and 1.

    Raises:
        UserError: for samples in another form, or of different shapes or types, if classes are
            numbered from 1, or for a class without training samples.
    """
    if isinstance(clients, Mapping):
        keys = listed([*map(repr, clients)])
        raise UserError(f"{WHERE}: clients: a dict of {keys}: expected a list, as of its values")
    if not len(clients):
        raise bad_value(WHERE, "clients", clients, "samples of at least one client")
    parts = [_pair(f"clients.{number}", each, task) for number, each in enumerate(clients)]
    held_out = None if test is None else _pair("test", test, task)
    every = [*parts, *([held_out] if held_out else [])]
    for number, pair in enumerate(every):
        for part, first in zip(pair, parts[0], strict=True):
            if part.shape[1:] != first.shape[1:] or kind_of(part) != kind_of(first):
                key = f"clients.{number}" if number < len(parts) else "test"
                wanted = f"{list(first.shape[1:])} of {first.dtype}, as the first client has"
                raise bad_value(WHERE, key, f"{list(part.shape[1:])} of {part.dtype}", wanted)
    stored = stored_as([x for x, _ in every])
    x, y = (
        np.concatenate([x.astype(stored) for x, _ in parts]),
        np.concatenate([y for _, y in parts]),
    )
    group = np.repeat(np.arange(len(parts)), [len(labels) for _, labels in parts])
    tests = [Split(held_out[0].astype(stored), held_out[1])] if held_out else []
    splits = [Split(x, y, group), *tests]
    classes = targets_of(x, y) if task in NUMBERS else _classes_of(splits, task)
    digest = hashlib.sha256()
    for split in splits:
        digest.update(split.x.tobytes() + split.y.tobytes())
        for array, plain in ((split.x, 2), (split.y, 1)):
            if array.ndim > plain:  # the same bytes in another shape are other samples
                digest.update(str(array.shape[1:]).encode())
    return Dataset(
        name=NAME,
        task=task,
        classes=classes,
        input_shape=x.shape[1:],
        train=splits[0],
        test=tests[0] if tests else None,
        mean=None,
        std=None,
        meta={"content_sha256": digest.hexdigest()},
    )


def _classes_of(splits: Sequence[Split], task: str) -> int:
    """The number of classes.

    Raises:
        UserError: if they have gaps, or if there is one only, or more than two for "binary".
    """
    low, high = int(splits[0].y.min()), int(splits[0].y.max())
    if low > 0:  # the model would have an output for class 0, too
        wanted = f"classes numbered from 0: subtract {low}"
        raise bad_value(WHERE, "clients", f"classes from {low} to {high}", wanted)
    classes = 1 + max(int(split.y.max()) for split in splits)
    if classes < 2:
        raise UserError(f"{WHERE}: clients: 1 class: expected at least 2 classes")
    if task == "binary" and classes > 2:
        raise bad_value(WHERE, "task", task, f"classification, as there are {classes} classes")
    _refuse_untrained(splits, classes)
    return classes


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


def _pair(key: str, samples: Any, task: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs [n, ...] as whole numbers or finite float32, and classes [n] or float32 targets."""
    if isinstance(samples, tuple) and len(samples) == 2:
        x, y = (_array(f"{key}.{name}", part) for name, part in zip("xy", samples, strict=True))
    else:
        x, y = _columns(key, samples)
    numbers = task in NUMBERS
    what = "targets [n] or [n, ...]" if numbers else "classes [n]"
    wrong_axes = not y.ndim if numbers else y.ndim != 1
    if not x.ndim or wrong_axes or len(x) != len(y) or not len(y):
        shapes = f"{list(x.shape)} and {list(y.shape)}"
        raise bad_value(WHERE, key, shapes, f"inputs [n, ...] and as many {what}, n above 0")
    if numbers:
        return inputs_of(WHERE, f"{key}.x", x), numbers_of(WHERE, f"{key}.y", y, task)
    if y.dtype.kind not in "iu":
        wanted = "classes, whole numbers from 0"
        wanted += ', or `task="regression"`' if y.dtype.kind == "f" else ""
        raise bad_value(WHERE, f"{key}.y", y.dtype.name, wanted)
    if y.min() < 0 or y.max() > MOST_CLASSES:
        row = int(np.argmax((y < 0) | (y > MOST_CLASSES)))
        raise bad_value(WHERE, f"{key}.y, row {row}", int(y[row]), "a class, a whole number from 0")
    return inputs_of(WHERE, f"{key}.x", x), y.astype(np.int64)


def _columns(key: str, samples: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs and classes of a torch data set, each sample of which is read once.

    Raises:
        UserError: for samples in another form.
    """
    try:
        pairs = [samples[number] for number in range(len(samples))]
    except Exception as error:  # of the user's code
        raise UserError(
            f"{WHERE}: {key}: {type(samples).__name__}: expected (x, y), or a data set of such "
            f"pairs that has a length and an index: {error}"
        ) from None
    for number, pair in enumerate(pairs):
        if isinstance(pair, Mapping):
            keys = listed([*map(repr, pair)])
            raise UserError(
                f"{WHERE}: {key}, sample {number}: a dict of {keys}: expected (x, class), "
                "a tuple of two of its values"
            )
    try:
        columns = zip(*pairs, strict=True)
        x, y = (np.stack([np.asarray(part) for part in column]) for column in columns)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"{WHERE}: {key}: expected (x, y), or a data set of such pairs: {error}"
        ) from None
    again = np.stack([np.asarray(samples[number][0]) for number in range(min(READ_AGAIN, len(x)))])
    if not np.array_equal(again, x[: len(again)], equal_nan=again.dtype.kind == "f"):
        warnings.warn(
            f"{WHERE}: {key}: samples differ when they are read again: they are read once, before "
            "training, so a transform that draws is applied once, and no seed of the run is its: "
            "leave it out, or draw it beforehand with a seed of your own",
            stacklevel=5,
        )
    return x, y


def _array(key: str, values: Any) -> NDArray[Any]:
    """Values as an array.

    Raises:
        UserError: for rows of different shapes, and for what is no array at all.
    """
    if np.ma.is_masked(values):
        raise UserError(f"{WHERE}: {key}: a masked array: expected a value in every place")
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
