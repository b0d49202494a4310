"""fedrepro: a reproducibility workbench for federated learning under statistical heterogeneity.

``import fedrepro as fr`` gives ``fr.train``, ``fr.load``, ``fr.methods``,
``fr.compare``, ``fr.plot`` (:mod:`fedrepro.api`), imported when one of them is first asked for:
every command imports this file, which must stay as light as it is.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__version__ = "0.1.0"
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
