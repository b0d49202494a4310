"""Read numpy arrays from a pickle without unpickling it.

A pickle is a program, and unpickling runs it. This module only parses its instructions
(:mod:`pickletools`) and interprets those that build tuples of plain arrays. It never looks up or
calls a name from the file, and rejects anything else.
"""

import pickletools
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrepro.support.errors import reading
from fedrepro.support.files import plain

NUMBERS = re.compile(r"[<>|=]?(b1|[iuf][1248])")  # names of the types of numbers
PUSH = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4",
    "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE",
    "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8",
    "SHORT_BINSTRING", "BINSTRING", "STRING",
}  # fmt: skip
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
NOTHING = {"PROTO", "FRAME"}
REMEMBER = {"PUT", "BINPUT", "LONG_BINPUT"}
RECALL = {"GET", "BINGET", "LONG_BINGET"}
DAMAGE = (ValueError, IndexError, KeyError, TypeError, AttributeError, OSError)


class _Named(NamedTuple):
    """The name of a function or class in the file, as text only."""

    module: str
    name: str


class _Type:
    """A numeric type; its byte order is set later."""

    def __init__(self, code: str) -> None:
        if not NUMBERS.fullmatch(code):
            raise ValueError(f"values of type {code!r}")
        self.value = np.dtype(code)


class _Array:
    """An array; its content is set later."""

    value: NDArray[Any] | None = None


class _Mark:
    pass


def read_arrays(path: Path) -> list[NDArray[Any]]:
    """The arrays of a pickled tuple (or list) of numeric numpy arrays.

    Raises:
        UserError: if the file is truncated or contains anything else.
    """
    with reading(path, *DAMAGE, kind="a pickled tuple of numeric arrays"):
        content_of_file = _follow(plain(path).read_bytes())
        if not isinstance(content_of_file, tuple | list):
            raise ValueError(f"a {type(content_of_file).__name__}")
        arrays = [item.value if isinstance(item, _Array) else None for item in content_of_file]
        if not arrays or any(array is None for array in arrays):
            raise ValueError("something other than arrays")
        return [array for array in arrays if array is not None]


def _follow(content: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        items = []
        while not isinstance(stack[-1], _Mark):
            items.append(stack.pop())
        stack.pop()
        return items[::-1]

    argument: Any
    for opcode, argument, _ in pickletools.genops(content):
        name = opcode.name
        if name in PUSH:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in TUPLES:
            count = TUPLES[name]
            stack[len(stack) - count :] = [tuple(stack[len(stack) - count :])]
        elif name == "MARK":
            stack.append(_Mark())
        elif name in ("TUPLE", "LIST"):
            stack.append(tuple(since_mark()) if name == "TUPLE" else since_mark())
        elif name == "EMPTY_LIST":
            stack.append([])
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else since_mark()
            stack[-1].extend(items)
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in REMEMBER:
            memo[int(argument)] = stack[-1]
        elif name in RECALL:
            stack.append(memo[int(argument)])
        elif name == "GLOBAL":
            stack.append(_Named(*argument.split(" ")))
        elif name == "STACK_GLOBAL":
            named = stack.pop()
            stack.append(_Named(stack.pop(), named))
        elif name == "REDUCE":
            arguments = stack.pop()
            stack.append(_made(stack.pop(), arguments))
        elif name == "BUILD":
            _fill(stack[-2], stack[-1])
            stack.pop()
        elif name == "STOP":
            return stack.pop()
        elif name not in NOTHING:
            raise ValueError(f"the instruction {name}")
    raise ValueError("it ends too early")


def _made(what: _Named, arguments: tuple[Any, ...]) -> Any:
    """The result of a call in the file, made by our own code."""
    module = what.module.replace("numpy._core", "numpy.core")  # as numpy 2 calls it
    if (module, what.name) == ("numpy", "dtype"):
        return _Type(arguments[0])
    if (module, what.name) == ("numpy.core.multiarray", "_reconstruct"):
        return _Array()
    if (module, what.name) == ("numpy.core.numeric", "_frombuffer"):
        content, kind, shape, order = arguments
        made = _Array()
        made.value = _array(content, kind, shape, order == "F")
        return made
    if what == ("_codecs", "encode") and arguments[1] == "latin1":
        return arguments[0].encode("latin1")
    raise ValueError(f"a call of {what.module}.{what.name}")


def _fill(what: Any, state: Any) -> None:
    if isinstance(what, _Type):
        if any(each is not None for each in state[2:5]):
            raise ValueError("values with parts")
        what.value = what.value.newbyteorder(state[1])
    elif isinstance(what, _Array):
        _, shape, kind, by_columns, content = state
        what.value = _array(content, kind, shape, by_columns)
    else:
        raise ValueError(f"the state of a {type(what).__name__}")


def _array(content: Any, kind: Any, shape: Any, by_columns: Any) -> NDArray[Any]:
    if isinstance(content, str):  # bytes of Python 2
        content = content.encode("latin1")
    if not isinstance(content, bytes | bytearray):  # bytes(n) would be n zeros
        raise ValueError(f"an array whose content is a {type(content).__name__}")
    flat = np.frombuffer(content, kind.value)
    return flat.reshape(shape, order="F" if by_columns else "C")
