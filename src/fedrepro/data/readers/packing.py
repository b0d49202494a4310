"""Inputs of a sample in one array: packed to be stored, taken apart for the model.

They are several, or truth values alone, which no array of a data set is stored as.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrepro.data.readers.arrays import WHOLE, as_type, stored_as
from fedrepro.support.errors import bad_value

if TYPE_CHECKING:
    from torch import Tensor

Shape = tuple[int, ...]
Shapes = Shape | tuple[Shape, ...] | dict[str, Shape]  # of one input, a tuple of them, or a dict
# [n, columns] -> a forward pass's positional arguments, and those by name
Arguments = Callable[["Tensor"], tuple[Sequence[Any], Mapping[str, Any]]]
ALONE = ""  # the name of an input that is the only one
LARGEST = 2**24  # whole numbers up to it are exact in float32


class Part(NamedTuple):
    """One of the inputs.

    Attributes:
        name: its key in a dict of inputs, its place in a tuple, :data:`ALONE`.
        kind: "fractions", "whole" or "bool".
    """

    name: str | int
    shape: Shape
    kind: str

    def __str__(self) -> str:
        return f"{self.name} {[*self.shape]} of {self.kind}".strip()


@dataclass(frozen=True)
class Packing:
    """The inputs in the order of the array's columns."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, stated: Any) -> "Packing":
        """The one with these parts, as JSON gives them back."""
        return cls(tuple(Part(name, tuple(shape), kind) for name, shape, kind in stated))

    def __str__(self) -> str:
        return ", ".join(map(str, self.parts))

    @property
    def is_of_one(self) -> bool:
        """Return True if one input is packed, which is of truth values."""
        return self.parts[0].name == ALONE

    @property
    def shapes(self) -> Shapes:
        shapes: Shapes = self._together([part.shape for part in self.parts])
        return shapes

    @property
    def ends(self) -> list[int]:
        """The column after each input's last."""
        return [*accumulate(prod(part.shape) for part in self.parts)]

    def of_fractions(self) -> "Packing":
        """The same inputs, all as fractions."""
        return replace(self, parts=tuple(part._replace(kind="fractions") for part in self.parts))

    def apart(self, x: "Tensor") -> Any:
        """The inputs [n, ...] in an array [n, columns], as a tuple or a dict."""
        inputs, first = [], 0
        for _, shape, kind in self.parts:
            flat = x.narrow(1, first, prod(shape))
            flat = flat.long() if kind == "whole" else flat.bool() if kind == "bool" else flat
            inputs.append(flat.reshape(x.shape[0], *shape).contiguous())
            first += prod(shape)
        return self._together(inputs)

    def _together(self, values: Sequence[Any]) -> Any:
        """A value for each input as a dict by name, or as a tuple where inputs have places."""
        if self.is_of_one:
            return values[0]
        if isinstance(self.parts[0].name, int):
            return tuple(values)
        return {part.name: value for part, value in zip(self.parts, values, strict=True)}

    def arguments_for(self, forward: Callable[..., Any]) -> "Arguments":
        """How a ``forward`` is called: with the inputs one by one if it takes as many, else as one.

        Returns:
            An array [n, columns] -> positional arguments and arguments by name.
        """
        if self.is_of_one:
            return lambda x: ((self.apart(x),), {})
        names = self._together([None for _ in self.parts])
        positions, by_name = ((), names) if isinstance(names, dict) else (names, {})
        try:
            inspect.signature(forward).bind(*positions, **by_name)
        except TypeError:
            return lambda x: ((self.apart(x),), {})
        if isinstance(names, dict):
            return lambda x: ((), self.apart(x))
        return lambda x: (self.apart(x), {})


def shapes_from(stated: Any) -> Shapes:
    """Shapes as JSON gives them back."""
    if isinstance(stated, dict):
        return {name: tuple(shape) for name, shape in stated.items()}
    return tuple(tuple(each) if isinstance(each, list) else each for each in stated)


def packed(
    clients: Sequence[Mapping[str | int, NDArray[Any]]], where: str
) -> tuple[list[NDArray[Any]], Packing]:
    """Each client's inputs [n, ...] as one array [n, columns], and where each input is in it.

    Bytes alone stay bytes, and whole numbers alone whole. Together with fractions they are float32.

    Raises:
        UserError: for whole numbers that float32 cannot hold, beside fractions.
    """
    types = {
        name: stored_as(where, f"x.{name}", [inputs[name] for inputs in clients])
        for name in clients[0]
    }
    kinds = {*types.values()}
    common = kinds.pop() if len(kinds) == 1 else np.int64 if kinds <= {*WHOLE} else np.float32

    def part(name: str | int, x: NDArray[Any]) -> Part:
        whole = "bool" if all(each[name].dtype == bool for each in clients) else "whole"
        return Part(name, x.shape[1:], whole if types[name] in WHOLE else "fractions")

    def columns(name: str | int, x: NDArray[Any]) -> NDArray[Any]:
        mixed = common is np.float32 and types[name] is not common
        if mixed and types[name] in WHOLE and (most := int(np.abs(x).max(initial=0))) > LARGEST:
            wanted = f"at most {LARGEST} beside fractions, or floats if they are no ids"
            raise bad_value(where, f"x.{name}", most, wanted)
        flat = as_type(where, f"x.{name}", x, common).reshape(len(x), -1)
        return flat / np.float32(255) if mixed and types[name] is np.uint8 else flat

    # By name: the keys of another client's dicts may have another order.
    arrays = [np.concatenate([columns(name, x[name]) for name in clients[0]], 1) for x in clients]
    return arrays, Packing(tuple(part(*each) for each in clients[0].items()))
