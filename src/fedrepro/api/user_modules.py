"""Tell the modules of the user's own from those of Python and of installed packages."""

import site
import sys
import sysconfig
import types
from functools import cache
from pathlib import Path

from fedrepro.provenance import fingerprint
from fedrepro.provenance.syntax import read_syntax
from fedrepro.support.files import sha256_of


@cache
def _installed_in() -> tuple[Path, ...]:
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(Path(path).resolve() for path in {*paths, *site.getsitepackages()} if path)


def is_in_packages(file: str) -> bool:
    path = Path(file).resolve()
    return any(path.is_relative_to(folder) for folder in _installed_in())


@cache
def is_installed(module: str | None) -> bool:
    """Return True for a module of Python or an installed package: its version tells its code.

    This package counts as one.
    """
    if module is None or module == "__main__":
        return False
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == fingerprint.PACKAGE.name:
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return top != module and is_installed(top)
    return is_in_packages(file)


def file_of(module: str | None) -> Path | None:
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return Path(file) if file else None


def is_binary(module: str | None) -> bool:
    """Return True if a module of yours is compiled."""
    file = file_of(module)
    return file is not None and file.suffix != ".py" and not is_installed(module)


def version_of(module: str | None) -> str:
    """The version of an installed package, or the hash of your file: it tells a module's code."""
    if module and is_installed(module):
        return _version_of_installed(module)
    file = file_of(module)
    return sha256_of(file) if file and file.is_file() else ""


@cache
def _version_of_installed(module: str) -> str:
    top = module.partition(".")[0]
    file = file_of(module)
    if top == fingerprint.PACKAGE.name and file:
        return fingerprint.of_closure([file])
    return str(getattr(sys.modules.get(top), "__version__", ""))


def imports_of(file: Path, package: str) -> list[types.ModuleType]:
    """The loaded modules of yours that a file's import statements name, in their order."""
    modules = dict[str, types.ModuleType]()
    for level, name in read_syntax(file.read_bytes(), file).names:
        inside = package.split(".") if package else []
        parts = [*(inside[: len(inside) - level + 1] if level else ()), *name.split(".")]
        for end in range(1, len(parts) + 1):
            module = sys.modules.get(".".join(parts[:end]))
            if module is not None and not is_installed(module.__name__):
                modules[module.__name__] = module
    return list(modules.values())
