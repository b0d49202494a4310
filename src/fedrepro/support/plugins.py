"""Plug-ins: users' methods, models, partition schemes, measures, losses and data, by file names.

config/config.yaml names one folder for each kind (``plugins``). A loaded workbench and its runs
carry these folders, so that two workbenches in one process keep their plug-ins apart. The
environment variable FEDREPRO_METHODS replaces the folder of methods.
"""

import ast
import hashlib
import importlib.util
import inspect
import io
import linecache
import os
import sys
import tokenize
import traceback
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NoReturn

from fedrepro.support.errors import UserError, bad_value, refusal, text_of, unreadable
from fedrepro.support.files import read_bytes, visible

Kind = Literal["methods", "models", "partitions", "measures", "losses", "data"]
VARIABLE = "FEDREPRO_METHODS"


_EXIT = os._exit
CLOSE = 0.7  # difflib's ratio: `sned` and `send` 0.75, `client_loss` and `loss` 0.53
PACKAGE = "fedrepro_user"  # prefix of the names of plug-ins' modules


class PluginError(UserError):
    """An exception raised in a plug-in, in one line; ``__cause__`` is the original."""


@dataclass(frozen=True)
class Folders:
    """The folders of a workbench's plug-ins; None where it has none.

    Attributes:
        root: the workbench's folder.
        objects: what a program gives in place of files: kind, name, and the function or class.
    """

    root: Path | None = None
    methods: Path | None = None
    models: Path | None = None
    partitions: Path | None = None
    measures: Path | None = None
    losses: Path | None = None
    data: Path | None = None
    objects: tuple[tuple[Kind, str, Any], ...] = ()

    def given(self, kind: Kind, name: str) -> Any:
        """The object that a program gives in place of a file; None if there is none."""
        return next((each for k, n, each in self.objects if (k, n) == (kind, name)), None)

    def names(self, kind: Kind) -> list[str]:
        """The names of a kind's plug-ins, files and objects."""
        return [*self.files(kind), *(name for each, name, _ in self.objects if each == kind)]

    def of(self, kind: Kind) -> Path | None:
        """The folder of a kind's plug-ins, if there is one.

        Raises:
            UserError: if FEDREPRO_METHODS names a folder that does not exist.
        """
        extra = os.environ.get(VARIABLE) if kind == "methods" else None
        if not extra:
            folder: Path | None = getattr(self, kind)
            return folder
        if not Path(extra).is_dir():
            raise bad_value("environment", VARIABLE, extra, "a folder of method files")
        return Path(extra)

    def files(self, kind: Kind, built_in: Collection[str] = ()) -> dict[str, Path]:
        """The files of a kind's plug-ins, by name; files whose names begin with ``_`` are not.

        Args:
            built_in: names that plug-ins can't have.

        Raises:
            UserError: for a file with such a name, which would stand for another code, and for
                what is no file, such as a named pipe.
        """
        folder = self.of(kind)
        if folder is None:
            return {}
        files = {file.stem: file for file in visible(folder, "*.py") if file.stem[0] != "_"}
        for name in files.keys() & built_in:
            raise taken_name(files[name], kind, name)
        for file in files.values():
            if file.exists() and not file.is_file():
                raise unreadable(file, "it is not a file")
        return files


NONE = Folders()


def taken_name(where: object, kind: Kind, name: str) -> UserError:
    """The error for a plug-in that has the name of something built in."""
    return refusal(where, f"rename it: {kind.removesuffix('s')} {name} is built in", value=name)


@cache
def content_of(file: Path) -> bytes:
    """The bytes of a code file, read once: what a process signs is what it has executed."""
    return read_bytes(file)


def source_of(file: Path) -> str:
    """The text of a code file, in the encoding that its first lines may name.

    What that lacks, as Python lets comments contain, is marked.
    """
    code = io.BytesIO(content_of(file))
    encoding = "utf-8"
    with suppress(SyntaxError):
        encoding = tokenize.detect_encoding(code.readline)[0]
    code.seek(0)
    return io.TextIOWrapper(code, encoding, errors="replace").read()


@lru_cache
def parse(file: Path) -> ast.Module:
    """The syntax tree of a file.

    Raises:
        UserError: for a syntax error, with the line.
    """
    try:
        return ast.parse(content_of(file), filename=str(file))
    except SyntaxError as error:
        text = f": {error.text.strip()}" if error.text else ""
        where = f"{file}:{error.lineno}" if error.lineno else file  # none for a NUL
        raise refusal(where, f"syntax error: {error.msg}{text}", code="damaged") from error
    except ValueError as error:  # such as a NUL
        raise refusal(file, f"syntax error: {error}", code="damaged") from error
    except OSError as error:
        raise unreadable(file, error.strerror or error) from error


