"""What hyperparameters mean, read from the code that defines them."""

import inspect
import re
from typing import Any

from fedrepro.methods.registry import hyperparameters_of


def meanings_of(cls: type[Any]) -> dict[str, str]:
    """Hyperparameter -> its meaning, or "", wherever a part's class has it from."""
    meanings = {}
    for name in hyperparameters_of(cls):
        owners = [owner for owner in cls.__mro__ if name in inspect.get_annotations(owner)]
        meanings[name] = next((said for owner in owners if (said := _said_of(owner, name))), "")
    return meanings


_SOURCES: dict[type[Any], str] = {}  # as Python parses the whole file to find one


def _said_of(cls: type[Any], name: str) -> str:
    """The comment on a field's line, or its entry among the attributes of the docstring."""
    if cls not in _SOURCES:
        _SOURCES[cls] = inspect.getsource(cls)
    comment = re.search(rf"^    {name}\s*:[^#\n]*#\s*(.+)$", _SOURCES[cls], re.MULTILINE)
    if comment:
        return comment[1].strip()
    attributes = inspect.cleandoc(cls.__doc__ or "").partition("\nAttributes:\n")[2]
    for entry in re.split(r"\n(?= {4}\S)", attributes):
        names, _, text = entry.strip().partition(": ")
        if name in names.split(", "):
            return " ".join(text.split())
    return ""
