"""Files of one's own: methods, models, partition schemes and measures, found by their file's name.

config/config.yaml names a folder of each (``own``); whoever loads a workbench calls :func:`use`.
The environment variable FEDREPRO_METHODS names one folder of methods instead.
"""

import importlib.util
import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Literal

from fedrepro.support.errors import UserError, bad_value

Kind = Literal["methods", "models", "partitions", "measures"]
VARIABLE = "FEDREPRO_METHODS"

_folders: dict[Kind, Path] = {}


def use(folders: Mapping[Kind, Path]) -> None:
    """From now on these are the folders of one's own, instead of those before."""
    _folders.clear()
    _folders.update({kind: folder.absolute() for kind, folder in folders.items()})


def folder_of(kind: Kind) -> Path | None:
    """The folder of what is one's own of a kind, if there is one.

    Raises:
        UserError: for a folder that is not there.
    """
    extra = os.environ.get(VARIABLE) if kind == "methods" else None
    folder = Path(extra) if extra else _folders.get(kind)
    if folder is not None and not folder.is_dir():
        if extra:
            raise bad_value("environment", VARIABLE, extra, "a folder of method files")
        raise bad_value(
            "config/config.yaml", f"own.{kind}", str(folder), "a folder of Python files"
        )
    return folder


def files_of(kind: Kind) -> dict[str, Path]:
    """Name -> file of what is one's own; files whose names begin with ``_`` are none."""
    folder = folder_of(kind)
    if folder is None:
        return {}
    return {file.stem: file for file in sorted(folder.glob("*.py")) if file.stem[0] != "_"}


@lru_cache
def import_file(kind: Kind, file: Path) -> ModuleType:
    """The module in a file of one's own.

    Raises:
        UserError: for one that can't be imported.
    """
    name = f"fedrepro_user_{kind}.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(
            f"{file}: could not be imported: {type(error).__name__}: {error}"
        ) from error
    return module
