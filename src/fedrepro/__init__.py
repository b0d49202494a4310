"""fedrepro: a reproducibility workbench for federated learning under statistical heterogeneity.

``import fedrepro as fr`` gives ``fr.train``, ``fr.partition``, ``fr.load``, ``fr.methods``,
``fr.compare``, ``fr.plot``, ``fr.callbacks`` (:mod:`fedrepro.api`). They are imported on first use:
every command imports this file, so it must stay light.
"""

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:  # for editors and type checkers; `__getattr__` imports them
    import fedrepro.api.callbacks as callbacks  # noqa: F401
    from fedrepro.api.comparing import compare, plot
    from fedrepro.api.methods import methods
    from fedrepro.api.partitioning import partition
    from fedrepro.api.runs import Run, load
    from fedrepro.api.training import train

__version__ = "0.3.0"


def code_files() -> dict[str, tuple[int, int]]:
    """Checksum and size (bytes) of every Python file of this package, by path.

    Not a time: tools that copy or link files change some times, and set others back.
    """
    checksums = {}
    for folder, _, files in os.walk(os.path.dirname(__file__)):  # noqa: PTH120 - pathlib is slow
        for name in files:
            if name.endswith(".py") and name[0] != ".":  # an editor's lock is no module
                path = os.path.join(folder, name)  # noqa: PTH118
                with open(path, "rb", buffering=0) as file:  # noqa: PTH123
                    content = file.read()
                checksums[path] = (crc32(content), len(content))
    return checksums


# Recorded before anything else is imported: manifests name the code that this process runs.
CODE_FILES = code_files()

__all__ = ("Run", "compare", "load", "methods", "partition", "plot", "train")
_WHERE = {
    "Run": "runs", "load": "runs", "train": "training", "methods": "methods",
    "compare": "comparing", "plot": "comparing", "partition": "partitioning",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "callbacks":
        return import_module("fedrepro.api.callbacks")
    if name in _WHERE:
        return getattr(import_module(f"fedrepro.api.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'fedrepro' has no attribute {name!r}")


class _Package(ModuleType):
    """This package: ``fedrepro.methods`` stays the function when the subpackage is imported."""

    @property
    def methods(self) -> Any:
        return __getattr__("methods")

    @methods.setter
    def methods(self, room: ModuleType) -> None:
        """Ignore the import system's assignment; imports use the subpackage's full name."""


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
