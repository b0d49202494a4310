"""Turn clients' arrays or torch data sets into a data set with one natural client for each."""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.catalogue.entries import NUMBERS
from fedrepro.data.dataset import Dataset, Split
from fedrepro.data.readers.arrays import (
    as_type,
    inputs_of,
    kind_of,
    numbers_of,
    stored_as,
    targets_of,
)
from fedrepro.data.readers.packing import ALONE, Packing, packed
from fedrepro.data.reading import Columns, ReadAnew, columns
from fedrepro.support.errors import bad_value, listed, refusal

NAME = "arrays"
WHERE = "fedrepro.train"
MOST_CLASSES = 2**31 - 1
_Inputs = dict[str | int, NDArray[Any]]  # by key of a dict, or by place in a tuple


class _Samples(NamedTuple):
    """Inputs [n, ...] by name, and classes [n] or targets [n, ...]."""

    x: _Inputs
    y: NDArray[Any]


def dataset_of(clients: Sequence[Any], test: Any = None, task: str = "classification") -> Dataset:
    """A data set of samples in memory.

    Args:
        clients: for each, a pair of arrays or tensors (x [n, ...], y [n]), or a torch data set of
            pairs (x, class) or of dicts with a label, which is read anew in every epoch if it draws
            from the global generators. Each x may be a tuple or a dict of several inputs. uint8 is
            scaled to [0, 1]; other whole numbers are words' ids, or features where the model takes
            no ids; other types are unchanged.
        test: test samples in the same form, which belong to no client.
        task: "classification", "binary", "regression", whose y are numbers [n] or [n, ...], or
            "multi_label", whose y [n, labels] are 0 and 1.

    Raises:
        UserError: for samples in another form, or of different shapes or types, if classes are
            numbered from 1, or for a class without training samples.
    """
    if isinstance(clients, Mapping):
        keys = listed([*map(repr, clients)])
        why = f"clients: a dict of {keys}: expected a list, as of its values"
        raise refusal(WHERE, why, "clients")
    if not len(clients):
        raise bad_value(WHERE, "clients", clients, "samples of at least one client")
    read = [columns(f"{WHERE}: clients.{number}", each) for number, each in enumerate(clients)]
    tested = [] if test is None else [columns(f"{WHERE}: test", test)]
    places = [*(f"clients.{number}" for number in range(len(read))), *(["test"] * len(tested))]
    every = [
        _samples(place, each, task) for place, each in zip(places, [*read, *tested], strict=True)
    ]
    for place, each, samples in zip(places, [*read, *tested], every, strict=True):
        _refuse_unlike(place, samples, every[0])
        _refuse_other_names(place, each.names, read[0].names)
    parts, held_out = every[: len(read)], every[-1] if tested else None
    draws = any(each.draws for each in read)
    arrays, packing = _together([samples.x for samples in every], draws)
    x, y = np.concatenate(arrays[: len(parts)]), np.concatenate([part.y for part in parts])
    group = np.repeat(np.arange(len(parts)), [len(part.y) for part in parts])
    tests = [Split(arrays[-1], held_out.y, drawn=tested[0].draws)] if held_out else []
    splits = [Split(x, y, group), *tests]
    classes = targets_of(x, y) if task in NUMBERS else _classes_of(splits, task)
    sets = [
        each if taken.draws else part.x.get(ALONE)
        for each, taken, part in zip(clients, read, parts, strict=True)
    ]
    ends = np.cumsum([len(part.y) for part in parts])
    redraw = ReadAnew(WHERE, sets, ends, x.shape[1:], y) if draws else None
    if redraw and packing:
        why = "clients: several inputs that are drawn: expected one input"
        raise refusal(WHERE, why, "clients")
    several = packing and not packing.is_of_one
    digest = hashlib.sha256(repr(packing).encode() if several else b"")
    shape = packing.parts[0].shape if packing and not several else x.shape[1:]
    for split in splits:
        digest.update(split.x.tobytes() + split.y.tobytes())
        for axes, plain in ((shape, 1), (split.y.shape[1:], 0)):
            if len(axes) > plain:  # the same bytes in another shape are other samples
                digest.update(str(axes).encode())
    return Dataset(
        name=NAME,
        task=task,
        classes=classes,
        input_shape=x.shape[1:],
        train=splits[0],
        test=tests[0] if tests else None,
        mean=None,
        std=None,
        redraw=redraw,
        meta={
            "content_sha256": digest.hexdigest(),
            "clients_sha256": hashlib.sha256(ends.tobytes()).hexdigest(),
        },
        packing=packing,
    )


def _refuse_unlike(key: str, samples: _Samples, first: _Samples) -> None:
    """Refuse samples of other inputs, shapes or kinds of numbers than the first client's."""
    inputs, wanted = samples.x, first.x
    if inputs.keys() != wanted.keys():
        given, expected = ("one" if ALONE in x else [*x] for x in (inputs, wanted))
        raise bad_value(WHERE, f"{key}.x", given, f"{expected}, as the first client has")
    pairs = [(key, samples.y, first.y)]
    pairs += [(_place(key, name), inputs[name], wanted[name]) for name in wanted]
    for where, array, other in pairs:
        if array.shape[1:] != other.shape[1:] or kind_of(array) != kind_of(other):
            expected = f"{list(other.shape[1:])} of {other.dtype}, as the first client has"
            raise bad_value(WHERE, where, f"{list(array.shape[1:])} of {array.dtype}", expected)


