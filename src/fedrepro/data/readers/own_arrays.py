"""Users' own arrays: npz archives, Parquet files, and what a function of theirs returns.

Exports of `fedrepro synth export` are such archives, too.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.catalogue.entries import NUMBERS
from fedrepro.data.catalogue.kinds import Arrays, Synthetic
from fedrepro.data.readers.arrays import (
    as_type,
    inputs_of,
    npz_arrays,
    numbers_of,
    stored_as,
    targets_of,
    unlike,
)
from fedrepro.data.readers.content import FIRST, Content, Source, Split, held_out, split_by
from fedrepro.data.readers.packing import packed
from fedrepro.data.readers.table_files import PARQUET, parquet_arrays
from fedrepro.data.readers.tables import classes_of, refuse_alike
from fedrepro.support.errors import bad_value, listed, reading, refusal, refuse_unknown
from fedrepro.support.files import read_json

NAMES = ("x", "y", "client", "split")
SEVERAL = "x_"  # what names of several inputs begin with
IMAGES, DATASHEET = "images.npz", "datasheet.json"  # of an export of synthetic sets
MOST_CLASSES = 1_000_000


def read_own_arrays(spec: Arrays, source: Source) -> Content:
    """The arrays of a file.

    Raises:
        UserError: if it can't be read, holds other arrays, or one is not what it should be.
    """
    read = parquet_arrays if source.path.suffix.lower() in PARQUET else npz_arrays
    arrays = read(source.path)
    return content_of(arrays, spec.task, spec.test_fraction, source.path)


def content_of(
    arrays: Mapping[str, NDArray[Any]], task: str, test_fraction: float | None, where: object
) -> Content:
    """A data set of arrays with the names of :data:`NAMES`.

    Several inputs are x_0, x_1 and so on, a tuple, or x_NAME, a dict.

    Args:
        test_fraction: the share of each class held out without ``split``; None for the default.
        where: for errors.

    Raises:
        UserError: for other names, other lengths, or values that can't be trained on.
    """
    several = {name: array for name, array in arrays.items() if name.startswith(SEVERAL)}
    wanted = f"one of {', '.join(NAMES)}, or x_NAME for each of several inputs"
    refuse_unknown(where, "array", [name for name in arrays if name not in several], NAMES, wanted)
    if several and "x" in arrays:
        raise refusal(where, f"x and {listed([*several])}: expected x, or several inputs", "x")
    for name in NAMES[:2]:
        if name not in arrays and not (several and name == "x"):
            why = f"no array {name}: it has {listed(list(arrays))}"
            raise refusal(where, why, name, code="missing")
    lengths = {
        name: len(array) if array.ndim and array.size else 0 for name, array in arrays.items()
    }
    if min(lengths.values()) == 0 or len({*lengths.values()}) > 1:
        said = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
        raise refusal(where, f"{said}: expected as many samples in each, all lengths above 0")
    notes = dict[str, Any]()
    if several:
        x, notes["packing"] = _several(several, where)
    else:
        x = inputs_of(where, "x", arrays["x"])
        if x.ndim < 2:
            raise bad_value(where, "x", list(x.shape), "inputs [n, ...], of at least two axes")
        x = as_type(where, "x", x, stored_as(where, "x", [x]))
    if task in NUMBERS:
        labels = numbers_of(where, "y", arrays["y"], task)
        class_names = [str(number) for number in range(targets_of(x, labels))]
    else:
        class_names, labels = _targets(arrays["y"], task, where)
    group = None
    if "client" in arrays:
        notes["groups"], group = _names(arrays["client"], "client", where)
    everything = Split(x, labels, group)
    if "split" in arrays:
        _names(arrays["split"], "split", where)
        train, test = split_by(everything, arrays["split"], where)
    else:
        share = test_fraction
        share = (0.2 if group is None else 0.0) if share is None else share
        train, test = held_out(everything, share, where)
        notes["test_fraction"] = share
    understood = [*map(_seen, arrays.items()), *_rows(arrays)]
    return Content(train, class_names, test, notes, understood)


def _several(arrays: Mapping[str, NDArray[Any]], where: object) -> tuple[NDArray[Any], Any]:
    """Several inputs as one array [n, columns], and where each is in it."""
    names: list[str | int] = [name.removeprefix(SEVERAL) for name in arrays]
    if {*names} == {*map(str, range(len(names)))}:
        names = [*range(len(names))]
    inputs = {
        name: inputs_of(where, f"{SEVERAL}{name}", arrays[f"{SEVERAL}{name}"]) for name in names
    }
    (x,), packing = packed([inputs], str(where))
    return x, packing.parts


def _targets(y: NDArray[Any], task: str, where: object) -> tuple[list[str], NDArray[Any]]:
    """The names of classes, and the labels [n]; for ``next_word``, the words' ids [n, length]."""
    axes = 2 if task == "next_word" else 1
    if y.ndim != axes:
        wanted = "words' ids [n, length]" if axes == 2 else "one class a sample [n]"
        raise bad_value(where, "y", list(y.shape), f"{wanted} for the task {task}")
    if y.dtype.kind not in "biu":
        if axes == 2 or y.dtype.kind not in "UO":
            raise bad_value(where, "y", y.dtype.name, "classes: whole numbers from 0, or words")
        return _names(y, "y", where)
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= MOST_CLASSES:
        wanted = f"whole numbers from 0, below {MOST_CLASSES:,}"
        raise bad_value(where, "y", low if low < 0 else high, wanted)
    return [str(number) for number in range(high + 1)], y.astype(np.int64)


