"""Hyperparameters: their limits, and the deviations of released code, which ``@released`` sets."""

import inspect
import math
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache
from itertools import chain
from numbers import Integral
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Self, Union, get_args, get_origin

import torch

from fedrepro.support.errors import bad_value, listed


class Limit(NamedTuple):
    """The values that a hyperparameter may have. It stands in the annotation of its field.

    Attributes:
        fits: whether a value is one of them.
        expected: them in words.
        choices: them by name, if they have names.
    """

    fits: Callable[[Any], bool]
    expected: str
    choices: tuple[str, ...] = ()


def one_of(*choices: Any) -> Limit:
    """The limit of a hyperparameter that is a word, or one of some other values."""
    names = tuple(map(str, choices))
    return Limit(choices.__contains__, f"one of {listed(names)}", names)


def whole(least: int) -> Limit:
    """The limit of a number that counts something."""
    expected = f"a whole number of at least {least}"
    return Limit(lambda n: isinstance(n, Integral) and int(n) >= least, expected)


NonNegative = Annotated[float, Limit(lambda n: 0 <= n < math.inf, "a finite number of at least 0")]
Positive = Annotated[float, Limit(lambda n: 0 < n < math.inf, "a finite number above 0")]
Share = Annotated[float, Limit(lambda n: 0 <= n <= 1, "a number from 0 to 1")]
PositiveShare = Annotated[float, Limit(lambda n: 0 < n <= 1, "a number above 0 and at most 1")]
BelowOne = Annotated[float, Limit(lambda n: 0 <= n < 1, "a number from 0 and below 1")]
NonNegativeWhole = Annotated[int, whole(0)]
PositiveWhole = Annotated[int, whole(1)]


@cache
def _limits_of(cls: type) -> list[tuple[str, Limit, str]]:
    """Hyperparameter, limit, and ", or null" if it may be None, of a class and those it extends.

    The nearest annotation with a limit counts. One of a plug-in with ``from __future__ import
    annotations`` that cannot be evaluated, as it names what only type checkers import, has none.
    """
    limits: dict[str, tuple[str, Limit, str]] = {}
    for owner in cls.__mro__:
        for key, kind in inspect.get_annotations(owner).items():
            if isinstance(kind, str):
                with suppress(Exception):
                    kind = eval(kind, vars(sys.modules[owner.__module__]))
            parts = _alternatives(kind)
            marks = [mark for part in parts for mark in getattr(part, "__metadata__", ())]
            inner = (get_args(part)[0] if hasattr(part, "__metadata__") else part for part in parts)
            kinds = [*chain.from_iterable(map(_alternatives, inner))]
            null = ", or null" if NoneType in kinds else ""
            if {get_origin(each) for each in kinds if each is not NoneType} == {Literal}:
                marks.append(one_of(*chain.from_iterable(map(get_args, kinds))))
            for mark in marks:
                if isinstance(mark, Limit):
                    limits.setdefault(key, (key, mark, null))
    return [*limits.values()]


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """Those of an annotation such as ``Positive | None``."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def name_of(part: "Faithful") -> str:
    """The name of a method or a server optimizer, which is its file's."""
    return type(part).__module__.rpartition(".")[2]


def deviation(default: Any, released: Any, item: str, why: str) -> Any:
    """A field for a deviation of the released code from the paper.

    ``default`` follows the paper; ``name@released`` sets the field to ``released``. ``item`` is the
    number in the ledger of discrepancies, and ``why`` says in a few words what the code does.
    """
    return field(default=default, metadata={"released": released, "item": item, "why": why})


@dataclass(frozen=True)
class Faithful:
    """A part of a composition: it follows its paper or, with ``@released``, the authors' code."""

    def __post_init__(self, *initial: Any) -> None:
        """Raises UserError for a hyperparameter outside its limits. None is within all.

        ``initial``: the fields of a plug-in that are arguments only (``dataclasses.InitVar``).
        """
        if torch.compiler.is_compiling():  # a hook makes a part, which the compiler cannot look at
            return
        cls: type = type(self)
        for key, limit, null in _limits_of(cls):
            value = getattr(self, key)
            if value is not None and not limit.fits(value):
                where, expected = f"method {name_of(self)}", f"{limit.expected}{null}"
                raise bad_value(where, key, value, expected, limit.choices)

    @classmethod
    def deviations(cls) -> list[Field[Any]]:
        """The fields made by :func:`deviation`."""
        return [entry for entry in fields(cls) if "released" in entry.metadata]

    def as_released(self) -> Self:
        """This part with all deviations of the authors' code."""
        released = {entry.name: entry.metadata["released"] for entry in self.deviations()}
        return replace(self, **released)
