"""From names to files: what a composition is made of, without importing any of it.

A method is found by its file: ``methods/fedprox.py`` holds the method called fedprox. A folder of
your own is searched too (:mod:`fedrepro.support.own`).
"""

import ast
from functools import lru_cache
from pathlib import Path

from fedrepro.support import own
from fedrepro.support.errors import UserError, bad_value

METHODS = Path(__file__).parent
SERVER_OPTIMIZERS = METHODS / "server"
SHARED = {SERVER_OPTIMIZERS / "base.py", SERVER_OPTIMIZERS / "adaptive.py"}


def part_files() -> dict[str, Path]:
    """Name -> file of everything that a composition can name, without importing any."""
    packaged = {
        file.stem: file
        for folder in (METHODS, SERVER_OPTIMIZERS)
        for file in sorted(folder.glob("*.py"))
        if not file.stem.startswith("_") and file not in SHARED
    }
    return {**packaged, **own.files_of("methods")}


def split(composition: str) -> list[tuple[str, bool]]:
    """The parts of a composition: (name, whether ``@released``).

    Raises:
        UserError: for an empty part or a fidelity other than paper or released.
    """
    parts = []
    for text in composition.split("+"):
        name, at, fidelity = text.partition("@")
        if not name:
            raise bad_value(
                "method", "name", composition, "names joined by '+', such as ima+fedprox"
            )
        if at and fidelity not in ("paper", "released"):
            raise bad_value(
                "method", composition, fidelity, "'paper' or 'released' after '@'",
                ("paper", "released"),
            )  # fmt: skip
        parts.append((name, fidelity == "released"))
    return parts


def module_files(composition: str) -> list[Path]:
    """The source files that define a composition's parts."""
    files = part_files()
    return [files[name] for name, _ in split(composition) if name in files]


def needs_of(composition: str) -> tuple[str, ...]:
    """What its parts need to be given, by name: their ``needs``, without importing any."""
    return _said_of(composition, "needs", own.folder_of("methods"))


def takes_of(composition: str) -> tuple[str, ...]:
    """What its parts make use of where it is given: their ``takes``, without importing any."""
    return _said_of(composition, "takes", own.folder_of("methods"))


@lru_cache
def _said_of(composition: str, key: str, folder: Path | None) -> tuple[str, ...]:
    # Asked for at every run of every page; to list the files takes a millisecond.
    found = (name for file in module_files(composition) for name in _said_in(file, key))
    return tuple(dict.fromkeys(found))


@lru_cache
def _said_in(file: Path, key: str) -> tuple[str, ...]:
    """The names under ``key`` of the part in ``file``, read from its syntax tree."""
    classes = [node for node in _parse(file).body if isinstance(node, ast.ClassDef)]
    return next(filter(None, (_said_by_class(file, each, key) for each in classes)), ())


def _said_by_class(file: Path, cls: ast.ClassDef, key: str) -> tuple[str, ...] | None:
    """What a class says, else the first of its bases in this package's methods that says it."""
    for node in cls.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == key for target in targets):
            try:
                return tuple(map(str, ast.literal_eval(node.value)))
            except (ValueError, TypeError):
                raise UserError(
                    f"{file}:{node.lineno}: {key}: expected a tuple of names, written out"
                ) from None
    for base in cls.bases:
        found = _class_called(file, base.id) if isinstance(base, ast.Name) else None
        if found and (said := _said_by_class(*found, key)) is not None:
            return said
    return None


def _class_called(file: Path, name: str) -> tuple[Path, ast.ClassDef] | None:
    """Where a class is defined: in ``file``, or in what it imports from this package's methods."""
    for node in _parse(file).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return file, node
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedrepro.methods."):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    parts = str(node.module).split(".")[2:]
                    return _class_called(METHODS.joinpath(*parts).with_suffix(".py"), alias.name)
    return None


def begins_as_inner(part: str) -> bool:
    """Whether a part is a wrapper that says how long it is what it wraps."""
    return _begins_as_inner(part, own.folder_of("methods"))


@lru_cache
def _begins_as_inner(part: str, folder: Path | None) -> bool:
    return any(
        isinstance(hook, ast.FunctionDef) and hook.name == "begins_as"
        for file in module_files(part)
        for cls in _parse(file).body
        if isinstance(cls, ast.ClassDef) and any(ast.unparse(b) == "Wrapper" for b in cls.bases)
        for hook in cls.body
    )


@lru_cache
def _parse(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes(), filename=str(file))