def _names(cells: NDArray[Any], name: str, where: object) -> tuple[list[str], NDArray[Any]]:
    """Different words or whole numbers in their order, and the place of each cell among them."""
    words = cells.dtype.kind in "UO"
    if words and not all(isinstance(cell, str) and cell for cell in cells.ravel()):
        wrong = next(cell for cell in cells.ravel() if not isinstance(cell, str) or not cell)
        raise bad_value(where, name, wrong, "a word in every place")
    if cells.ndim != 1 or not (words or cells.dtype.kind in "iu"):
        raise bad_value(where, name, f"{cells.dtype} {list(cells.shape)}", "words or whole numbers")
    if words:
        refuse_alike({*cells}, f"{where}: {name}")
        return classes_of(cells.astype(str))
    unique, places = np.unique(cells, return_inverse=True)
    return [str(each) for each in unique], places


def _seen(array: tuple[str, NDArray[Any]]) -> tuple[str, str]:
    """An array's type and shape, and what it holds."""
    name, values = array
    about = f"{'text' if values.dtype.kind in 'UO' else values.dtype} {list(values.shape)}"
    if values.dtype.kind in "fiub":
        about += f", {values.min():g} to {values.max():g}"
    return f"array {name}", about


def _rows(arrays: Mapping[str, NDArray[Any]]) -> list[tuple[str, str]]:
    """The first samples, without their inputs."""
    others = [array for name, array in arrays.items() if name in NAMES[1:]]
    return [
        (f"row {number + 1}", ", ".join(str(array[number]) for array in others))
        for number in range(min(FIRST, len(others[0])))
    ]


def read_export(spec: Synthetic, source: Source) -> Content:
    """Images and labels, split by class into training and test samples.

    Raises:
        UserError: if a file is missing or damaged, or not an export.
    """
    file, sheet = source.path / IMAGES, source.path / DATASHEET
    x, y = npz_arrays(file, ("x", "y")).values()
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[1] not in (1, 3):
        raise unlike(file, "x", x, "uint8 (samples, 1 or 3, height, width)")
    if y.shape != (len(x),) or not np.issubdtype(y.dtype, np.integer):
        raise unlike(file, "y", y, f"whole numbers {(len(x),)}")
    with reading(sheet, OSError, ValueError, KeyError, TypeError, kind="a datasheet"):
        names = [str(name) for name in read_json(sheet)["class_names"]]
    train, test = held_out(Split(x, y), spec.test_fraction, source.path)
    return Content(train, names, test, {"test_fraction": spec.test_fraction})
