"""Files of one's own: methods, models, partition schemes and measures, found by their file's name.

config/config.yaml names a folder of each (``plugins``); they travel with the workbench that was
loaded and the runs that it describes, so that two workbenches in one process each have their own.
The environment variable FEDREPRO_METHODS names one folder of methods instead.
"""

import ast
import hashlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Literal

from fedrepro.support.errors import UserError, bad_value
from fedrepro.support.old_names import hint_of

Kind = Literal["methods", "models", "partitions", "measures"]
VARIABLE = "FEDREPRO_METHODS"


PACKAGE = "fedrepro_user"  # how the names of their modules begin


class PluginError(UserError):
    """What a file of one's own raised, in one line; its cause is what was raised."""


@dataclass(frozen=True)
class Folders:
    """Where a workbench has files of its own; None: nowhere.

    Attributes:
        root: the workbench.
    """

    root: Path | None = None
    methods: Path | None = None
    models: Path | None = None
    partitions: Path | None = None
    measures: Path | None = None

    def of(self, kind: Kind) -> Path | None:
        """The folder of what is one's own of a kind, if there is one.

        Raises:
            UserError: when the environment names a folder of methods that is not there.
        """
        extra = os.environ.get(VARIABLE) if kind == "methods" else None
        if not extra:
            found: Path | None = getattr(self, kind)
            return found
        if not Path(extra).is_dir():
            raise bad_value("environment", VARIABLE, extra, "a folder of method files")
        return Path(extra)

    def files(self, kind: Kind) -> dict[str, Path]:
        """Name -> file of what is one's own; files whose names begin with ``_`` are none."""
        folder = self.of(kind)
        if folder is None:
            return {}
        return {file.stem: file for file in sorted(folder.glob("*.py")) if file.stem[0] != "_"}


NONE = Folders()


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
    # Two workbenches may each have a file of the same name.
    place = hashlib.sha256(str(file.absolute()).encode()).hexdigest()[:8]
    name = f"{PACKAGE}_{kind}_{place}.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    content = file.read_bytes()
    try:
        # Not by the loader, which may take old bytecode for the file.
        exec(compile(content, str(file), "exec"), module.__dict__)
    except UserError:
        raise
    except Exception as error:
        line = _place_of(error)
        where = f"{file}:{line[1]}" if line and line[0] == str(file) else file
        raise UserError(
            f"{where}: could not be imported: {type(error).__name__}: {error}{hint_of(error)}"
        ) from error
    _executed[file] = content
    return module


_executed: dict[Path, bytes] = {}


def changed_since_import() -> Path | None:
    """A file that is no longer what this process has executed of it, if there is one."""
    return next((file for file, content in _executed.items() if not _is(file, content)), None)


def _is(file: Path, content: bytes) -> bool:
    try:
        return file.read_bytes() == content
    except OSError:
        return False


def is_own(module: str) -> bool:
    """Whether a module, by its name, is a file of one's own."""
    return module.startswith(f"{PACKAGE}_")


@contextmanager
def blamed() -> Iterator[None]:
    """Turn what a file of one's own raises meanwhile into one line: file, line, function, error.

    Raises:
        PluginError: for an exception other than a UserError that passed through such a file.
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
        raise PluginError(
            f"{file}:{number}: {function}: {type(error).__name__}: {error}"
        ) from error


def _place_of(error: BaseException) -> tuple[str, int, str] | None:
    """File, line and function of one's own in which an error came up; None if in none."""
    files = {str(module.__file__) for name, module in list(sys.modules.items()) if is_own(name)}
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename in files]
    if not frames:
        return None
    return frames[-1].filename, frames[-1].lineno or 1, frames[-1].name