def _refuse_other_names(
    key: str, names: Mapping[str, list[str]], first: Mapping[str, list[str]]
) -> None:
    """Refuse inputs or columns of other names, or in another order, than the first client's."""
    for part in names.keys() & first.keys():
        for own, wanted in zip_longest(names[part], first[part]):
            if own != wanted:
                expected = f"{wanted!r} in its place, as the first client has"
                raise bad_value(WHERE, f"{key}{part}: name", own, expected)


def _together(clients: Sequence[_Inputs], draws: bool) -> tuple[list[NDArray[Any]], Packing | None]:
    """Each client's inputs as one array of the type that all are stored as."""
    alone = [inputs[ALONE] for inputs in clients if ALONE in inputs]
    if not alone or (all(x.dtype == bool for x in alone) and not draws):
        return packed(clients, WHERE)
    stored = stored_as(WHERE, "x", alone)
    return [as_type(WHERE, "x", x, stored) for x in alone], None


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
        raise refusal(WHERE, "clients: 1 class: expected at least 2 classes", "clients")
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
    why = f"{key}: class {missing}: no training samples: {expected}"
    raise refusal(WHERE, why, key, missing)


def _samples(key: str, samples: Columns, task: str) -> _Samples:
    """Inputs as whole numbers or finite float32, and classes [n] or float32 targets."""
    y = as_array(WHERE, f"{key}.y", samples.y)
    x = _inputs(key, samples.x, len(y) if y.ndim else 0)
    numbers = task in NUMBERS
    what = "targets [n] or [n, ...]" if numbers else "classes [n]"
    wrong_axes = not y.ndim if numbers else y.ndim != 1
    for name, array in x.items():
        if not array.ndim or wrong_axes or len(array) != len(y) or not array.size:
            shapes = f"{list(array.shape)} and {list(y.shape)}"
            wanted = f"inputs [n, ...] and as many {what}, all lengths above 0"
            raise bad_value(WHERE, _place(key, name), shapes, wanted)
    x = {name: inputs_of(WHERE, _place(key, name, ".x"), array) for name, array in x.items()}
    if numbers:
        return _Samples(x, numbers_of(WHERE, f"{key}.y", y, task))
    if y.dtype.kind not in "iu":
        wanted = "classes, whole numbers from 0"
        wanted += ', or `task="regression"`' if y.dtype.kind == "f" else ""
        raise bad_value(WHERE, f"{key}.y", y.dtype.name, wanted)
    if y.min() < 0 or y.max() > MOST_CLASSES:
        row = int(np.argmax((y < 0) | (y > MOST_CLASSES)))
        raise bad_value(WHERE, f"{key}.y, row {row}", int(y[row]), "a class, a whole number from 0")
    return _Samples(x, y.astype(np.int64))


def _inputs(key: str, x: Any, samples: int) -> _Inputs:
    """The arrays of a dict or a tuple of inputs, or of one input."""
    if isinstance(x, Mapping):
        inputs: dict[str | int, Any] = {str(name): values for name, values in x.items()}
    elif _are_several(x) and not (len(x) == samples and any(len(each) != samples for each in x)):
        inputs = {**dict(enumerate(x))}
    else:
        inputs = {ALONE: x}
    return {
        name: as_array(WHERE, _place(key, name, ".x"), values) for name, values in inputs.items()
    }


def _are_several(x: Any) -> bool:
    """Return True for a tuple of arrays or tensors."""
    return (
        isinstance(x, tuple)
        and len(x) > 0
        and all(np.ndim(each) and hasattr(each, "dtype") for each in x)
    )


def _place(key: str, name: str | int, alone: str = "") -> str:
    """Where an input is, in words; ``alone`` ends that of the only one."""
    return f"{key}{alone}" if name == ALONE else f"{key}.x.{name}"


def as_array(where: str, key: str, values: Any) -> NDArray[Any]:
    """Values as an array; a data frame's truth values beside numbers are 0 and 1.

    Raises:
        UserError: for rows of different shapes, for a column of a data frame that has no numbers
            where others have, and for what is no array at all.
    """
    if np.ma.is_masked(values):
        raise refusal(where, f"{key}: a masked array: expected a value in every place", key)
    if hasattr(values, "tocsr"):  # of scipy
        raise refusal(where, f"{key}: a sparse matrix: expected an array: call toarray()", key)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        for number, row in enumerate(values):
            if _shape(row) != _shape(values[0]):
                wanted = f"the shape {_shape(values[0])} of row 0"
                raise bad_value(where, f"{key}, row {number}", _shape(row), wanted) from None
        raise refusal(where, f"{key}: expected an array: {error}", key) from None
    if array.dtype.kind == "O" and array.ndim == 2 and hasattr(values, "dtypes"):
        for name, kind in zip(values.columns, values.dtypes, strict=True):
            if not getattr(kind, "_is_numeric", False) and getattr(kind, "kind", "O") not in "fiub":
                raise bad_value(where, f"{key}: column {name}", str(kind), "numbers")
        array = values.to_numpy(np.float64, na_value=np.nan)
    return array


def _shape(row: Any) -> list[int] | str:
    try:
        return list(np.shape(row))
    except ValueError:
        return "rows of different shapes"
