"""Files of one's own: methods, models and partition schemes, which are found by their file's name.

config/config.yaml names a folder of each (``own``); whoever loads a workbench calls :func:`use`.
The environment variable FEDREPRO_METHODS names one folder of methods instead.
"""

import ast
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Literal

from fedrepro.support.errors import UserError, bad_value

Kind = Literal["methods", "models", "partitions"]
VARIABLE = "FEDREPRO_METHODS"

PACKAGE = "fedrepro_user"  # how the names of their modules begin

_folders: dict[Kind, Path] = {}


class OwnError(UserError):
    """What a file of one's own raised, in one line; its cause is what was raised."""


def use(folders: Mapping[Kind, Path]) -> None:
    """From now on these are the folders of one's own, instead of those before."""
    _folders.clear()
    _folders.update({kind: folder.absolute() for kind, folder in folders.items()})


def folder_of(kind: Kind) -> Path | None:
    """The folder of one's own methods, models or partition schemes, if there is one.

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
def parse(file: Path) -> ast.Module:
    """The syntax tree of a file.

    Raises:
        UserError: for what is no Python, with the line.
    """
    try:
        return ast.parse(file.read_bytes(), filename=str(file))
    except SyntaxError as error:
        text = f": {error.text.strip()}" if error.text else ""
        raise UserError(f"{file}:{error.lineno}: syntax error: {error.msg}{text}") from error
    except ValueError as error:  # such as a NUL
        raise UserError(f"{file}: syntax error: {error}") from error


@lru_cache
def import_file(kind: Kind, file: Path) -> ModuleType:
    """The module in a file of one's own.

    Raises:
        UserError: for one that can't be imported.
    """
    parse(file)
    name = f"{PACKAGE}_{kind}.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except Exception as error:
        line = _place_of(error)
        where = f"{file}:{line[1]}" if line and line[0] == str(file) else file
        raise UserError(
            f"{where}: could not be imported: {type(error).__name__}: {error}"
        ) from error
    return module


def is_own(module: str) -> bool:
    """Whether a module, by its name, is a file of one's own."""
    return module.startswith(f"{PACKAGE}_")


@contextmanager
def blamed() -> Iterator[None]:
    """Turn what a file of one's own raises meanwhile into one line: file, line, function, error.

    Raises:
        OwnError: for an exception other than a UserError that passed through such a file.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        place = _place_of(error)
        if place is None:
            raise
        file, number, function = place
        raise OwnError(f"{file}:{number}: {function}: {type(error).__name__}: {error}") from error


def _place_of(error: BaseException) -> tuple[str, int, str] | None:
    """File, line and function of one's own in which an error came up; None if in none."""
    files = {str(module.__file__) for name, module in list(sys.modules.items()) if is_own(name)}
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename in files]
    if not frames:
        return None
    return frames[-1].filename, frames[-1].lineno or 1, frames[-1].name
