"""Read the samples of a client's data set: once, and in every epoch anew where it draws."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedrepro.support import rng
from fedrepro.support.errors import UserError, bad_value, listed, refusal, text_of

LABELS = ("label", "labels", "y", "target", "targets")
READ_AGAIN = 32  # samples, and as many classes, to tell whether a seed determines them
GREY = ("1", "L")  # Pillow's modes of images that have one channel


def pair_of(where: str, sample: Any) -> Any:
    """A sample's inputs and its label, of a dict with one of :data:`LABELS`; others as they are.

    It may be a dict of all samples' columns as well. Several other keys are several inputs.

    Raises:
        UserError: for a dict without a label or without inputs, or with two labels.
    """
    if not isinstance(sample, Mapping):
        return sample
    labels = [name for name in LABELS if name in sample]
    inputs = {name: values for name, values in sample.items() if name not in labels}
    if len(labels) != 1 or not inputs:
        keys = listed([*map(repr, sample)])
        wanted = f"one label ({', '.join(LABELS)}) and inputs"
        key, code = "label" if inputs else "inputs", "value" if len(labels) > 1 else "missing"
        raise refusal(where, f"a dict of {keys}: expected {wanted}", key, code=code)
    if words := next((name for name, values in inputs.items() if isinstance(values, str)), None):
        why = f"{words!r} is text: expected numbers: tokenize it, or leave it out"
        raise refusal(where, why, words)
    return next(iter(inputs.values())) if len(inputs) == 1 else inputs, sample[labels[0]]


def array_of(value: Any) -> NDArray[Any]:
    """A value as an array; a Pillow image as bytes [channels, height, width], as torchvision's.

    Raises:
        UserError: for an image of more than 8 bits per channel, which Pillow would cut off, and for
            a tensor that is no array, such as one of bfloat16 or one that requires gradients.
    """
    if not hasattr(value, "getbands"):
        try:
            array = np.asarray(value)
        except (TypeError, RuntimeError) as error:
            raise refusal("fedrepro.train", f"expected a sample as an array: {error}") from None
        # PyTorch has neither other byte orders nor more than 64 bits.
        long = array.dtype.kind == "f" and array.itemsize > 8
        return np.asarray(array, np.float64 if long else array.dtype.newbyteorder("="))
    if value.mode.startswith(("I", "F")):
        wanted = "8 bits per channel: convert it, with the scale that suits your images"
        raise bad_value("fedrepro.train", "mode of an image", value.mode, wanted)
    if value.mode in GREY:
        return np.asarray(value.convert("L"))[None]
    pixels = np.asarray(value.convert("RGBA" if value.has_transparency_data else "RGB"))
    return pixels.transpose(2, 0, 1)


class Columns(NamedTuple):
    """A client's samples.

    Attributes:
        x: inputs [n, ...].
        y: labels [n].
        draws: whether inputs are drawn when they are read.
        names: the keys of dicts, and the columns of data frames in their order, by what has them.
    """

    x: Any
    y: Any
    draws: bool
    names: dict[str, list[str]]


def columns(where: str, samples: Any) -> Columns:
    """The samples of a client.

    Args:
        samples: a pair or a dict of them, or a data set of pairs or dicts.

    Raises:
        UserError: for samples in another form, or data frames whose rows are not the same.
    """
    names, draws = _keys(samples), False
    if isinstance(samples, Mapping):
        samples = pair_of(where, samples)
    whole = isinstance(samples, tuple) and len(samples) == 2
    if not whole:
        samples, draws, names = _read(where, samples)
    try:
        x, y = map(decoded, samples) if whole else map(_stacked, zip(*samples, strict=True))
    except (TypeError, ValueError, RuntimeError, KeyError) as error:
        wanted = "expected (x, y), or a data set of such pairs"
        raise refusal(where, f"{wanted}: {error}") from None
    parts = {".x": x} if not isinstance(x, Mapping) else {f".x.{name}": x[name] for name in x}
    for name, part in {**parts, ".y": y}.items():
        if hasattr(part, "columns"):
            names[name] = [*map(str, getattr(part, "column_names", part.columns))]  # of pyarrow
        refuse_other_rows(f"{where}{name}", part, y)
    return Columns(x, y, draws, names)


def decoded(column: Any) -> Any:
    """A column with Pillow images among its values as one array; others as they are."""
    if isinstance(column, Mapping):
        return {name: decoded(values) for name, values in column.items()}
    values = list(column) if isinstance(column, Sequence) or hasattr(column, "to_list") else []
    return _stacked(values) if any(hasattr(each, "getbands") for each in values) else column


def _keys(sample: Any) -> dict[str, list[str]]:
    """The inputs of a sample by their keys, if it has some."""
    inputs = sample[0] if isinstance(sample, tuple) and len(sample) == 2 else sample
    if not isinstance(inputs, Mapping):
        return {}
    labels = LABELS if inputs is sample else ()
    return {"": sorted(str(name) for name in inputs if name not in labels)}


def refuse_other_rows(where: str, part: Any, y: Any) -> None:
    """Raises UserError if these have two different indexes of pandas."""
    one: Any = getattr(part, "index", None)
    other: Any = getattr(y, "index", None)
    if hasattr(one, "equals") and hasattr(other, "equals") and not one.equals(other):
        repair = "call reset_index(drop=True) on both if they are"
        wanted = f"expected the same rows in the same order: {repair}"
        raise refusal(where, f"its index is not that of y: {wanted}")


def _stacked(column: Sequence[Any]) -> Any:
    """The values of all samples as one array, or as a dict or a tuple of arrays, as each sample."""
    first = column[0]
    if isinstance(first, Mapping):
        return {name: _stacked([sample[name] for sample in column]) for name in first}
    if isinstance(first, tuple) and all(hasattr(value, "dtype") for value in first):
        return tuple(map(_stacked, zip(*column, strict=True)))
    return np.stack([array_of(value) for value in column])


def _read(where: str, samples: Any) -> tuple[list[Any], bool, dict[str, list[str]]]:
    """All samples of a data set as pairs, whether they are drawn when they are read, their keys.

    Raises:
        UserError: if it can't be read, or draws from a generator that no seed reaches.
    """
    try:
        with rng.seeded(0):
            before = _states()
            read = [samples[at] for at in range(len(samples))]
            draws = _states() != before
        pairs = [pair_of(f"{where}, sample {at}", sample) for at, sample in enumerate(read)]
        few = _telling(pairs)
        readings = [[pairs[at] for at in few]]
        for _ in range(1 + draws):  # those that draw follow no others here
            with rng.seeded(0):
                readings.append([pair_of(where, samples[at]) for at in few])
    except UserError:
        raise
    except Exception as error:  # of the user's code
        instead = ": pass its `dataset`" if hasattr(samples, "dataset") else ""
        kind = type(samples).__name__
        wanted = "expected (x, y), or a data set of such pairs that has a length and an index"
        raise refusal(where, f"{kind}: {wanted}: {text_of(error)}{instead}", value=kind) from None
    keys = [*map(_keys, read)]
    for at, own in enumerate(keys):
        if own != keys[0]:
            expected = f"{listed(keys[0].get('', ['a pair']))}, as sample 0 has"
            raise bad_value(f"{where}, sample {at}", "inputs", listed(own.get("", [])), expected)
    if not all(map(_equal, *readings[-2:])):
        raise refusal(
            where,
            "samples differ when they are read again with the same seed: expected a "
            "transform that draws from the global generator of torch, numpy or Python, which the "
            "run seeds: it has a generator of its own",
            "transform",
        )
    return pairs, draws, keys[0] if keys else {}


def _telling(pairs: Sequence[Any]) -> list[int]:
    """The places of some samples from all over a data set, and of one of each class."""
    classes = {hash(array_of(pair[-1]).tobytes()): at for at, pair in enumerate(pairs)}
    spread = range(0, len(pairs), max(1, len(pairs) // READ_AGAIN))
    return sorted({*spread, *[*classes.values()][:READ_AGAIN]})


def _states() -> tuple[bytes, str]:
    """The states of the global generators: torch's, then those of numpy and Python as text."""
    others = repr((np.random.get_state(), random.getstate()))  # noqa: NPY002
    return torch.get_rng_state().numpy().tobytes(), others