@lru_cache
def import_file(kind: Kind, file: Path) -> ModuleType:
    """Import a plug-in's file.

    Raises:
        UserError: if it cannot be imported.
    """
    parse(file)
    # Two workbenches may each have a file of the same name.
    place = hashlib.sha256(os.fsencode(file.absolute())).hexdigest()[:8]
    name = f"{PACKAGE}_{kind}_{place}.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    # What is shown as the code is what was executed, whatever its encoding.
    linecache.cache[str(file)] = 0, None, io.StringIO(source_of(file)).readlines(), str(file)
    try:
        # Not with the loader, which may use outdated bytecode.
        with no_exit():
            exec(compile(content_of(file), str(file), "exec"), module.__dict__)
    except UserError:
        raise
    except Exception as error:
        line = _place_of(error)
        where = f"{file}:{line[1]}" if line and line[0] == str(file) else file
        why = f"could not be imported: {text_of(error)}"
        raise refusal(where, why, code="damaged") from error
    return module


def classes_in(module: ModuleType, *bases: type) -> list[type[Any]]:
    """The classes that a module itself defines and that extend one of ``bases``, by name."""
    classes = (cls for _, cls in inspect.getmembers(module, inspect.isclass))
    return [cls for cls in classes if issubclass(cls, bases) and cls.__module__ == module.__name__]


def refuse_uncalled(cls: type[Any], base: type[Any], hooks: str, prefix: str | None = None) -> None:
    """Refuse a function that is named nearly as a hook, or begins as all do: nothing would call it.

    A hook with other parameters is refused as well.

    Args:
        base: the class with the hooks.
        hooks: what all names of hooks begin with.
        prefix: what no other function of the class may begin with.

    Raises:
        UserError: with the nearest hook.
    """
    names = [name for name in dir(base) if name.startswith(hooks)]
    own = (each for owner in cls.__mro__[: cls.__mro__.index(base)] for each in vars(owner).items())
    for name, value in own:
        if not inspect.isfunction(value):
            continue
        if name in names:
            known = inspect.signature(getattr(base, name))
            try:
                inspect.signature(value).bind(*known.parameters)
            except TypeError:
                given = f"{name}{inspect.signature(value)}"
                raise bad_value(f"class {cls.__name__}", "hook", given, f"{name}{known}") from None
        if hasattr(base, name):
            continue
        if (prefix and name.startswith(prefix)) or get_close_matches(name, names, 1, CLOSE):
            one_of = f"one of {', '.join(names)}"
            raise bad_value(f"class {cls.__name__}", "hook", name, one_of, names)


def changed_since_import(files: Iterable[Path]) -> Path | None:
    """The first of some files that has changed since this process read it, if any has."""
    return next((file for file in files if not _is_as_read(file)), None)


def _is_as_read(file: Path) -> bool:
    try:
        return read_bytes(file) == content_of(file)
    except OSError:
        return False


def is_own(module: str) -> bool:
    """Whether a module's name is that of a plug-in."""
    return module.startswith(f"{PACKAGE}_")


def overrides(cls: type, name: str) -> bool:
    """Return True if a class has an attribute from a user's class, not from this package's."""
    owner = next((each for each in cls.__mro__ if name in vars(each)), object)
    return owner.__module__.partition(".")[0] not in (__name__.partition(".")[0], "builtins")


@contextmanager
def blamed() -> Iterator[None]:
    """Turn plug-ins' exceptions into one line: file, line, function, error.

    Raises:
        PluginError: for an exception, other than a UserError, that passed through a plug-in.
    """
    try:
        with no_exit():
            yield
    except UserError as error:
        # PyTorch's compiler failed: its own stack is of the code that it traced.
        place = _place_of(error.__cause__) if hasattr(error.__cause__, "real_stack") else None
        if place is None:
            raise
        raise _raised_in(place, str(error), error.code) from error
    except Exception as error:
        place = _place_of(error)
        if place is None:
            raise
        raise _raised_in(place, text_of(error)) from error


@contextmanager
def no_exit() -> Iterator[None]:
    """Turn what would end this process in the block, perhaps with status 0, into an error.

    Forks of this process may end: it sees how they do.

    Raises:
        PluginError: for SystemExit, if a plug-in raised it or if its status is 0, and for os._exit.
    """
    here, is_outer = os.getpid(), os._exit is _EXIT

    def refuse(status: int) -> NoReturn:
        if os.getpid() != here:
            _EXIT(status)
        raise SystemExit(status)

    try:
        if is_outer:
            os._exit = refuse
        yield
    except SystemExit as error:
        place = _place_of(error)
        if place:
            raise _raised_in(place, text_of(error)) from error
        if error.code in (0, None):
            said = "a method, a model or a library ended the process before it was done"
            raise PluginError(f"{said} (SystemExit: {error.code})") from error
        raise
    finally:
        if is_outer:
            os._exit = _EXIT


def _raised_in(place: tuple[str, int, str], text: str, code: str = "") -> PluginError:
    file, number, function = place
    where = f"{file}:{number}"
    return PluginError(f"{where}: {function}: {text}", code=code, file=where, key=function)


def _place_of(error: BaseException | None) -> tuple[str, int, str] | None:
    """The innermost file, line and function of a plug-in in a traceback, if there is one."""
    files = {str(module.__file__) for name, module in list(sys.modules.items()) if is_own(name)}
    stack = traceback.extract_tb(error.__traceback__) if error else []
    traced = getattr(error, "real_stack", None) or ()
    frames = [frame for frame in (*stack, *traced) if frame.filename in files]
    if not frames:
        return None
    return frames[-1].filename, frames[-1].lineno or 1, frames[-1].name
