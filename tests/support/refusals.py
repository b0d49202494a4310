"""What a refused input raises: the fault's kind, place and value, whatever the words."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fedrepro.support.errors import UserError

Fault = dict[str, Any]  # arguments of `refused`
ANY = object()


@contextmanager
def refused(
    code: str | None = None,
    *,
    file: str | None = None,
    key: str | None = None,
    value: object = ANY,
    names: str | tuple[str, ...] = (),
    near: str | None = None,
) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Expect a UserError.

    Args:
        code: its kind.
        file: the end of the file at fault, or of the command or object.
        key: the key at fault, or its last parts.
        value: the value at fault.
        names: numbers and names that must stand in its line, each as a whole word.
        near: the name that its line ends with, as the one that may have been meant.
    """
    with pytest.raises(UserError) as raised:
        yield raised
    error, line = raised.value, str(raised.value)
    assert code in (None, error.code), line
    assert file is None or error.file.endswith(file), line
    assert key is None or f".{error.key}".endswith(f".{key}"), line
    assert value is ANY or (type(error.value) is type(value) and error.value == value), line
    assert near is None or line.endswith(f"'{near}'?"), line
    for name in (names,) if isinstance(names, str) else names:
        assert re.search(rf"(?<!\w){re.escape(name)}(?!\w)", line), (name, line)