def _equal(one: Any, other: Any) -> bool:
    """Whether two samples have the same numbers."""
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_equal, one, other))
    first, second = array_of(one), array_of(other)
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


@dataclass(frozen=True)
class ReadAnew:
    """Inputs of clients' samples, read anew (:class:`fedrepro.data.dataset.Redraw`).

    Attributes:
        clients: each client's data set, or its array of inputs [n, ...] if that does not draw.
        ends: of each client's rows among those of all, int64 [clients].
        shape: of a sample.
        labels: of all samples [n, ...], as they were first read.
    """

    where: str
    clients: Sequence[Any]
    ends: NDArray[np.int64]
    shape: tuple[int, ...]
    labels: NDArray[Any]

    @property
    def drawing(self) -> list[Any]:
        """The data sets that draw."""
        return [each for each in self.clients if not isinstance(each, np.ndarray)]

    def __call__(self, seed: int, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The inputs at ``rows``, drawn by ``seed``.

        Raises:
            UserError: if a sample fails, or has another shape or label than when it was first read.
        """
        owners = np.searchsorted(self.ends, rows, side="right")
        places = rows - np.concatenate([[0], self.ends])[owners]
        with rng.seeded(seed):
            inputs = [
                self._input(*each)
                for each in zip(owners.tolist(), places.tolist(), self.labels[rows], strict=True)
            ]
        return np.stack(inputs)

    def _input(self, client: int, at: int, label: Any) -> NDArray[Any]:
        samples, where = self.clients[client], f"{self.where}: clients.{client}, sample {at}"
        if isinstance(samples, np.ndarray):
            return np.asarray(samples[at])
        try:
            x, y = map(array_of, pair_of(where, samples[at]))
        except UserError:
            raise
        except Exception as error:  # of the user's code
            raise refusal(where, text_of(error)) from error
        if x.shape != self.shape:
            wanted = f"{list(self.shape)}, as when it was first read"
            raise refusal(where, f"{list(x.shape)}: expected {wanted}", value=list(x.shape))
        if not np.array_equal(y.astype(self.labels.dtype), label):
            wanted = f"{label}, as when it was first read: only inputs may be drawn"
            raise bad_value(where, "label", y.tolist(), wanted)
        return x
