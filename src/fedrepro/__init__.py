"""fedrepro: a reproducibility workbench for federated learning under statistical heterogeneity.

``import fedrepro as fr`` gives ``fr.train``, ``fr.load``, ``fr.methods``,
``fr.compare``, ``fr.plot`` (:mod:`fedrepro.api`), imported when one of them is first asked for:
every command imports this file, which must stay as light as it is.
"""

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"


def code_files() -> dict[str, tuple[int, int]]:
    """Modification time and size of every file of code of this package."""
    found = {}
    for folder, _, files in os.walk(os.path.dirname(__file__)):  # noqa: PTH120 - pathlib is slow
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(folder, name)  # noqa: PTH118
                status = os.stat(path)  # noqa: PTH116
                found[path] = (status.st_mtime_ns, status.st_size)
    return found


# As this process began, before it imported any of it: what it signs its numbers with.
CODE_FILES = code_files()

__all__ = ("Run", "compare", "load", "methods", "plot", "train")
_WHERE = {
    "Run": "runs", "load": "runs", "train": "training", "methods": "methods",
    "compare": "comparing", "plot": "comparing",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"fedrepro.api.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'fedrepro' has no attribute {name!r}")


class _Package(ModuleType):
    """This package: ``fedrepro.methods`` is the function, also once the room so called is there."""

    @property
    def methods(self) -> Any:
        return __getattr__("methods")

    @methods.setter
    def methods(self, room: ModuleType) -> None:
        """Importing the room sets it; import statements find it by its full name."""


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
