"""Divide samples among clients by a partition scheme."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedrepro.data.partition.partition import PartitionSpec, make_partition
from fedrepro.support.errors import bad_value
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
        y: targets [n] or [n, ...], of which a scheme by class needs classes [n].
        scheme: its name, such as "iid", "shards" or "dirichlet" (docs/data.md has all).
        group: each sample's natural client or domain [n], for the schemes "natural" and "domains".
        seed: of the partition; it is no run's.
        keys: of the scheme, such as ``clients=10, alpha=0.1``.

    Returns:
        Each client's (x, y), as :func:`fedrepro.train` takes them.

    Raises:
        UserError: for unknown keys, and for a scheme that cannot be applied to these samples.

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
    asked = {"scheme": scheme, **keys, "seed": seed}
    spec = validate(_Asked, {"partition": asked}, WHERE).partition
    labels = _array(y)
    for name, part in _parts("x", x):
        if len(part) != len(labels):
            raise bad_value(WHERE, name, f"{len(part)} samples", f"{len(labels)}, as in y")
    names, groups = (
        np.unique(_array(group), return_inverse=True) if group is not None else ((), None)
    )
    if groups is not None and len(groups) != len(labels):
        raise bad_value(WHERE, "group", f"{len(groups)} samples", f"{len(labels)}, as in y")
    if labels.dtype.kind not in "iuf":  # words, or truth values
        labels = np.unique(labels, return_inverse=True)[1].reshape(labels.shape)
    made = make_partition(labels, groups, spec, seed, group_names=[str(name) for name in names])
    if line := made.warning():
        warnings.warn(line.removeprefix("warning: "), stacklevel=2)
    return [(_some(x, rows), _some(y, rows)) for rows in made.train]


def _array(values: Any) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _parts(name: str, values: Any) -> list[tuple[str, Any]]:
    """The inputs of samples, with their names."""
    if isinstance(values, Mapping):
        return [(f"{name}.{key}", part) for key, part in values.items()]
    if isinstance(values, tuple):
        return [(f"{name}.{place}", part) for place, part in enumerate(values)]
    return [(name, values)]


def _some(values: Any, rows: NDArray[Any]) -> Any:
    """Rows of what holds samples, as it holds them."""
    if isinstance(values, Mapping):
        return {key: _some(part, rows) for key, part in values.items()}
    if isinstance(values, tuple):
        return tuple(_some(part, rows) for part in values)
    if hasattr(values, "iloc"):  # of pandas
        return values.iloc[rows]
    return values[rows] if isinstance(values, Tensor) else np.asarray(values)[rows]
