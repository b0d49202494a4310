"""The folder scripts, which is no package."""

import importlib
import sys
from types import ModuleType

from support.places import ROOT


def script(name: str) -> ModuleType:
    """The module of a script, which may import others of the folder."""
    folder = str(ROOT / "scripts")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
