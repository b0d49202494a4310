"""Divide samples among clients by a partition scheme."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from fedrepro.api.given import as_in_files
from fedrepro.data.arrays import as_array
from fedrepro.data.partition.partition import PartitionSpec, make_partition
from fedrepro.data.readers.tables import refuse_alike
from fedrepro.data.reading import decoded, refuse_other_rows
from fedrepro.support.errors import bad_value, missing_value, refusal
from fedrepro.support.typed_yaml import Typed, validate

WHERE = "fedrepro.partition"


class _Asked(Typed):
    partition: PartitionSpec


def partition(
    x: Any, y: Any, scheme: str = "dirichlet", *, group: Any = None, seed: int = 1, **keys: Any
) -> list[tuple[Any, Any]]:
    """Divide samples among clients, as `partition` in an experiment file does.

    Args:
        x: inputs [n, ...]: an array, a tensor, a data frame, or a tuple or a dict of several.
        y: targets [n] or [n, ...], of which a scheme by class needs classes [n]: whole numbers,
            words or truth values. A scheme numbers them in their order, without gaps.
        scheme: its name, such as "iid", "shards" or "dirichlet" (docs/data.md has all).
        group: each sample's natural client, domain or superclass [n], for the schemes "natural",
            "domains" and "pachinko".
        seed: of the partition; it is no run's.
        keys: of the scheme, such as ``clients=10, alpha=0.1``.

    Returns:
        Each client's (x, y), as :func:`fedrepro.train` takes them: lists as arrays, and of words
        and truth values y has the numbers. Whole numbers stay, as they may be counts.

    Raises:
        UserError: for unknown keys, for samples that are no arrays or of other rows than y, and for
            a scheme that cannot be applied to these samples.

    Examples:
        Ten samples of each of three classes, for three clients with one class each:

        >>> import numpy as np
        >>> import fedrepro as fr
        >>> x, y = np.arange(30.0).reshape(30, 1), np.repeat([0, 1, 2], 10)
        >>> clients = fr.partition(x, y, "shards", clients=3, classes_per_client=1)
        >>> [np.unique(labels).tolist() for _, labels in clients]
        [[0], [2], [1]]
    """
    for key in ("test_fraction", "stratified", "validation", "server", "given_test"):
        if key in keys:
            raise bad_value(WHERE, key, keys[key], "none here: fedrepro.train holds samples out")
    if seed is None:
        raise bad_value(WHERE, "seed", None, "a whole number")
    asked = {"scheme": scheme, **keys, "seed": seed}
    spec = validate(_Asked, {"partition": as_in_files(asked)}, WHERE).partition
    y = list(y) if isinstance(y, tuple) else y  # a tuple of inputs is several, of labels is one
    labels = np.zeros(y.shape) if hasattr(y, "iloc") and y.ndim > 1 else _array("y", y)
    if spec.by_class and labels.ndim != 1:
        wanted = f"classes [n], as {spec.scheme} divides by them"
        raise bad_value(WHERE, "y", f"{list(labels.shape)}", wanted)
    x = _read(x)
    for name, part in _parts("x", x):
        counted = isinstance(part, Tensor) and part.ndim and not part.is_sparse
        known = counted or hasattr(part, "iloc")  # of which only rows are taken, whatever they hold
        _refuse_unlike(name, part, part if known else _array(name, part), y, labels)
    if labels.ndim == 1 and labels.dtype.kind != "f":
        named = labels.dtype.kind not in "iu"
        labels = _numbered("y", labels)[1]
        y = labels if named else y
    names: tuple[str, ...] = ()
    groups = None
    if group is not None:
        if not spec.groups_from:
            wanted = f"none, as {spec.scheme} does not use groups"
            raise bad_value(WHERE, "group", type(group).__name__, wanted)
        frame = hasattr(group, "iloc") and group.ndim > 1
        given = np.zeros(group.shape) if frame else _array("group", group)
        if given.ndim != 1:
            raise bad_value(WHERE, "group", [*given.shape], "one value for each sample [n]")
        _refuse_unlike("group", group, given, y, labels)
        names, groups = _numbered("group", given)
    made = make_partition(labels, groups, spec, seed, group_names=names)
    if line := made.warning():
        warnings.warn(line.removeprefix("warning: "), stacklevel=2)
    return [(_some(x, rows), _some(y, rows)) for rows in made.train]


def _array(name: str, values: Any) -> NDArray[Any]:
    """Returns samples as an array [n, ...]."""
    if not (isinstance(values, list | tuple | Tensor) or hasattr(values, "__array__")):
        wanted = "an array, a tensor, a data frame or a list"
        raise bad_value(WHERE, name, type(values).__name__, wanted)
    dense = isinstance(values, Tensor) and not values.is_sparse
    array = as_array(WHERE, name, values.detach().cpu() if dense else values)
    if array.dtype.kind in "US" and isinstance(values, list | tuple) and array.ndim == 1:
        array = np.array(values, dtype=object)  # numpy makes words of missing values and of numbers
    if not array.ndim:
        raise bad_value(WHERE, name, array.item(), "a value for each sample")
    return array


def _refuse_unlike(name: str, values: Any, array: Any, y: Any, labels: NDArray[Any]) -> None:
    """Raises UserError unless these are of the same rows as y."""
    if len(array) != len(labels):
        raise bad_value(WHERE, name, f"{len(array)} samples", f"{len(labels)}, as in y")
    refuse_other_rows(f"{WHERE}: {name}", values, y)


def _numbered(name: str, values: NDArray[Any]) -> tuple[tuple[str, ...], NDArray[Any]]:
    """The different values as texts in their order, and the number of each sample's."""
    if (lacking := pd.isna(values)).any():
        raise missing_value(WHERE, f"{name}, row {lacking.argmax()}", "a value for each sample")
    try:
        known, numbers = np.unique(values, return_inverse=True)
    except TypeError:
        kinds = " and ".join(sorted({type(value).__name__ for value in values}))
        raise bad_value(WHERE, name, kinds, "values of one kind") from None
    texts = tuple(map(str, known))
    if values.dtype.kind in "OUS":
        refuse_alike(texts, f"{WHERE}: {name}")
    return texts, numbers


def _parts(name: str, values: Any) -> list[tuple[str, Any]]:
    """The inputs of samples, with their names."""
    if isinstance(values, Mapping):
        return [(f"{name}.{key}", part) for key, part in values.items()]
    if isinstance(values, tuple):
        return [(f"{name}.{place}", part) for place, part in enumerate(values)]
    return [(name, values)]


def _read(values: Any, name: str = "x") -> Any:
    """Inputs with lists and pictures as the arrays that :func:`fedrepro.train` makes of them."""
    if isinstance(values, Mapping):
        return {key: _read(part, f"{name}.{key}") for key, part in values.items()}
    if isinstance(values, tuple):
        return tuple(_read(part, f"{name}.{place}") for place, part in enumerate(values))
    try:
        values = decoded(values)
    except (TypeError, ValueError, RuntimeError) as error:  # pictures of several sizes or modes
        raise refusal(WHERE, f"{name}: expected an array: {error}", name) from None
    return _array(name, values) if isinstance(values, list) else values


def _some(values: Any, rows: NDArray[Any]) -> Any:
    """Rows of what holds samples, as it holds them."""
    if isinstance(values, Mapping):
        return {key: _some(part, rows) for key, part in values.items()}
    if isinstance(values, tuple):
        return tuple(_some(part, rows) for part in values)
    if hasattr(values, "iloc"):  # of pandas
        return values.iloc[rows]
    return values[rows] if isinstance(values, Tensor) else np.asarray(values)[rows]
